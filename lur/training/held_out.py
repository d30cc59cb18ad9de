"""What a run is evaluated on besides the data it trains on: test examples, held-out clients, and both after adaptation.

Each evaluation says its split. After adaptation its name says the local steps, as in ``test after 5 steps``.
"""

from collections.abc import Mapping

import optax
from jaxtyping import PyTree

from lur.tasks.task import Task
from lur.training.adaptation import adaptation_data, evaluate_adapted
from lur.training.configuration import ResolvedRun
from lur.training.evaluation import Evaluation, evaluate
from lur.training.method_choice import optimizer_of
from lur.training.option_text import parse_adaptation, parse_splits


def held_out_evaluations(task: Task, config: ResolvedRun, params: PyTree) -> Mapping[str, Evaluation]:
    """The evaluations of a model on each split but ``train``, by name."""
    found = {}
    for split in splits_of(task, config):
        found[split] = evaluate(task, params, on=split)
        steps = parse_adaptation(config.adapt)
        if steps:
            adapted = evaluate_adapted(
                task,
                params,
                config.client_lr,
                steps=steps,
                optimizer=optimizer_of("client", config.client) or optax.sgd,
                batch_size=config.batch_size,
                on="test" if split == "test" else "clients",
                seed=config.seed,
            )
            found |= {f"{split} after {k} step{'s' * (k != 1)}": one for k, one in adapted.items() if k}
    return found


def splits_of(task: Task, config: ResolvedRun) -> list[str]:
    """The splits besides ``train`` that a run is evaluated on: those asked for, or all that the task has."""
    asked = parse_splits(config.evaluate_on)
    has = {"test": task.test is not None, "clients": task.held_out is not None}
    return [split for split in has if (has[split] if asked is None else split in asked)]


def check_splits(task: Task, config: ResolvedRun) -> None:
    """Refuse splits that the task does not have, before the first round."""
    splits = splits_of(task, config)
    for split in splits:
        task.split(split)
        if config.adapt is not None:
            adaptation_data(task, split)
    if config.adapt is not None and not splits:
        raise ValueError(f"adapt needs test examples, which the task {task.name} does not have")
