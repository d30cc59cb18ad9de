"""A method that clips, sparsifies, quantises and adds noise, run on several devices or in two processes.

``python -m tests.lur.methods.aggregation_runs devices FILE`` runs it in every sharded layout of this process;
``... process FILE PORT INDEX`` is one of two processes. Both compare with the numbers in FILE.
"""

import sys

import jax
import numpy as np

import lur
from lur.engine.grid import run_grid
from lur.methods import clipped, quantized, top_k, with_noise
from tests.lur.numpy_loop import loss, random_store

SIZES, D, B, M, ROUNDS, SEED = (1, 4, 2, 7, 3, 5), 5, 2, 3, 6, 5
N, GAMMA, ETA, CLIP, NOISE = len(SIZES), 0.1, 0.7, 0.2, 0.3
RUN = {"rounds": ROUNDS, "clients_per_round": M, "batch_size": B}
START = {"w": np.linspace(-1, 1, D), "unused": np.ones(2)}


def weights_loss(params, batch):
    return loss(params["w"], batch)


def store():
    return random_store(0, SIZES, D)


def all_of_them(K=3):
    inner = lur.local_update(weights_loss, lur.theta.fedavg(K), send="delta")
    return with_noise(clipped(quantized(top_k(inner, 0.4), bits=3), CLIP), NOISE, seed=9)


def start(method, gamma=GAMMA, eta=ETA):
    return method.init(START, gamma, eta, clients=N)


def run(method=None, **options):
    method = all_of_them() if method is None else method
    state, _ = lur.run(method, start(method), store(), **{"seed": SEED, "layout": "vmap", **RUN, **options})
    return state


def numbers(state):
    """The model and the clients' errors."""
    return {"w": np.asarray(state.params["w"]), "error": np.asarray(state.clients.error["w"])}


def check(state, expected):
    for name, found in numbers(state).items():
        np.testing.assert_allclose(found, expected[name], rtol=1e-12, atol=1e-13)


def check_grid(expected, **options):
    """A grid whose cell (1, 0, 1) has the rates and the seed of the expected run."""
    rates = {"client_lr": [0.0, GAMMA], "server_lr": [ETA]}
    method = all_of_them()
    states, _ = run_grid(method, START, store(), **rates, seeds=(3, SEED), **RUN, **options)
    check(jax.tree.map(lambda leaf: np.asarray(leaf)[1, 0, 1], states), expected)


def main(kind, path, port="", index="0"):
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    expected = dict(np.load(path))
    if kind == "process":
        jax.distributed.initialize(f"127.0.0.1:{port}", 2, int(index), cluster_detection_method="deactivate")
        assert jax.process_count() == 2
        check(run(layout="sharded"), expected)
    else:
        for layout in ("sharded", "sharded:chunked:2"):
            for data in (None, "host"):
                check(run(layout=layout, data=data), expected)
        check_grid(expected, layout="sharded")
    print("agreed")


if __name__ == "__main__":
    main(*sys.argv[1:])
