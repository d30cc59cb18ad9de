"""lur: local update methods (FedAvg, Reptile, FOMAML, MAML, Lookahead, local SGD and relatives) in JAX.

Public names are imported when they are first used, so that `lur --help` does not wait for JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lur import theta as theta
    from lur.analysis.diagnosis import Diagnosis as Diagnosis
    from lur.analysis.diagnosis import diagnose as diagnose
    from lur.engine.grid import run_grid as run_grid
    from lur.engine.run import run as run
    from lur.methods import decay as decay
    from lur.methods import extrapolation as extrapolation
    from lur.methods import maml as maml
    from lur.methods import optimizers as optimizers
    from lur.methods.client import inner_loop as inner_loop
    from lur.methods.server import Info as Info
    from lur.methods.server import LocalUpdate as LocalUpdate
    from lur.methods.server import State as State
    from lur.methods.server import from_client as from_client
    from lur.methods.server import local_update as local_update
    from lur.training.evaluation import evaluate as evaluate

__version__ = "0.1.0"

_MODULES = {
    "data": "lur.data",
    "decay": "lur.methods.decay",
    "extrapolation": "lur.methods.extrapolation",
    "maml": "lur.methods.maml",
    "methods": "lur.methods",
    "models": "lur.models",
    "optimizers": "lur.methods.optimizers",
    "plots": "lur.plots",
    "tasks": "lur.tasks",
    "theta": "lur.theta",
}
_NAMES = {
    "Diagnosis": "lur.analysis.diagnosis",
    "Info": "lur.methods.server",
    "LocalUpdate": "lur.methods.server",
    "State": "lur.methods.server",
    "diagnose": "lur.analysis.diagnosis",
    "evaluate": "lur.training.evaluation",
    "from_client": "lur.methods.server",
    "inner_loop": "lur.methods.client",
    "local_update": "lur.methods.server",
    "run": "lur.engine.run",
    "run_grid": "lur.engine.grid",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'lur' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES, *_NAMES])
