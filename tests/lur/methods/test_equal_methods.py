"""Methods compare by value: equal settings share one compiled program, different methods never do."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lur
from lur.methods.method import ClientOutput, Method
from lur.methods.server import InitServer, ServerUpdate
from tests.lur.numpy_loop import random_store


def loss(w, batch):
    return ((batch["x"] @ w - batch["y"]) ** 2).mean() / 2


def sent_gradient(params, batches, gamma):
    batch = {name: value[0] for name, value in batches.items()}
    return jax.grad(loss)(params, batch), loss(params, batch)


def momentum():
    return partial(optax.sgd, momentum=0.9)


MAKERS = {
    "fedavg": lambda loss: lur.local_update(loss, lur.theta.fedavg(3)),
    "settings": lambda loss: lur.local_update(loss, [1, 1, 1], optax.adam, send="delta", prox=0.1, loss_on="all"),
    "yogi": lambda loss: lur.local_update(loss, [1, 0, 1], lur.optimizers.yogi),
    "decay": lambda loss: lur.local_update(loss, [1, 1], decay=lur.decay.plateau(window=2)),
    "partial": lambda loss: lur.local_update(loss, [1, 1], momentum(), client=momentum()),
    "maml": lambda loss: lur.maml.maml(loss, 2),
    "extrapolation": lambda loss: lur.extrapolation.extrapolated_update(loss, [1, 1]),
    "maml, query": lambda loss: lur.maml.maml(loss, 2, query="separate"),
    "maml, first order": lambda loss: lur.maml.maml(loss, 2, order=1),
    "fednova": lambda loss: lur.methods.fednova(loss, 2),
    "fednova, momentum": lambda loss: lur.methods.fednova(loss, 2, momentum=0.9),
    "mime": lambda loss: lur.methods.mime(loss, 2, momentum()),
    "mimelite": lambda loss: lur.methods.mimelite(loss, 2, momentum()),
    "diloco": lambda loss: lur.methods.diloco(loss, 2),
    "diloco, reset": lambda loss: lur.methods.diloco(loss, 2, inner_state="reset"),
    "diloco, momentum": lambda loss: lur.methods.diloco(loss, 2, client=momentum()),
    "fedexp": lambda loss: lur.methods.fedexp(loss, 2),
    "fedlin": lambda loss: lur.methods.fedlin(loss, 2),
    "reptile": lambda loss: lur.methods.reptile(loss, 2),
    "fedprox": lambda loss: lur.methods.fedprox(loss, 2, 0.5),
    "from_client": lambda loss: lur.from_client(sent_gradient, local_steps=2),
}


@pytest.mark.parametrize("name", MAKERS)
def test_equal_settings_are_equal(name):
    first, second = MAKERS[name](loss), MAKERS[name](loss)
    assert first == second
    assert hash(first) == hash(second)


def test_different_settings_are_different():
    methods = [
        *(make(loss) for make in MAKERS.values()),
        lur.local_update(loss, lur.theta.fedavg(2)),
        lur.local_update(loss, lur.theta.fedavg(3), prox=0.1),
        lur.local_update(loss, lur.theta.fedavg(3), send="delta"),
        lur.local_update(loss, lur.theta.fedavg(3), loss_on="all"),
        lur.local_update(loss, lur.theta.fedavg(3), client=optax.adam),
        lur.local_update(loss, [1, 1], partial(optax.sgd, momentum=0.8), client=momentum()),
        lur.local_update(lambda w, batch: loss(w, batch), lur.theta.fedavg(3)),
    ]
    assert len({*methods}) == len(methods)


@pytest.mark.promote
@pytest.mark.parametrize("name", ["fedavg", "settings", "partial"])
def test_equal_methods_share_their_programs(name):
    """A method made anew neither traces the loss again in `round` nor in `lur.run` and `lur.run_grid`."""
    traces = []

    def counted(w, batch):
        traces.append(1)
        return loss(w, batch)

    store = random_store(0, (3, 4, 2), dtype=np.float32)
    batches = {"x": np.ones((2, 3, 2, 3), np.float32), "y": np.ones((2, 3, 2), np.float32)}
    params, options = np.ones(3, np.float32), {"rounds": 2, "clients_per_round": 2, "batch_size": 2}
    counts = []
    for _ in range(3):
        method = MAKERS[name](counted)
        method.round(method.init(params, 0.1, 0.5), batches)
        lur.run(method, method.init(params, 0.1, 0.5), store, layout="vmap", **options)
        lur.run_grid(method, params, store, client_lr=(0.1, 0.2), server_lr=(0.5,), **options)
        counts.append(len(traces))
    assert counts[0] > 0
    assert counts == [counts[0]] * 3


class Towards(NamedTuple):
    """A client that sends its model."""

    scale: float

    def __call__(self, broadcast, client_state, batches):
        return ClientOutput(self.scale * broadcast.params, client_state, jnp.float32(1))


class Away(NamedTuple):
    """Another client with the same fields."""

    scale: float

    def __call__(self, broadcast, client_state, batches):
        return ClientOutput(-self.scale * broadcast.params, client_state, jnp.float32(2))


def test_clients_with_equal_fields_are_different_methods():
    """Tuples of different types compare equal; a shared program would be the other method's."""
    first, second = (
        Method(InitServer(optax.sgd, None, 1), client, ServerUpdate(optax.sgd, None), 1)
        for client in (Towards(0.5), Away(0.5))
    )
    assert first != second
    store = random_store(0, (3, 4), dtype=np.float32)
    for method, factor in ((first, 0.5), (second, 1.5)):
        state = method.init(jnp.ones(2), 0.1, 1.0)
        np.testing.assert_allclose(method.round(state, jnp.ones((2, 1, 1)))[0].params, factor)
        options = {"rounds": 1, "clients_per_round": 2, "batch_size": 1}
        np.testing.assert_allclose(lur.run(method, state, store, **options)[0].params, factor)
        states, _ = lur.run_grid(method, jnp.ones(2), store, client_lr=(0.1,), server_lr=(1.0,), **options)
        np.testing.assert_allclose(states.params[0, 0, 0], factor)
