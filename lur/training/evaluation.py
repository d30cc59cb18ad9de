r"""The true loss and the accuracy, over whole datasets.

.. math:: f(x) = \frac1N \sum_{i=1}^N \frac{1}{n_i} \sum_{z \in D_i} f(x; z)

Each example has weight :math:`1/(N n_i)`. Examples are streamed in large batches in the order of the store. With
several processes, each evaluates its share of the clients.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from lur.data.gather import gather
from lur.data.prefetch import prefetched
from lur.methods.compiled import jit_per_settings
from lur.parallel.processes import gather_from_processes
from lur.tasks.task import Task


class Evaluation(NamedTuple):
    """The loss and accuracy of a model.

    Attributes:
      loss: f(x).
      accuracy: fraction of right answers; nan for a task without answers.
      clients: number of clients evaluated.
      examples: number of their examples.
    """

    loss: float
    accuracy: float
    clients: int
    examples: int


def evaluate(task: Task, params: PyTree, clients: Sequence[int] | None = None, batch: int = 512) -> Evaluation:
    """f(x) and accuracy of a model.

    Args:
      task: store, model and loss.
      params: the model.
      clients: evaluate over the whole datasets of these clients only; by default over all.
      batch: examples per batch.
    """
    (evaluation,) = _evaluate(_batch_totals, task, params, clients, batch)
    return evaluation


def evaluate_cells(task: Task, params: PyTree, batch: int = 512) -> list[Evaluation]:
    """f(x) and accuracy of many models, stacked along a leading axis.

    Args:
      task: store, model and loss.
      params: the models; each leaf has a leading axis of models.
      batch: examples per batch.
    """
    return _evaluate(_cells_batch_totals, task, params, None, batch)


def batch_totals(outcomes: Any, eval_view: Any, params: PyTree, examples: Any, weights: Any) -> Any:
    """Weighted loss, right answers and answers of a batch; examples of weight 0 are padding."""
    batch = outcomes(params, eval_view(examples))
    w = weights.astype(batch.loss.dtype)
    real = (weights > 0).astype(batch.loss.dtype)
    loss = jnp.where(weights > 0, batch.loss, jnp.zeros_like(batch.loss))
    return (w * loss).sum(), (real * batch.correct).sum(), (real * batch.answers).sum()


_batch_totals = jit_per_settings(2)(batch_totals)


@jit_per_settings(2)
def _cells_batch_totals(outcomes: Any, eval_view: Any, params: PyTree, examples: Any, weights: Any) -> Any:
    """`batch_totals` of many models, stacked along a leading axis."""
    return jax.vmap(lambda model: batch_totals(outcomes, eval_view, model, examples, weights))(params)


def _evaluate(
    compiled_totals: Callable[..., Any], task: Task, params: PyTree, clients: Sequence[int] | None, batch: int
) -> list[Evaluation]:
    """The totals of all batches, of one model or of many, as evaluations."""
    store = task.store
    chosen = np.arange(store.clients) if clients is None else np.asarray(clients, np.int64)
    if chosen.ndim != 1 or not len(chosen) or chosen.min() < 0 or chosen.max() >= store.clients:
        raise ValueError(f"clients must be indices from 0 to {store.clients - 1}, at least one, got {clients!r}")
    if batch < 1:
        raise ValueError(f"batch must be >= 1, got {batch}")
    features, widths = dict(store.features), store.widths
    local = np.array_split(chosen, jax.process_count())[jax.process_index()]
    if jax.process_count() > 1:
        params = jax.tree.map(np.asarray, params)

    def read(rows_and_weights: tuple[np.ndarray, np.ndarray]) -> tuple[Any, np.ndarray]:
        rows, weights = rows_and_weights
        return gather(features, widths, rows), weights

    totals, examples = np.zeros((3, 1)), 0
    for data, weights in prefetched(read, _weighted_rows(store.offsets, local, batch)):
        part = compiled_totals(task.outcomes, task.eval_view, params, data, weights * len(local))
        totals = totals + np.asarray(part, np.float64).reshape(3, -1)
        examples += int((weights > 0).sum())
    totals, examples = gather_from_processes(totals).sum(0), int(gather_from_processes(np.array(examples)).sum())
    return [
        Evaluation(loss / len(chosen), correct / answers if answers else float("nan"), len(chosen), examples)
        for loss, correct, answers in totals.T.tolist()
    ]


def _weighted_rows(offsets: np.ndarray, clients: np.ndarray, batch: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows of the store and their weights 1/(N n_i), `batch` at a time; the last batch is padded with weight 0."""
    rows, weights = np.zeros(0, np.int64), np.zeros(0)
    for i in clients:
        start, stop = int(offsets[i]), int(offsets[i + 1])
        rows = np.concatenate([rows, np.arange(start, stop)])
        weights = np.concatenate([weights, np.full(stop - start, 1 / (len(clients) * max(stop - start, 1)))])
        while len(rows) >= batch:
            yield rows[:batch], weights[:batch]
            rows, weights = rows[batch:], weights[batch:]
    if len(rows):
        padding = batch - len(rows)
        yield np.concatenate([rows, np.full(padding, rows[0])]), np.concatenate([weights, np.zeros(padding)])
