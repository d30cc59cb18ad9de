"""Compares runs on meshes with two axes, in a process with eight CPU devices: `python -m tests.lur.parallel.mesh_runs`.

Prints each layout that agrees with one device and fails at the first that does not. The argument ``first`` restricts
the comparison to the first layout of each kind.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

import lur
from lur.data.gather import resident
from lur.data.writer import in_memory
from lur.parallel import layouts, mesh

D, OUT, N, K, B = 32, 48, 9, 2, 2
ROUNDS = {"rounds": 4, "clients_per_round": 5, "batch_size": B}


def clients():
    """Names and random examples of N clients."""
    rng = np.random.default_rng(0)
    for i in range(N):
        n = int(rng.integers(1, 5))
        yield f"client {i}", {"x": rng.normal(size=(n, D)), "y": rng.normal(size=(n, OUT))}


def loss(params, batch):
    """Mean squared error of a network with one hidden layer."""
    return jnp.square(jnp.tanh(batch["x"] @ params["first"]) @ params["second"] - batch["y"]).mean()


def initial_params():
    """Random weights of the network."""
    rng = np.random.default_rng(1)
    return {"first": jnp.asarray(rng.normal(size=(D, 64))), "second": jnp.asarray(rng.normal(size=(64, OUT)) / 8)}


MODEL_LAYOUTS = ("sharded,model:2", "sharded:vmap,model:4", "sharded,model:8")
GRIDS = (("sharded", 2), ("sharded:vmap", 4), ("sharded:chunked:2", 1), ("sequential", 6))


def compare_model_axis(method, store, count):
    """Models sharded over several devices and clients over the rest; checks the sizes of the shards, too."""
    expected, expected_infos = lur.run(
        method, method.init(initial_params(), 0.1, 0.5), store, layout="sequential", **ROUNDS
    )
    for text in MODEL_LAYOUTS[:count]:
        layout = layouts.parse_layout(text)
        state = method.init(initial_params(), 0.1, 0.5)
        state = jax.device_put(state, mesh.param_shardings(state, layout))
        data = resident(store, mesh.replicated(layout))
        state, infos = lur.run(method, state, store, layout=layout, data=data, **ROUNDS)
        for name, leaf in state.params.items():
            np.testing.assert_allclose(leaf, expected.params[name], rtol=1e-10, atol=1e-12)
            shard_sizes = {shard.data.size for shard in leaf.addressable_shards}
            assert shard_sizes == {leaf.size // layout.model}, (text, name, shard_sizes, leaf.sharding)
        np.testing.assert_allclose(infos.loss, expected_infos.loss, rtol=1e-10)
        np.testing.assert_allclose(infos.client_norms, expected_infos.client_norms, rtol=1e-10)
        print(text)


def compare_grids(method, store, count):
    """Cells of a grid sharded over one axis of the mesh and clients over the other."""
    rates = {"client_lr": (0.0, 0.1, 0.2), "server_lr": (0.1, 1.0)}
    expected, expected_infos = lur.run_grid(
        method, initial_params(), store, **rates, layout="sequential", devices=1, **ROUNDS
    )
    for text, devices in GRIDS[:count]:
        states, infos = lur.run_grid(method, initial_params(), store, **rates, layout=text, devices=devices, **ROUNDS)
        for name, leaf in states.params.items():
            np.testing.assert_allclose(leaf, expected.params[name], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(infos.client_losses, expected_infos.client_losses, rtol=1e-10)
        print(text, devices)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    method = lur.local_update(loss, lur.theta.fedavg(K), optax.sgd)
    for check in (compare_model_axis, compare_grids):
        check(method, in_memory(clients()), 1 if sys.argv[1:] == ["first"] else None)
