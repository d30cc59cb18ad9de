"""`lur bench`: what lur costs, measured against a baseline in the same run."""

from pathlib import Path
from typing import Any, Literal

import tyro

from lur.cli.output import Json, Printer, check_json, printer, write_json
from lur.cli.siblings import require_benchmarks


def bench(
    what: tyro.conf.Positional[
        Literal["speed", "grid", "sweep", "scaling", "processes", "compile", "store", "methods"]
    ],
    task: Literal[
        "quadratic", "digits", "tiny", "femnist", "cifar100", "shakespeare", "stackoverflow_nwp", "stackoverflow_tp"
    ] = "quadratic",
    rounds: int | None = None,
    turns: int = 5,
    tasks: str = "digits,femnist",
    peers: str = "torch,fedjax,pfl,flower,tff",
    forms: str | None = None,
    clients_per_round: int | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    processes: int = 6,
    json: Json = None,
    figures: Path | None = None,
    quiet: bool = False,
) -> int:
    """Measure lur against a baseline in the same run: lur bench speed --task quadratic

    `lur bench speed` compares rounds per second with Python loops over numpy arrays,
    `lur bench speed --task femnist` compares seconds per round with other frameworks and with the floor,
    `lur bench grid` compares a grid of rates as one program with one run per pair of rates,
    `lur bench sweep` compares a sweep of digits with one `lur train` per cell,
    `lur bench scaling --task femnist` shows how time and memory grow with M, K and B,
    `lur bench processes --task femnist` spreads one run over several processes and devices,
    `lur bench compile` times the compilation of each task's first round,
    `lur bench store` measures a store of 342,477 clients and 20 million examples,
    `lur bench methods --tasks digits,femnist` compares the seconds of a round of all methods.

    The floor is one gradient of all the examples of a round: its cost without local steps.

    Args:
        what: What to measure.
        task: What to run. Every task but quadratic is compared with the peers.
        rounds: Rounds in a turn; by default the task's.
        turns: Interleaved turns; the fastest turn of each contender counts.
        tasks: The tasks of `lur bench methods`, separated by commas.
        peers: Other frameworks, separated by commas. Each gets its own environment in the cache folder.
        forms: Variants of lur to compare, such as lur-plain-vmap,floor; by default all.
        clients_per_round: M; by default the paper's.
        steps: K; by default the paper's.
        batch_size: B; by default the paper's.
        processes: Processes of `lur train` that `lur bench sweep` times; 0 for all.
        figures: Folder for the figure of `lur bench scaling`.
        quiet: Print nothing.
    """
    require_benchmarks("lur bench")
    for name, value in (("--rounds", rounds), ("--turns", turns)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be >= 1, got {value}")
    check_json(json)
    say = printer(quiet, json)
    if what == "speed" and task != "quadratic":
        from benchmarks.speed import comparison

        compared = comparison.measure(
            task, peers, rounds, turns, clients_per_round, steps, batch_size, forms=forms, say=say
        )
        write_json(json, compared.record)
        return 0 if compared.all_do_same_work else 1
    if what == "methods":
        from benchmarks.speed import methods
        from lur.jax_setup import prepare

        prepare()
        write_json(json, {"benchmark": what, **methods.measure(tasks.split(","), rounds or 10, turns, say)})
        return 0
    write_json(json, {"benchmark": what, **measure(what, task, rounds, turns, processes, figures, say)})
    return 0


def measure(
    what: str, task: str, rounds: int | None, turns: int, processes: int, figures: Path | None, say: Printer
) -> dict[str, Any]:
    """Runs a benchmark, prints its result and returns it as a record."""
    if what == "store":
        from benchmarks.data import store

        measured = store.measure()
        say(store.report(measured))
        return measured._asdict()
    if what == "grid":
        from benchmarks.speed import grid
        from lur.jax_setup import prepare

        prepare()
        measured = grid.measure(rounds or 1000, turns)
        say(grid.report(measured))
        return measured._asdict()
    if what == "sweep":
        from benchmarks.speed import sweep
        from lur.jax_setup import prepare

        prepare()
        measured = sweep.measure(rounds or 200, processes or None, say)
        say(sweep.report(measured))
        return sweep.record(measured)
    if what == "compile":
        from benchmarks.speed import compile_time

        return {"tasks": compile_time.measure(report=say)}
    if what == "processes":
        from benchmarks.speed.processes import measure as measure_processes

        return measure_processes(task, turns, rounds, say)
    if what == "scaling":
        from benchmarks.speed import scaling

        growth = scaling.measure(task, say)
        for path in () if figures is None else scaling.draw(task, growth, figures):
            say(str(path))
        return {"task": task, "growth": growth}
    return measure_quadratic(rounds or 200, turns, say)


def measure_quadratic(rounds: int, turns: int, say: Printer) -> dict[str, Any]:
    """Compares lur with Python loops on a quadratic."""
    from benchmarks.speed import quadratic

    size = quadratic.DEFAULT
    speed = quadratic.measure(size, rounds, turns)
    say(f"quadratic: d = {size.d}, M = {size.M}, K = {size.K}, B = {size.B}, {rounds} rounds, best of {turns} turns")
    for name, value in (
        ("lur, all rounds in one scan", speed.lur_scan),
        ("lur, one call per round", speed.lur),
        ("Python loops", speed.python),
    ):
        say(f"  {name:28} {value:10.0f} rounds/s  {value / speed.python:7.1f}x")
    say(f"  largest relative difference of the final models: {speed.difference:.1e}")
    return {"task": "quadratic", **size._asdict(), "rounds": rounds, **speed._asdict()}
