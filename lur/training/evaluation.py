r"""The true loss and accuracy, over whole datasets.

.. math:: f(x) = \frac1N \sum_{i=1}^N \frac{1}{n_i} \sum_{z \in D_i} f(x; z)

Each example weighs :math:`1/(N n_i)`. Examples are streamed in large batches in the order of the store; of several
processes each takes its share of the clients.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from lur.data.gather import gather
from lur.data.prefetch import prefetched
from lur.parallel.processes import gathered
from lur.tasks.task import Task


class Evaluation(NamedTuple):
    """f(x), the share of right answers, and how much was looked at."""

    loss: float
    accuracy: float
    clients: int
    examples: int


@partial(jax.jit, static_argnames=("task_outcomes", "plain"))
def totals(task_outcomes: Any, plain: Any, params: PyTree, examples: Any, weights: Any) -> Any:
    """Weighted loss, right answers and answers of a batch; examples of weight 0 are padding."""
    found = task_outcomes(params, plain(examples))
    w = weights.astype(found.loss.dtype)
    real = (weights > 0).astype(found.loss.dtype)
    loss = jnp.where(weights > 0, found.loss, jnp.zeros_like(found.loss))
    return (w * loss).sum(), (real * found.correct).sum(), (real * found.answers).sum()


def totals_of_cells(outcomes: Any, plain: Any, params: PyTree, examples: Any, weights: Any) -> Any:
    """`totals` of many models, stacked along a leading axis."""
    return jax.vmap(lambda own: totals(outcomes, plain, own, examples, weights))(params)


of_cells = jax.jit(totals_of_cells, static_argnames=("outcomes", "plain"))


def evaluate(task: Task, params: PyTree, clients: Sequence[int] | None = None, batch: int = 512) -> Evaluation:
    """f(x) and accuracy over all clients, or over the whole datasets of those given (as a round's, before training)."""
    (found,) = summed(totals, task, params, clients, batch)
    return found


def evaluate_cells(task: Task, params: PyTree, batch: int = 512) -> list[Evaluation]:
    """f(x) and accuracy of many models at once, stacked along a leading axis."""
    return summed(of_cells, task, params, None, batch)


def summed(
    totals: Callable[..., Any], task: Task, params: PyTree, clients: Sequence[int] | None, batch: int
) -> list[Evaluation]:
    """The totals of all batches, of one model or of many."""
    store = task.store
    chosen = np.arange(store.clients) if clients is None else np.asarray(clients, np.int64)
    if chosen.ndim != 1 or not len(chosen) or chosen.min() < 0 or chosen.max() >= store.clients:
        raise ValueError(f"clients must be indices from 0 to {store.clients - 1}, at least one, got {clients!r}")
    if batch < 1:
        raise ValueError(f"batch must be >= 1, got {batch}")
    features, widths = dict(store.features), store.widths
    own = np.array_split(chosen, jax.process_count())[jax.process_index()]
    if jax.process_count() > 1:
        params = jax.tree.map(np.asarray, params)

    def read(rows_weights: tuple[np.ndarray, np.ndarray]) -> tuple[Any, np.ndarray]:
        rows, weights = rows_weights
        return gather(features, widths, rows), weights

    sums, examples = np.zeros((3, 1)), 0
    for data, weights in prefetched(read, batches(store.offsets, own, batch)):
        found = totals(task.outcomes, task.eval_view, params, data, weights * len(own))
        sums = sums + np.asarray(found, np.float64).reshape(3, -1)
        examples += int((weights > 0).sum())
    sums, examples = gathered(sums).sum(0), int(gathered(np.array(examples)).sum())
    return [
        Evaluation(loss / len(chosen), correct / count if count else float("nan"), len(chosen), examples)
        for loss, correct, count in sums.T.tolist()
    ]


def batches(offsets: np.ndarray, chosen: np.ndarray, batch: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows of the store and their weights 1/(N n_i), `batch` at a time; the last filled up with weight 0."""
    rows, weights = np.zeros(0, np.int64), np.zeros(0)
    for i in chosen:
        start, stop = int(offsets[i]), int(offsets[i + 1])
        rows = np.concatenate([rows, np.arange(start, stop)])
        weights = np.concatenate([weights, np.full(stop - start, 1 / (len(chosen) * max(stop - start, 1)))])
        while len(rows) >= batch:
            yield rows[:batch], weights[:batch]
            rows, weights = rows[batch:], weights[batch:]
    if len(rows):
        fill = batch - len(rows)
        yield np.concatenate([rows, np.full(fill, rows[0])]), np.concatenate([weights, np.zeros(fill)])
