"""A toy method whose clients keep a state, its numpy loop, and its runs on several devices or processes.

``python -m tests.lur.engine.client_state_runs devices FILE`` runs it on all devices of this process and checks every
layout; ``... process FILE PORT INDEX`` is one of two processes. Both save the client states of the sharded run.
"""

import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import lur
from lur.data.sampling import round_key, sample_clients
from lur.engine.grid import advance_grid, init_grid
from lur.methods.method import Batches, Broadcast, ClientOutput, Method
from lur.methods.server import InitServer, ServerUpdate
from tests.lur.numpy_loop import own_batches, random_store

SIZES, D, K, B, M, ROUNDS, SEED = (1, 3, 2, 5, 4, 1, 2, 6, 3, 2, 4), 3, 2, 2, 3, 4, 7
N = len(SIZES)
GAMMA, ETA = 0.25, 0.5
PAYLOAD = np.array([0x7FC12345, 0xFFC54321], np.uint32)
"""Bits of two nans."""


class CountingClient(NamedTuple):
    """A client that counts its rounds and keeps a vector of what it saw and received.

    Attributes:
      memory: how much of the vector it keeps.
    """

    memory: float = 0.5

    def __call__(self, broadcast: Broadcast, client_state, batches: Batches) -> ClientOutput:
        x = broadcast.params
        total, _ = batches.scan(lambda total, batch: (total + batch["x"].mean(axis=0), None), jnp.zeros_like(x))
        mean = total / K
        vector = self.memory * client_state["vector"] + mean - broadcast.client_lr * x
        count = client_state["count"] + 1
        state = {
            **client_state,
            "vector": vector,
            "count": count,
            "flag": ~client_state["flag"],
            "key": client_state["key"] * jnp.uint32(1664525) + count.astype(jnp.uint32),
        }
        return ClientOutput(x - mean + 0.125 * vector, state, jnp.sum((x - mean) ** 2) / 2)


def init_client(params):
    """The state of a client that has not taken part: -0.0, nans with a payload, an integer, a flag and a key."""
    return {
        "vector": -jnp.zeros_like(params),
        "payload": jnp.asarray(PAYLOAD.view(np.float32)),
        "count": jnp.int32(0),
        "flag": jnp.bool_(False),
        "key": jnp.array([0xFFFFFFFF, 12345], jnp.uint32),
    }


METHOD = Method(InitServer(optax.sgd, None, K), CountingClient(), ServerUpdate(optax.sgd, None), K, init_client)
START = np.array([1.0, -2.0, 0.5])
RUN = {"clients_per_round": M, "batch_size": B, "seed": SEED, "capacity": ROUNDS}


def store():
    return random_store(0, SIZES, D)


def different_states(xp=jnp):
    """States that differ from client to client, all of them with bits that arithmetic would lose."""
    rng = np.random.default_rng(1)
    states = {
        "vector": np.where(rng.random((N, D)) < 0.3, -0.0, rng.normal(size=(N, D))),
        "payload": (PAYLOAD + np.arange(N, dtype=np.uint32)[:, None]).view(np.float32),
        "count": rng.integers(-5, 5, N, dtype=np.int32),
        "flag": rng.random(N) < 0.5,
        "key": rng.integers(0, 2**32, (N, 2), dtype=np.uint32),
    }
    return jax.tree.map(xp.asarray, states)


def start(gamma=GAMMA, eta=ETA, xp=jnp):
    return METHOD.init(START, gamma, eta, clients=N)._replace(clients=different_states(xp))


def numpy_client(x, state, mean, gamma):
    """What the toy's client does: its update and, in place, its new state."""
    state["vector"] = 0.5 * state["vector"] + mean - gamma * x
    state["count"] = state["count"] + np.int32(1)
    state["flag"] = ~state["flag"]
    with np.errstate(over="ignore"):
        state["key"] = state["key"] * np.uint32(1664525) + state["count"].astype(np.uint32)
    return x - mean + 0.125 * state["vector"]


def numpy_loop(rounds=ROUNDS, gamma=GAMMA, eta=ETA, seed=SEED, weighting="uniform"):
    """The model, the states of all clients, and who took part, after a loop over rounds and clients."""
    data, x, states, took_part = store(), START, different_states(np), set()
    states = {name: np.array(leaf) for name, leaf in states.items()}
    for t in range(rounds):
        key = round_key(seed, t)
        cohort = [int(i) for i in sample_clients(key, N, M)]
        updates = []
        for i in cohort:
            mean = np.mean([own.mean(axis=0) for own, _ in own_batches(data, key, i, K, B, None)], axis=0)
            own_state = {name: leaf[i] for name, leaf in states.items()}
            updates.append(numpy_client(x, own_state, mean, gamma))
            for name, leaf in states.items():
                leaf[i] = own_state[name]
        weights = [SIZES[i] if weighting == "examples" else 1 for i in cohort]
        x = x - eta * np.average(updates, axis=0, weights=weights)
        took_part |= {*cohort}
    return x, states, took_part


def bits(tree):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def check(params, clients, expected, rtol=1e-12):
    """The numbers of the numpy loop up to rounding; what is not arithmetic, and who did not take part, bit for bit."""
    x, states, took_part = expected
    np.testing.assert_allclose(params, x, rtol=rtol)
    assert 0 < len(took_part) < N
    absent = np.array([i for i in range(N) if i not in took_part])
    before = different_states(np)
    for name, leaf in states.items():
        found = np.asarray(clients[name])
        assert (found.dtype, found.shape) == (leaf.dtype, leaf.shape), name
        assert found[absent].tobytes() == before[name][absent].tobytes(), name
        if name == "vector":
            np.testing.assert_allclose(found, leaf, rtol=rtol, atol=1e-14)
        else:
            assert found.tobytes() == leaf.tobytes(), name


def check_devices():
    """Every sharded layout, and grids with cells, clients or both over the devices. Returns the states to save."""
    data, expected = store(), numpy_loop()
    saved = None
    for layout in ("sharded", "sharded:vmap", "sharded:chunked:2"):
        for place in (None, "host"):
            state, _ = lur.run(METHOD, start(), data, rounds=ROUNDS, layout=layout, data=place, **RUN)
            check(state.params, state.clients, expected)
            if (layout, place) == ("sharded", "host"):
                saved = state.clients
    state, _ = lur.run(METHOD, start(xp=np), data, rounds=ROUNDS, layout="sharded", **RUN)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(state.clients))
    assert bits(state.clients) == bits(saved)
    cut = start()
    for rounds in (1, ROUNDS - 1):
        cut, _ = lur.run(METHOD, cut, data, rounds=rounds, layout="sharded", data="host", **RUN)
    assert bits(cut.clients) == bits(saved)
    check_grids(data, ({}, {"devices": 2}, {"layout": "sharded"}, {"layout": "sharded:vmap", "devices": 2}))
    return saved


def check_grids(data, variants):
    """A state per cell: each cell is its own numpy loop."""
    rates = {"client_lr": (0.0, GAMMA, 0.5), "server_lr": (ETA,)}
    options = {name: value for name, value in RUN.items() if name != "seed"}
    for variant in variants:
        states = init_grid(METHOD, START, *rates.values(), seeds=2, clients=N)
        repeated = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (2, 3, *leaf.shape)), different_states())
        states = states._replace(clients=repeated)
        states, _ = advance_grid(METHOD, states, data, rounds=ROUNDS, seeds=(SEED, 11), **options, **variant)
        states = jax.tree.map(np.asarray, states)  # XLA's slice of an array over devices adds zeros: -0.0 becomes 0.0
        for s, seed in enumerate((SEED, 11)):
            for c, gamma in enumerate(rates["client_lr"]):
                own = jax.tree.map(lambda leaf, s=s, c=c: leaf[s, c], states.clients)
                check(states.params[s, c], own, numpy_loop(gamma=gamma, seed=seed))


def main(kind, path, port="", index="0"):
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    if kind == "process":
        jax.distributed.initialize(f"127.0.0.1:{port}", 2, int(index), cluster_detection_method="deactivate")
        assert jax.process_count() == 2
        state, _ = lur.run(METHOD, start(), store(), rounds=ROUNDS, layout="sharded", **RUN)
        check(np.asarray(state.params), jax.tree.map(np.asarray, state.clients), numpy_loop())
        saved = state.clients
        on_host, _ = lur.run(METHOD, start(xp=np), store(), rounds=ROUNDS, layout="sharded", **RUN)
        assert bits(on_host.clients) == bits(saved)
    else:
        saved = check_devices()
    np.savez(path, **{name: np.asarray(leaf) for name, leaf in saved.items()})
    print("agreed")


if __name__ == "__main__":
    main(*sys.argv[1:])
