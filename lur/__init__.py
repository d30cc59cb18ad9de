"""lur: local update methods (FedAvg, Reptile, FOMAML, MAML, Lookahead, local SGD and relatives) in JAX.

Names are imported when they are first used, so that `lur --help` need not wait for JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lur import client as client
    from lur import decay as decay
    from lur import extrapolation as extrapolation
    from lur import maml as maml
    from lur import optimizers as optimizers
    from lur import theta as theta
    from lur.diagnosis import Diagnosis as Diagnosis
    from lur.diagnosis import diagnose as diagnose
    from lur.engine import run as run
    from lur.grid import run_grid as run_grid
    from lur.server import Info as Info
    from lur.server import LocalUpdate as LocalUpdate
    from lur.server import State as State
    from lur.server import local_update as local_update

__version__ = "0.1.0"

MODULES = ("client", "decay", "extrapolation", "maml", "optimizers", "theta")
NAMES = {
    "Diagnosis": "diagnosis",
    "diagnose": "diagnosis",
    "run": "engine",
    "run_grid": "grid",
    "Info": "server",
    "LocalUpdate": "server",
    "State": "server",
    "local_update": "server",
}


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return import_module(f"lur.{name}")
    if name in NAMES:
        return getattr(import_module(f"lur.{NAMES[name]}"), name)
    raise AttributeError(f"module 'lur' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *MODULES, *NAMES])
