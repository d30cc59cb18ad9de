"""lur: local update methods (FedAvg, Reptile, FOMAML, MAML, Lookahead, local SGD and relatives) in JAX.

Public names are imported when they are first used, so that `lur --help` does not wait for JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lur._version import __version__ as __version__

if TYPE_CHECKING:
    import lur.methods.maml as maml  # noqa: F401
    from lur import data as data
    from lur import methods as methods
    from lur import models as models
    from lur import plots as plots
    from lur import tasks as tasks
    from lur import theta as theta
    from lur.analysis.diagnosis import Diagnosis as Diagnosis
    from lur.analysis.diagnosis import diagnose as diagnose
    from lur.engine.grid import run_grid as run_grid
    from lur.engine.run import run as run
    from lur.methods import decay as decay
    from lur.methods import extrapolation as extrapolation
    from lur.methods import optimizers as optimizers
    from lur.methods.inner_loop import inner_loop as inner_loop
    from lur.methods.local_update import from_client as from_client
    from lur.methods.local_update import local_update as local_update
    from lur.methods.method import Broadcast as Broadcast
    from lur.methods.method import ClientOutput as ClientOutput
    from lur.methods.method import Method as Method
    from lur.methods.method import RoundInfo as RoundInfo
    from lur.methods.method import ServerState as ServerState
    from lur.methods.mini_batches import Batches as Batches
    from lur.runs.load_run import load_run as load_run
    from lur.training.adaptation import evaluate_adapted as evaluate_adapted
    from lur.training.evaluation import evaluate as evaluate


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
    "Batches": "lur.methods.mini_batches",
    "Broadcast": "lur.methods.method",
    "ClientOutput": "lur.methods.method",
    "Diagnosis": "lur.analysis.diagnosis",
    "Method": "lur.methods.method",
    "RoundInfo": "lur.methods.method",
    "ServerState": "lur.methods.method",
    "diagnose": "lur.analysis.diagnosis",
    "evaluate": "lur.training.evaluation",
    "evaluate_adapted": "lur.training.adaptation",
    "from_client": "lur.methods.local_update",
    "inner_loop": "lur.methods.inner_loop",
    "load_run": "lur.runs.load_run",
    "local_update": "lur.methods.local_update",
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
