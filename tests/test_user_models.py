"""Models of flax linen, flax nnx, Equinox and plain dicts train alike; losses get random keys with their batches."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

import lur

M, K, B = 3, 2, 4


def batches(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "x": rng.normal(size=(M, K, B, 5)).astype(np.float32),
        "y": rng.integers(0, 3, (M, K, B)).astype(np.int32),
    }


def weights(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "hidden": {"kernel": rng.normal(size=(5, 6)).astype(np.float32), "bias": np.zeros(6, np.float32)},
        "logits": {"kernel": rng.normal(size=(6, 3)).astype(np.float32), "bias": np.zeros(3, np.float32)},
    }


def cross_entropy(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def dict_model():
    def loss(params, batch):
        hidden = jax.nn.relu(batch["x"] @ params["hidden"]["kernel"] + params["hidden"]["bias"])
        return cross_entropy(hidden @ params["logits"]["kernel"] + params["logits"]["bias"], batch["y"])

    return loss, weights()


class LinenNet(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(3, name="logits")(linen.relu(linen.Dense(6, name="hidden")(x)))


def linen_model():
    net = LinenNet()
    return lambda params, batch: cross_entropy(net.apply(params, batch["x"]), batch["y"]), {"params": weights()}


class NnxNet(nnx.Module):
    def __init__(self, rngs):
        self.hidden, self.logits = nnx.Linear(5, 6, rngs=rngs), nnx.Linear(6, 3, rngs=rngs)
        self.dropout = nnx.Dropout(0.0, rngs=rngs)

    def __call__(self, x):
        return self.logits(self.dropout(nnx.relu(self.hidden(x))))


def nnx_model():
    structure, params, other_state = nnx.split(NnxNet(nnx.Rngs(0)), nnx.Param, ...)
    params = jax.tree.unflatten(
        jax.tree.structure(params),
        [weights()[name][kind] for name in ("hidden", "logits") for kind in ("bias", "kernel")],
    )

    def loss(params, batch):
        return cross_entropy(nnx.merge(structure, params, other_state)(batch["x"]), batch["y"])

    return loss, params


def equinox_model():
    eqx = pytest.importorskip("equinox")
    mlp = eqx.nn.MLP(5, 3, width_size=6, depth=1, key=jax.random.key(0))
    params, static = eqx.partition(mlp, eqx.is_inexact_array)
    given = [leaf for name in ("hidden", "logits") for leaf in (weights()[name]["kernel"].T, weights()[name]["bias"])]
    params = jax.tree.unflatten(jax.tree.structure(params), given)

    def loss(params, batch):
        return cross_entropy(jax.vmap(eqx.combine(params, static))(batch["x"]), batch["y"])

    return loss, params


def rounds_of(loss, params, data, count=2):
    """The state and the losses after some rounds of FedAvg on the same batches."""
    method = lur.local_update(loss, lur.theta.fedavg(K))
    state, losses = method.init(params, client_lr=0.1, server_lr=0.1), []
    for _ in range(count):
        state, info = method.round(state, data)
        losses.append(float(info.loss))
    return state, losses


@pytest.mark.parametrize("model", [linen_model, nnx_model, equinox_model])
def test_a_model_of_a_library_trains_like_plain_dicts(model):
    expected, expected_losses = rounds_of(*dict_model(), batches())
    loss, params = model()
    state, losses = rounds_of(loss, params, batches())
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    assert jax.tree.structure(state.params) == jax.tree.structure(params)
    norms = [
        np.sort([float(jnp.linalg.norm(leaf)) for leaf in jax.tree.leaves(tree)])
        for tree in (state.params, expected.params)
    ]
    np.testing.assert_allclose(*norms, rtol=1e-5)


def noisy_loss(params, batch):
    """The squared distance to the noise that the batch's key draws."""
    noise = jax.random.normal(batch["key"], params.shape)
    return jnp.sum((params - noise) ** 2) + 0 * batch["x"].mean()


def test_every_step_of_every_client_gets_its_own_key():
    keys = jax.random.split(jax.random.key(0), (M, K))
    _, losses = rounds_of(noisy_loss, jnp.zeros(2), {"x": batches()["x"], "key": keys}, count=1)
    first = jax.vmap(lambda key: jnp.sum(jax.random.normal(key, (2,)) ** 2))(keys[:, 0])
    np.testing.assert_allclose(losses[0], first.mean(), rtol=1e-6)
    update = lur.inner_loop(
        noisy_loss, jnp.zeros(2), {"x": batches()["x"][0], "key": keys[0]}, 0.0, lur.theta.fedavg(K)
    )[0]
    noise = jax.vmap(lambda key: jax.random.normal(key, (2,)))(keys[0])
    np.testing.assert_allclose(update, -2 * noise.sum(0), rtol=1e-5)


def test_a_view_gives_every_mini_batch_a_key():
    data = batches()
    store = lur.data.in_memory((str(i), {"x": data["x"][i].reshape(-1, 5)}) for i in range(M))
    method = lur.local_update(noisy_loss, lur.theta.fedavg(K))

    def view(key, examples):
        return {**examples, "key": key}

    def losses(seed):
        start = method.init(jnp.zeros(2), client_lr=0.0, server_lr=0.0)
        return lur.run(method, start, store, rounds=4, clients_per_round=2, batch_size=B, seed=seed, view=view)[1].loss

    assert len(np.unique(losses(0))) == 4  # the model does not move, so the noise does
    np.testing.assert_array_equal(losses(0), losses(0))
    assert not np.intersect1d(losses(0), losses(1)).size


def mixed_params():
    return {
        "hidden": jnp.asarray(weights()["hidden"]["kernel"], jnp.bfloat16),
        "logits": jnp.asarray(weights()["logits"]["kernel"]),
    }


def mixed_loss(params, batch):
    hidden = jax.nn.relu(batch["x"].astype(jnp.bfloat16) @ params["hidden"])
    return cross_entropy(hidden.astype(jnp.float32) @ params["logits"], batch["y"])


@pytest.mark.promote
@pytest.mark.parametrize("layout", ["vmap", "sequential", "chunked:2"])
def test_parameters_of_mixed_dtypes_keep_their_dtypes(layout):
    method = lur.local_update(mixed_loss, lur.theta.fedavg(K))
    start = method.init(mixed_params(), client_lr=0.1, server_lr=0.1)
    state, info = method.round(start, batches(), layout=layout)
    assert jax.tree.map(lambda leaf: leaf.dtype, state.params) == {"hidden": jnp.bfloat16, "logits": jnp.float32}
    assert (info.loss.dtype, info.update_norm.dtype, state.client_lr.dtype) == (jnp.float32,) * 3
    wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), mixed_params())
    reference = lur.local_update(
        lambda params, batch: mixed_loss({**params, "hidden": params["hidden"].astype(jnp.bfloat16)}, batch),
        lur.theta.fedavg(K),
    )
    expected, _ = reference.round(reference.init(wide, client_lr=0.1, server_lr=0.1), batches())
    np.testing.assert_allclose(state.params["logits"], expected.params["logits"], rtol=0.02, atol=0.02)
    moved = np.abs(np.asarray(state.params["hidden"] - start.params["hidden"], np.float32)).max()
    assert moved > 0


@pytest.mark.promote
def test_a_run_and_a_grid_keep_mixed_dtypes():
    data = batches()
    store = lur.data.in_memory(
        (str(i), {"x": data["x"][i].reshape(-1, 5), "y": data["y"][i].reshape(-1)}) for i in range(M)
    )
    method = lur.local_update(mixed_loss, lur.theta.fedavg(K))
    sizes = {"rounds": 2, "clients_per_round": 2, "batch_size": B}
    state, info = lur.run(method, method.init(mixed_params(), 0.1, 0.1), store, **sizes)
    states, infos = lur.run_grid(method, mixed_params(), store, client_lr=[0.1], server_lr=[0.1], **sizes)
    for params in (state.params, states.params):
        assert (params["hidden"].dtype, params["logits"].dtype) == (jnp.bfloat16, jnp.float32)
    np.testing.assert_allclose(np.ravel(infos.loss), info.loss, rtol=1e-2)


def test_integer_leaves_are_refused_with_advice():
    method = lur.local_update(mixed_loss, lur.theta.fedavg(K))
    params = {**mixed_params(), "count": jnp.zeros((), jnp.int32)}
    with pytest.raises(ValueError, match=r"params must be floating point, got int32 at \['count'\]") as error:
        method.init(params, client_lr=0.1, server_lr=0.1)
    assert "equinox.partition" in str(error.value)
    assert "nnx.split" in str(error.value)
