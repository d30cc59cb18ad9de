"""Runs on meshes with two axes, in a process with eight CPU devices: `python -m tests.lur.parallel.mesh_runs`.

Prints what was compared; any disagreement ends it. With ``first`` only the first of each kind is.
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
    rng = np.random.default_rng(0)
    for i in range(N):
        n = int(rng.integers(1, 5))
        yield f"client {i}", {"x": rng.normal(size=(n, D)), "y": rng.normal(size=(n, OUT))}


def loss(params, batch):
    return jnp.square(jnp.tanh(batch["x"] @ params["first"]) @ params["second"] - batch["y"]).mean()


def start():
    rng = np.random.default_rng(1)
    return {"first": jnp.asarray(rng.normal(size=(D, 64))), "second": jnp.asarray(rng.normal(size=(64, OUT)) / 8)}


MODELS = ("sharded,model:2", "sharded:vmap,model:4", "sharded,model:8")
CELLS = (("sharded", 2), ("sharded:vmap", 4), ("sharded:chunked:2", 1), ("sequential", 6))


def model_axis(algo, store, count):
    """Models on two and four devices, clients over the others: the run of one device, and parted as annotated."""
    expected, infos = lur.run(algo, algo.init(start(), 0.1, 0.5), store, layout="sequential", **ROUNDS)
    for text in MODELS[:count]:
        layout = layouts.parse_layout(text)
        state = algo.init(start(), 0.1, 0.5)
        state = jax.device_put(state, mesh.param_shardings(state, layout))
        data = resident(store, mesh.replicated(layout))
        found, seen = lur.run(algo, state, store, layout=layout, data=data, **ROUNDS)
        for name, leaf in found.params.items():
            np.testing.assert_allclose(leaf, expected.params[name], rtol=1e-10, atol=1e-12)
            held = {shard.data.size for shard in leaf.addressable_shards}
            assert held == {leaf.size // layout.model}, (text, name, held, leaf.sharding)
        np.testing.assert_allclose(seen.loss, infos.loss, rtol=1e-10)
        np.testing.assert_allclose(seen.client_norms, infos.client_norms, rtol=1e-10)
        print(text)


def cells_and_clients(algo, store, count):
    """Cells over one axis of the mesh, clients over the other."""
    rates = {"client_lr": (0.0, 0.1, 0.2), "server_lr": (0.1, 1.0)}
    expected, infos = lur.run_grid(algo, start(), store, **rates, layout="sequential", devices=1, **ROUNDS)
    for text, devices in CELLS[:count]:
        found, seen = lur.run_grid(algo, start(), store, **rates, layout=text, devices=devices, **ROUNDS)
        for name, leaf in found.params.items():
            np.testing.assert_allclose(leaf, expected.params[name], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(seen.client_losses, infos.client_losses, rtol=1e-10)
        print(text, devices)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    method = lur.local_update(loss, lur.theta.fedavg(K), optax.sgd)
    for check in (model_axis, cells_and_clients):
        check(method, in_memory(clients()), 1 if sys.argv[1:] == ["first"] else None)
