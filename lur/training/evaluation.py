r"""The true loss and the accuracy over whole datasets, client by client.

.. math:: f(x) = \frac1N \sum_{i=1}^N \frac{1}{n_i} \sum_{z \in D_i} f(x; z)

The data may be those trained on or those held out, and the result says which. Examples are streamed in large batches
in the order of the store. With several processes, each evaluates its share of the clients.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int, PyTree

from lur.data.gather import gather
from lur.data.prefetch import prefetched
from lur.data.store import Store
from lur.methods.compiled import jit_per_settings
from lur.parallel.processes import gather_from_processes
from lur.tasks.task import Outcomes, Task

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantiles over clients of an evaluation."""


class Evaluation(NamedTuple):
    """The loss and the accuracy of a model on one split of the data.

    Attributes:
      loss: f(x), the mean over clients of each client's mean loss.
      accuracy: the fraction of right answers among all answers; nan for a task without answers.
      clients: the number of clients evaluated.
      examples: the number of their examples.
      split: the data: ``train``, ``test``, ``clients`` (held-out clients), or ``given`` for a store given by itself.
      example_loss: the mean loss over examples.
      client_accuracy: the mean over clients of each client's accuracy.
      loss_quantiles: the `QUANTILES` over clients of their losses.
      accuracy_quantiles: the `QUANTILES` over clients of their accuracies.
      worst_loss: the mean loss of the tenth of the clients with the largest losses.
      worst_accuracy: the mean accuracy of the tenth of the clients with the smallest accuracies.
    """

    loss: float
    accuracy: float
    clients: int
    examples: int
    split: str
    example_loss: float
    client_accuracy: float
    loss_quantiles: tuple[float, ...]
    accuracy_quantiles: tuple[float, ...]
    worst_loss: float
    worst_accuracy: float


class ClientTotals(NamedTuple):
    """Sums over each client's examples.

    Attributes:
      loss: the sum of the examples' losses.
      correct: the number of right answers.
      answers: the number of answers.
      examples: the number of examples.
    """

    loss: Float[np.ndarray, "*models N"]
    correct: Float[np.ndarray, "*models N"]
    answers: Float[np.ndarray, "*models N"]
    examples: Float[np.ndarray, "N"]


def evaluate(
    task: Task | Callable[..., Any],
    params: PyTree,
    store: Store | None = None,
    *,
    on: str = "train",
    clients: Sequence[int] | None = None,
    batch: int = 512,
) -> Evaluation:
    """Return the loss and the accuracy of a model.

    Args:
      task: a task, of which the split `on` is evaluated; or a function of the model and a batch of stored examples,
        with `store`: ``outcomes(params, batch) -> lur.tasks.Outcomes``, or a loss ``loss_fn(params, batch) -> scalar``,
        the mean over the examples of the batch.
      params: the model.
      store: the data, if `task` is a function.
      on: the split of the task: ``train``, ``test`` or ``clients``.
      clients: evaluate these clients only, by their indices in the split; by default all.
      batch: the number of examples per batch.
    """
    (evaluation,) = summaries(
        client_totals(task, params, store, on=on, clients=clients, batch=batch), split_name(task, on)
    )
    return evaluation


def evaluate_cells(task: Task, params: PyTree, batch: int = 512, *, on: str = "train") -> list[Evaluation]:
    """Return the evaluations of many models, stacked along a leading axis.

    Args:
      task: the task.
      params: the models; each leaf has a leading axis of models.
      batch: the number of examples per batch.
      on: the split of the task.
    """
    return summaries(client_totals(task, params, on=on, batch=batch, is_stacked=True), on)


def client_totals(
    task: Task | Callable[..., Any],
    params: PyTree,
    store: Store | None = None,
    *,
    on: str = "train",
    clients: Sequence[int] | None = None,
    batch: int = 512,
    is_stacked: bool = False,
) -> ClientTotals:
    """Return the sums of losses and answers of each client; the arguments are those of `evaluate`.

    Args:
      is_stacked: whether `params` are many models, stacked along a leading axis.
    """
    store = data_of(task, store, on)
    chosen = np.arange(store.clients) if clients is None else np.asarray(clients, np.int64)
    if chosen.ndim != 1 or not len(chosen) or chosen.min() < 0 or chosen.max() >= store.clients:
        raise ValueError(f"clients must be indices from 0 to {store.clients - 1}, at least one, got {clients!r}")
    if batch < 1:
        raise ValueError(f"batch must be >= 1, got {batch}")
    if jax.process_count() > 1:
        params = jax.tree.map(np.asarray, params)
    if isinstance(task, Task):
        outcomes_of = partial(_outcomes, task.outcomes, task.eval_view, is_stacked)
    else:
        outcomes_of = partial(_outcomes, outcomes_of_function(task, params, store), _as_stored, is_stacked)
    places = np.array_split(np.arange(len(chosen)), jax.process_count())[jax.process_index()]
    models = (jax.tree.leaves(params)[0].shape[0],) if is_stacked else ()
    totals = np.zeros((3, *models, len(chosen)))
    features, widths = dict(store.features), store.widths

    def read(part: "Rows") -> tuple["Rows", Any]:
        return part, gather(features, widths, part.rows)

    for part, examples in prefetched(read, rows_in_batches(store.offsets, chosen, places, batch)):
        found = np.stack([np.asarray(leaf, np.float64) for leaf in outcomes_of(params, examples)])
        starts = np.flatnonzero(np.diff(part.places, prepend=-1))
        totals[..., part.places[starts]] += np.add.reduceat(found[..., : len(part.places)], starts, axis=-1)
    loss, correct, answers = gather_from_processes(totals).sum(0) if jax.process_count() > 1 else totals
    return ClientTotals(loss, correct, answers, store.sizes[chosen].astype(np.float64))


def data_of(task: Task | Callable[..., Any], store: Store | None, on: str) -> Store:
    """Return the data to evaluate on: a split of the task, or the store given with a function."""
    if isinstance(task, Task):
        if store is not None:
            raise ValueError("store must be None with a task, whose split `on` is evaluated")
        return task.split(on)
    if not callable(task):
        raise ValueError(f"task must be a lur.tasks.Task or a function of (params, batch), got {type(task).__name__}")
    if not isinstance(store, Store):
        raise ValueError(
            f"store must be a store, such as lur.data.in_memory(...), with a function, got {type(store).__name__}"
        )
    return store


def split_name(task: Task | Callable[..., Any], on: str) -> str:
    """Return the name of the evaluated data."""
    return on if isinstance(task, Task) else "given"


class Rows(NamedTuple):
    """The examples of a batch.

    Attributes:
      rows: the rows of the store; the last batch is padded with copies of its last row.
      places: the place of each example's client among those evaluated; padding has none.
    """

    rows: Int[np.ndarray, "batch"]
    places: Int[np.ndarray, "count"]


def rows_in_batches(
    offsets: Int[np.ndarray, "N+1"], chosen: Int[np.ndarray, "n"], places: Int[np.ndarray, "own"], batch: int
) -> Iterator[Rows]:
    """Yield the examples of the clients ``chosen[places]``, `batch` at a time."""
    rows, owners = np.zeros(0, np.int64), np.zeros(0, np.int64)
    for place in places:
        start, stop = int(offsets[chosen[place]]), int(offsets[chosen[place] + 1])
        rows = np.concatenate([rows, np.arange(start, stop)])
        owners = np.concatenate([owners, np.full(stop - start, place)])
        while len(rows) >= batch:
            yield Rows(rows[:batch], owners[:batch])
            rows, owners = rows[batch:], owners[batch:]
    if len(rows):
        yield Rows(np.concatenate([rows, np.full(batch - len(rows), rows[-1])]), owners)


def _as_stored(examples: Any) -> Any:
    return dict(examples)


class LossPerExample(NamedTuple):
    """A mean loss as ``outcomes(params, batch) -> Outcomes``, taken of each example by itself, without answers.

    Attributes:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean over the examples of the batch.
    """

    loss_fn: Callable[..., Any]

    def __call__(self, params: PyTree, batch: Any) -> Outcomes:
        loss = jax.vmap(lambda one: self.loss_fn(params, jax.tree.map(lambda leaf: leaf[None], one)))(batch)
        return Outcomes(loss, loss * 0, loss * 0)


def outcomes_of_function(function: Callable[..., Any], params: PyTree, store: Store) -> Callable[..., Outcomes]:
    """Return a user's function as ``outcomes(params, batch) -> Outcomes``; only shapes are computed."""
    result = jax.eval_shape(function, params, gather(dict(store.features), store.widths, np.zeros(2, np.int64)))
    if isinstance(result, Outcomes):
        return function
    if getattr(result, "shape", None) != ():
        given = getattr(result, "shape", type(result).__name__)
        raise ValueError(f"task must return lur.tasks.Outcomes or a scalar loss, got {given}")
    return LossPerExample(function)


@jit_per_settings(3)
def _outcomes(outcomes: Any, eval_view: Any, is_stacked: bool, params: PyTree, examples: Any) -> Outcomes:
    """The outcomes of each example of a batch, of one model or of many."""
    batch = eval_view(examples)
    return jax.vmap(outcomes, (0, None))(params, batch) if is_stacked else outcomes(params, batch)


def summaries(totals: ClientTotals, split: str) -> list[Evaluation]:
    """Return the evaluation of each model."""
    loss, correct, answers = (np.atleast_2d(leaf) for leaf in totals[:3])
    return [summary(ClientTotals(*each, totals.examples), split) for each in zip(loss, correct, answers, strict=True)]


def summary(totals: ClientTotals, split: str) -> Evaluation:
    """Return the evaluation of one model from its sums per client."""
    loss, n = totals.loss / totals.examples, int(totals.examples.sum())
    has_answers = totals.answers > 0
    accuracy = totals.correct[has_answers] / totals.answers[has_answers]
    worst = math.ceil(len(loss) / 10)
    return Evaluation(
        loss=float(loss.mean()),
        accuracy=float(totals.correct.sum() / totals.answers.sum()) if len(accuracy) else math.nan,
        clients=len(loss),
        examples=n,
        split=split,
        example_loss=float(totals.loss.sum() / n),
        client_accuracy=float(accuracy.mean()) if len(accuracy) else math.nan,
        loss_quantiles=quantiles(loss),
        accuracy_quantiles=quantiles(accuracy),
        worst_loss=float(np.sort(loss)[-worst:].mean()),
        worst_accuracy=float(np.sort(accuracy)[: math.ceil(len(accuracy) / 10)].mean()) if len(accuracy) else math.nan,
    )


def quantiles(values: Float[np.ndarray, "N"]) -> tuple[float, ...]:
    """Return the `QUANTILES` of some numbers, linearly interpolated; nan for none."""
    if not len(values) or not np.isfinite(values).all():
        return tuple(math.nan for _ in QUANTILES)
    return tuple(np.quantile(values, QUANTILES).tolist())
