"""Algorithms 1, 2 and 4 as numpy loops over clients, local steps and examples, with gradients and optimisers by hand.

The problem is regularised least squares. Its loss is nan for a mini-batch without examples and its regulariser has a
gradient there, so a padding step that counts as a step shows.
"""

from functools import partial

import jax.numpy as jnp
import numpy as np
import optax

from lur.data.sampling import client_key, round_key, sample_clients, shuffled_epochs, with_replacement
from lur.data.writer import in_memory

L2 = 0.1
"""Strength of the regulariser."""


def loss(w, batch):
    """Regularised least squares, the mean over the examples in the mask."""
    each = (batch["x"] @ w - batch["y"]) ** 2 / 2
    if "mask" in batch:
        mask = batch["mask"].astype(each.dtype)
        value = (each * mask).sum() / mask.sum()
    else:
        value = each.mean()
    return value + jnp.asarray(L2 / 2, w.dtype) * (w**2).sum()


def value(w, x, y):
    return np.mean((x @ w - y) ** 2) / 2 + L2 / 2 * (w @ w)


def gradient(w, x, y):
    return x.T @ (x @ w - y) / len(y) + L2 * w


def hessian(x):
    return x.T @ x / len(x) + L2 * np.eye(x.shape[1])


def random_store(seed, sizes, d=3, dtype=np.float64):
    """A store whose clients have the given numbers of examples."""
    rng = np.random.default_rng(seed)
    return in_memory(
        (f"client {i}", {"x": rng.normal(size=(n, d)).astype(dtype), "y": rng.normal(size=n).astype(dtype)})
        for i, n in enumerate(sizes)
    )


FACTORIES = {
    "sgd": optax.sgd,
    "momentum": partial(optax.sgd, momentum=0.9),
    "nesterov": partial(optax.sgd, momentum=0.9, nesterov=True),
    "adam": partial(optax.adam, b1=0.8, b2=0.95, eps=1e-3),
    "adamw": partial(optax.adamw, b1=0.8, b2=0.95, eps=1e-3, weight_decay=0.3),
}
"""The optimisers below as optax factories of the learning rate."""


class Optimizer:
    """An optimiser as in its paper: SGD, Polyak's and Nesterov's momentum (Sutskever et al., 2013), Adam, AdamW."""

    def __init__(self, name):
        self.name, self.m, self.v, self.t = name, 0.0, 0.0, 0

    def step(self, w, g, rate):
        """The model after one step."""
        self.t += 1
        if self.name == "sgd":
            return w - rate * g
        if self.name in ("momentum", "nesterov"):
            self.m = 0.9 * self.m + g
            return w - rate * (self.m if self.name == "momentum" else g + 0.9 * self.m)
        self.m = 0.8 * self.m + 0.2 * g
        self.v = 0.95 * self.v + 0.05 * g**2
        direction = self.m / (1 - 0.8**self.t) / (np.sqrt(self.v / (1 - 0.95**self.t)) + 1e-3)
        return w - rate * (direction + (0.3 * w if self.name == "adamw" else 0.0))


def client(w, batches, gamma, theta, *, optimizer="sgd", send="gradients", prox=0.0, loss_on="first"):
    """InnerLoop over a client's own mini-batches, a list of (x, y): the update and the loss before training."""
    y, steps, total = w, Optimizer(optimizer), np.zeros_like(w)
    for k, batch in enumerate(batches):
        g = gradient(y, *batch)
        pulled = g + prox * (y - w)
        total = total + theta[k] * (g if send == "loss_gradients" else pulled)
        y = steps.step(y, pulled, np.broadcast_to(gamma, len(theta))[k])
    losses = [value(w, *batch) for batch in batches]
    return w - y if send == "delta" else total, losses[0] if loss_on == "first" else np.mean(losses)


def maml_client(w, batches, gamma):
    """K-MAML with the support batches as query: the chain rule through the local steps."""
    y, jacobian = w, np.eye(len(w))
    for x, target in batches:
        jacobian = (np.eye(len(w)) - gamma * hessian(x)) @ jacobian
        y = y - gamma * gradient(y, x, target)
    after = np.mean([gradient(y, *batch) for batch in batches], axis=0)
    return jacobian.T @ after, value(w, *batches[0])


def own_batches(store, key, i, K, B, epochs):
    """The mini-batches that client i draws in a round; with epochs, only those with examples, without padding."""
    examples = store.client(i)
    n, key = len(examples["y"]), client_key(key, i)
    if epochs is None:
        rows = np.asarray(with_replacement(key, n, K, B).positions)
        return [(examples["x"][row], examples["y"][row]) for row in rows]
    positions, mask = map(np.asarray, shuffled_epochs(key, n, epochs, B, int(store.sizes.max())))
    rows = [row[kept] for row, kept in zip(positions, mask, strict=True) if kept.any()]
    return [(examples["x"][row], examples["y"][row]) for row in rows]


def run(store, w, client_update, *, rounds, M, K, B, eta, seed=0, server="sgd", weighting="uniform", epochs=None):
    """Algorithm 1 with ``client_update(w, batches) -> (update, loss)``.

    Returns the model, and each round's mean loss, client losses, client norms and norm of the mean update.
    """
    steps, infos = Optimizer(server), []
    for t in range(rounds):
        key = round_key(seed, t)
        cohort = [int(i) for i in sample_clients(key, store.clients, M)]
        outputs = [client_update(w, own_batches(store, key, i, K, B, epochs)) for i in cohort]
        weights = np.array([float(store.sizes[i]) if weighting == "examples" else 1.0 for i in cohort])
        weights /= weights.sum()
        losses, norms = [loss for _, loss in outputs], [np.linalg.norm(update) for update, _ in outputs]
        q = sum(weight * update for weight, (update, _) in zip(weights, outputs, strict=True))
        w = steps.step(w, q, eta)
        infos.append((weights @ losses, losses, norms, np.linalg.norm(q)))
    return w, [np.array(column) for column in zip(*infos, strict=True)]
