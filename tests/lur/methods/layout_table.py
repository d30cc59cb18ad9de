"""Every method of the table, run whole and cut at a checkpoint, in one layout.

``python -m tests.lur.methods.layout_table FOLDER devices`` runs all of them with clients sharded over the two devices
of this process, ``... FOLDER processes PORT INDEX`` is one of two processes. For each method a file in FOLDER has the
states at the end, or the error.
"""

import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import lur
from lur.methods.registry import METHODS
from lur.parallel import client_states
from lur.parallel.client_states import broadcast_states_from_first, place_client_states
from lur.parallel.layouts import parse_layout
from lur.parallel.mesh import replicated
from lur.parallel.processes import broadcast_arrays_from_first, place_arrays
from lur.runs import checkpoint
from tests.lur.numpy_loop import FACTORIES, loss, random_store

SIZES, D, B, M, K, SEED = (3, 8, 2, 6, 4), 3, 2, 3, 3, 5
N, ROUNDS, CUT = len(SIZES), 5, 2
START = np.array([1.0, -2.0, 0.5])
LAYOUTS = ("sequential", "chunked:2", "host store", "2 devices", "2 processes")
"""What is compared with vmap. Neither 2 nor 2 devices divide M or N."""


class Case(NamedTuple):
    """A method with the options and rates of its runs.

    Attributes:
      options: the options of its factory beside the loss and K.
      gamma: the client rate.
      eta: the server rate.
    """

    options: Mapping[str, Any] = MappingProxyType({})
    gamma: float = 0.0625
    eta: float = 0.5


CASES = {
    "local_update": Case({"theta": [1.0, 0.5, 2.0], "server": FACTORIES["adam"]}, eta=0.0625),
    "reptile": Case(),
    "maml": Case(),
    "fedprox": Case({"prox": 0.5, "client": FACTORIES["momentum"]}),
    "fednova": Case({"momentum": 0.5}, eta=0.125),
    "scaffold": Case({"option": "II"}),
    "feddyn": Case({"alpha": 0.5}, eta=1.0),
    "proxskip": Case({"probability": 0.5}, eta=1.0),
    "fedsplit": Case({"prox_step": 0.5}, eta=1.0),
    "fedlin": Case(),
    "mime": Case({"optimizer": FACTORIES["adam"]}),
    "mimelite": Case({"optimizer": FACTORIES["momentum"]}),
    "diloco": Case(),
    "fedexp": Case(eta=1.0),
    "extrapolation": Case({"theta": [1.0] * K}),
}
"""All methods of the table. Those that are LocalUpdate with other weights are one case."""


def make(name):
    """The method of a case."""
    module, _, factory = METHODS[name].factory.partition(":")
    steps = {} if {"theta", "probability"} & CASES[name].options.keys() else {"local_steps": K}
    if name == "maml":
        steps = {"steps": K}
    return getattr(import_module(module), factory)(loss, **steps, **CASES[name].options)


def advance(name, state, rounds, layout="vmap"):
    """The state after further rounds."""
    method = make(name)
    options = {
        "clients_per_round": N if method.full_participation else M,
        "weighting": "uniform" if method.uniform_weights else "examples",
        "layout": {"host store": "vmap", "2 devices": "sharded", "2 processes": "sharded"}.get(layout, layout),
        "data": "host" if layout == "host store" else None,
    }
    store = random_store(1, SIZES, D)
    return lur.run(method, state, store, rounds=rounds, batch_size=B, seed=SEED, capacity=ROUNDS, **options)[0]


def initial(name):
    """The state before the first round."""
    return make(name).init(START, CASES[name].gamma, CASES[name].eta, clients=N)


def resumed(name, state, folder, layout):
    """A state as a process that resumes has it: from a checkpoint, which the first process reads."""
    own = folder / f"{name} {jax.process_index()}"
    checkpoint.save(own, CUT, state, {})
    restored = initial(name)
    if jax.process_index() == 0:
        found = checkpoint.restore(own, own, restored, refuse)
        assert found is not None
        restored = found.state
    server = broadcast_arrays_from_first(restored._replace(clients=()))
    clients = broadcast_states_from_first(restored.clients)
    sharding = replicated(parse_layout("sharded")) if layout.startswith("2 ") else None
    server = place_arrays(jax.tree.map(jnp.asarray, server), sharding)
    return server._replace(clients=place_client_states(clients, sharding))


def refuse(sentence):
    """Refuse what `checkpoint.restore` says of a damaged checkpoint."""
    raise AssertionError(sentence)


def whole_and_resumed(name, folder, layout):
    """The states after all rounds, of a run that nothing interrupts and of one that is cut and resumed."""
    start = initial(name)
    whole = advance(name, start, ROUNDS, layout)
    cut = resumed(name, advance(name, start, CUT, layout), folder, layout)
    return whole, advance(name, cut, ROUNDS - CUT, layout)


def arrays(state):
    """The leaves of a state as numpy arrays."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)]


def main(folder, kind, port="", index="0"):
    jax.config.update("jax_enable_x64", True)
    if kind == "processes":
        jax.distributed.initialize(f"127.0.0.1:{port}", 2, int(index), cluster_detection_method="deactivate")
    assert (jax.device_count(), jax.process_count()) == (2, 2 if kind == "processes" else 1)
    client_states.DEVICE_BYTES = 0 if kind == "processes" else client_states.DEVICE_BYTES  # rows on disk are sent
    for name in CASES:
        path = Path(folder) / f"{name} {index}"
        try:
            whole, cut = whole_and_resumed(name, Path(folder) / "checkpoints", f"2 {kind}")
        except Exception:  # of any kind, for the test of this method
            path.with_suffix(".txt").write_text(traceback.format_exc())
        else:
            states = {"whole": arrays(whole), "cut": arrays(cut)}
            np.savez(path.with_suffix(".npz"), **{f"{s} {i}": leaf for s in states for i, leaf in enumerate(states[s])})


if __name__ == "__main__":
    main(*sys.argv[1:])
