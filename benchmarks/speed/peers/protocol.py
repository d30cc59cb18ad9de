"""The protocol of a contender: lines of JSON on its standard input and output, one answer per request.

    {"setup": {"file": case.npz, "task": ..., "client_lr": ...}}  ->  {"versions": {...}}, after one round
    {"run": R}                ->  {"seconds": ..., "examples": ...}: rounds 0, ..., R - 1 from the initial model
    {"result": file.npz}      ->  {}: the parameters after the last run are in the file

A contender is a function ``contender(case) -> run`` with ``run(rounds) -> Done``. This module needs only numpy, so it
runs in any environment. Other output of a contender goes to standard error.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import NamedTuple

import numpy as np


class Case(NamedTuple):
    """The work of a race.

    Attributes:
        file: Path of the file it was read from.
        task: Name of the workload.
        client_lr: gamma.
        data: Examples by feature.
        params: Initial parameters by name.
        rows: Rows of the examples in each mini-batch, of shape (R, M, K, B).
    """

    file: str
    task: str
    client_lr: float
    data: dict[str, np.ndarray]
    params: dict[str, np.ndarray]
    rows: np.ndarray


class Done(NamedTuple):
    """A finished run.

    Attributes:
        seconds: Its wall-clock seconds.
        examples: Example gradients it took.
        params: Final parameters by name.
    """

    seconds: float
    examples: int
    params: dict[str, np.ndarray]


Run = Callable[[int], Done]


def read_case(file: str, task: str, client_lr: float) -> Case:
    """Reads a case from its file."""
    with np.load(file) as content:
        arrays = {name: content[name] for name in content.files}

    def part(kind: str) -> dict[str, np.ndarray]:
        return {name.removeprefix(kind): array for name, array in arrays.items() if name.startswith(kind)}

    return Case(file, task, client_lr, part("data:"), part("params:"), arrays["rows"])


def serve(contender: Callable[[Case], Run], packages: Sequence[str]) -> None:
    """Answers requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    run: Run | None = None
    done: Done | None = None
    for line in sys.stdin:
        request = json.loads(line)
        if "setup" in request:
            run = contender(read_case(**request["setup"]))
            run(1)
            answer = {"versions": {name: version(name) for name in packages}}
        elif "run" in request and run:
            done = run(request["run"])
            answer = {"seconds": done.seconds, "examples": done.examples}
        elif "result" in request and done:
            np.savez(request["result"], **done.params)  # pyright: ignore[reportArgumentType]
            answer = {}
        else:
            raise ValueError(f"a request must be setup, then run, then result, got {request}")
        print(json.dumps(answer), file=answers, flush=True)
