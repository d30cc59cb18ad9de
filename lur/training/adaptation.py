r"""Evaluation after adaptation: each client takes k local steps on its own examples and is tested on others of its own.

With k = 0, 1, 5, ... steps this is the personalised accuracy of a federated model, and on few-shot tasks the accuracy
of meta-learning (Finn et al., 2017). All clients of a chunk adapt in one compiled program.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from lur import _checks
from lur.data.gather import gather
from lur.data.prefetch import prefetched
from lur.data.sampling import client_key, round_key, with_replacement
from lur.data.splits import clients_in
from lur.data.store import Store
from lur.methods.compiled import jit_per_settings
from lur.methods.optimizers import Optimizer, optimizer_init, optimizer_step
from lur.parallel.layouts import choose_layout
from lur.tasks.task import Task
from lur.training.evaluation import ClientTotals, Evaluation, summary

CHUNK_BYTES = 2**26
"""Bytes of examples that move to the device at once, if more than one client's fit."""


class Adaptation(NamedTuple):
    """How a client adapts.

    Attributes:
      steps: the numbers of local steps after which it is tested, increasing.
      optimizer: the client optimiser.
      batch_size: B, the examples per step, drawn with replacement; None for all of the client's examples in each step.
    """

    steps: tuple[int, ...]
    optimizer: Optimizer
    batch_size: int | None


class AdaptingClients(NamedTuple):
    """The examples of some clients, with a leading axis of clients.

    Attributes:
      support: the examples to adapt to, with axes (clients, K, B), or (clients, n) if every step takes all of them.
      support_mask: which of (clients, n) count; None with mini-batches.
      query: the test examples, with axes (clients, T).
      query_mask: which of them count.
      keys: a random key per client, for augmentation.
    """

    support: dict[str, Any]
    support_mask: Bool[np.ndarray, "clients n"] | None
    query: dict[str, Any]
    query_mask: Bool[np.ndarray, "clients T"]
    keys: Key[Array, "clients"]


def evaluate_adapted(
    task: Task,
    params: PyTree,
    client_lr: float,
    *,
    steps: Sequence[int] = (0, 1, 5, 10),
    optimizer: Optimizer = optax.sgd,
    batch_size: int | None = None,
    on: Literal["test", "clients"] = "test",
    clients: Sequence[int] | None = None,
    seed: int = 0,
) -> dict[int, Evaluation]:
    """Return the evaluation on the clients' test examples after each number of local steps from a model.

    Args:
      task: a task with test examples.
      params: the model that all clients start from.
      client_lr: gamma of the local steps.
      steps: the numbers of local steps; 0 is the model itself.
      optimizer: the client optimiser, any optax factory of a learning rate.
      batch_size: the number of examples per step, drawn with replacement; by default all of the client's training
        examples in each step, as in few-shot learning.
      on: ``test``, the clients that are trained on; or ``clients``, held-out clients, which adapt to examples of their
        own.
      clients: adapt these clients only, by their indices among those with test examples; by default all.
      seed: it determines the mini-batches.
    """
    if isinstance(steps, str) or not len(steps) or any(isinstance(k, bool) or k != int(k) or k < 0 for k in steps):
        raise ValueError(f"steps must be integers >= 0, at least one, got {steps!r}")
    batch_size = None if batch_size is None else _checks.positive_integer("batch_size", batch_size)
    rate = _checks.param_rate("client_lr", client_lr, params)
    own, test = adaptation_data(task, on)
    adaptation = Adaptation(tuple(sorted({int(k) for k in steps})), optimizer, batch_size)
    places = np.arange(test.clients) if clients is None else np.asarray(clients, np.int64)
    if places.ndim != 1 or not len(places) or places.min() < 0 or places.max() >= test.clients:
        raise ValueError(f"clients must be indices from 0 to {test.clients - 1}, at least one, got {clients!r}")
    layout = choose_layout(params, len(places), "auto").layout
    compiled = partial(
        _adapt_and_test, task.loss, task.view, task.eval_view, task.outcomes, adaptation, layout.chunk_size
    )
    found: list[list[np.ndarray]] = [[] for _ in adaptation.steps]
    for count, data in prefetched(lambda chunk: chunk(), client_chunks(own, test, places, adaptation, seed)):
        for after, totals in zip(found, compiled(params, rate, data), strict=True):
            after.append(np.asarray(totals, np.float64)[:count].T)
    n = test.sizes[places].astype(np.float64)

    def evaluation(parts: list[np.ndarray]) -> Evaluation:
        loss, correct, answers = np.concatenate(parts, axis=1)
        return summary(ClientTotals(loss, correct, answers, n), on)

    return {k: evaluation(parts) for k, parts in zip(adaptation.steps, found, strict=True)}


def adaptation_data(task: Task, on: str) -> tuple[Store, Store]:
    """Return the examples that the clients adapt to, and those that they are tested on."""
    if on not in ("test", "clients"):
        raise ValueError(f"on must be 'test' or 'clients', got {on!r}")
    test = task.split(on)
    if on == "test":
        return task.store, test
    if task.held_out_test is None or task.held_out is None:
        raise ValueError(f"the held-out clients of the task {task.name} have no test examples to adapt for")
    return task.held_out, test


def client_chunks(
    own: Store, test: Store, places: Int[np.ndarray, "clients"], adaptation: Adaptation, seed: int
) -> Iterator[Any]:
    """Yield functions that read equally many clients each, all padded alike; each returns (count, AdaptingClients)."""
    index = clients_in(test, own)
    key, B, K = round_key(np.uint32(seed), 0), adaptation.batch_size, adaptation.steps[-1]
    n_max, T = int(own.sizes[index[places]].max()), int(test.sizes[places].max())
    examples = T + (n_max if B is None else K * B)
    bytes_per_example = sum(leaf.nbytes for leaf in jax.tree.leaves(padded_examples(test, np.zeros((1, 1), np.int64))))
    size = min(len(places), max(CHUNK_BYTES // max(examples * bytes_per_example, 1), 1))

    def read(chosen: Int[np.ndarray, "size"], count: int) -> tuple[int, AdaptingClients]:
        clients = index[chosen]
        keys = jax.vmap(lambda i: client_key(key, i))(jnp.asarray(clients, jnp.int32))
        starts, sizes = own.offsets[clients], own.sizes[clients]
        if B is None:
            positions = np.arange(n_max)
            support_mask = positions < sizes[:, None]
            rows = starts[:, None] + np.minimum(positions, sizes[:, None] - 1)
        else:
            drawn = _draw(K, B, keys, jnp.asarray(sizes, jnp.int32))
            support_mask, rows = None, starts[:, None, None] + np.asarray(drawn)
        query_sizes = test.sizes[chosen][:, None]
        query_mask = np.arange(T) < query_sizes
        query = test.offsets[chosen][:, None] + np.minimum(np.arange(T), query_sizes - 1)
        return count, AdaptingClients(
            padded_examples(own, rows), support_mask, padded_examples(test, query), query_mask, keys
        )

    for first in range(0, len(places), size):
        chosen = places[first : first + size]
        yield partial(read, np.pad(chosen, (0, size - len(chosen)), mode="edge"), len(chosen))


def padded_examples(store: Store, rows: Int[np.ndarray, "..."]) -> dict[str, Any]:
    """Return examples by their rows in the store."""
    return gather(dict(store.features), store.widths, rows)


@jit_per_settings(2)
def _draw(K: int, B: int, keys: Key[Array, "clients"], sizes: Int[Array, "clients"]) -> Int[Array, "clients K B"]:
    return jax.vmap(lambda key, n: with_replacement(key, n, K, B).positions)(keys, sizes)


@jit_per_settings(6)
def _adapt_and_test(
    loss_fn: Any,
    view: Any,
    eval_view: Any,
    outcomes: Any,
    adaptation: Adaptation,
    chunk_size: int | None,
    params: PyTree,
    rate: Float[Array, ""],
    data: AdaptingClients,
) -> list[Float[Array, "clients 3"]]:
    """Return each client's sums of loss, right answers and answers, after each number of steps."""

    def test(y: PyTree, client: AdaptingClients) -> Float[Array, "3"]:
        found = outcomes(y, eval_view(client.query))
        return jnp.stack([jnp.where(client.query_mask, leaf, jnp.zeros_like(leaf)).sum() for leaf in found])

    def adapt(client: AdaptingClients) -> list[Float[Array, "3"]]:
        def local_step(carry: Any, step: Any) -> tuple[Any, None]:
            y, state = carry
            k, examples = step
            own = client.support if examples is None else examples
            batch = view(jax.random.fold_in(client.keys, k), own)
            if client.support_mask is not None:
                batch = {**batch, "mask": client.support_mask}
            gradient = jax.grad(loss_fn)(y, batch)
            return optimizer_step(adaptation.optimizer, rate, gradient, state, y), None

        carry, done, found = (params, optimizer_init(adaptation.optimizer, rate, params)), 0, []
        for k in adaptation.steps:
            part = None if client.support_mask is not None else jax.tree.map(lambda x: x[done:k], client.support)  # noqa: B023
            carry, _ = jax.lax.scan(local_step, carry, (jnp.arange(done, k, dtype=jnp.uint32), part))
            found.append(test(carry[0], client))
            done = k
        return found

    return jax.lax.map(adapt, data, batch_size=chunk_size or len(data.query_mask))
