"""`lur bench`: what lur costs, measured beside a baseline in the same run."""

from pathlib import Path
from typing import Any, Literal

import tyro

from lur.cli.output import Json, Say, check_json, speaker, write_json
from lur.cli.siblings import require_sibling


def bench(
    what: tyro.conf.Positional[Literal["speed", "grid", "sweep", "scaling", "processes", "compile", "store"]],
    task: Literal[
        "quadratic", "digits", "tiny", "femnist", "cifar100", "shakespeare", "stackoverflow_nwp", "stackoverflow_tp"
    ] = "quadratic",
    rounds: int | None = None,
    turns: int = 5,
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
    """Measure lur beside a baseline in the same run: lur bench speed --task quadratic

    `lur bench speed` prints rounds per second beside a plain Python loop over the same work,
    `lur bench speed --task femnist` seconds per round beside other frameworks and the floor,
    `lur bench grid` a grid of rates as one program beside one run after the other,
    `lur bench sweep` a sweep of digits beside as many calls of `lur train`,
    `lur bench scaling --task femnist` how time and memory grow with M, K and B,
    `lur bench processes --task femnist` one run over several processes and devices,
    `lur bench compile` how long the first round of each task takes to compile,
    `lur bench store` how a store of 342,477 clients and 20 million examples behaves.

    Args:
        what: What to measure.
        task: What to run. All but quadratic run beside the peers.
        rounds: Rounds per turn; by default the task's.
        turns: Interleaved turns; the fastest of each contender counts.
        peers: The peers, with commas between them. Each gets an environment of its own in the cache folder.
        forms: Which of lur's own forms run beside it, as lur-plain-vmap,floor; by default all.
        clients_per_round: M; by default the paper's.
        steps: K; by default the paper's.
        batch_size: B; by default the paper's.
        processes: Calls of `lur train` that `lur bench sweep` times; 0 for all.
        figures: Draw the scaling into this folder.
        quiet: Print nothing.
    """
    require_sibling("benchmarks")
    for name, value in (("--rounds", rounds), ("--turns", turns)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be >= 1, got {value}")
    check_json(json)
    say = speaker(quiet, json)
    if what == "speed" and task != "quadratic":
        from benchmarks.speed import side_by_side

        return side_by_side.measure(
            task, peers, rounds, turns, clients_per_round, steps, batch_size, json, forms, say=say
        )
    write_json(json, {"benchmark": what, **measured(what, task, rounds, turns, processes, figures, say)})
    return 0


def measured(
    what: str, task: str, rounds: int | None, turns: int, processes: int, figures: Path | None, say: Say
) -> dict[str, Any]:
    """What was asked for, said and as a record."""
    if what == "store":
        from benchmarks.data import store

        found = store.measure()
        say(store.report(found))
        return found._asdict()
    if what == "grid":
        from benchmarks.speed import grid
        from lur.jax_setup import prepare

        prepare()
        found = grid.measure(rounds or 1000, turns)
        say(grid.report(found))
        return found._asdict()
    if what == "sweep":
        from benchmarks.speed import sweep
        from lur.jax_setup import prepare

        prepare()
        found = sweep.measure(rounds or 200, processes or None, say)
        say(sweep.report(found))
        return sweep.record(found)
    if what == "compile":
        from benchmarks.speed import first_round

        return {"tasks": first_round.measure(report=say)}
    if what == "processes":
        from benchmarks.speed import processes as over_processes

        return over_processes.measure(task, turns, rounds, say)
    if what == "scaling":
        from benchmarks.speed import scaling

        growth = scaling.measure(task, say)
        for path in () if figures is None else scaling.draw(task, growth, figures):
            say(str(path))
        return {"task": task, "growth": growth}
    return quadratic_speed(rounds or 200, turns, say)


def quadratic_speed(rounds: int, turns: int, say: Say) -> dict[str, Any]:
    """lur beside a plain Python loop."""
    from benchmarks.speed import quadratic

    size = quadratic.DEFAULT
    found = quadratic.measure(size, rounds, turns)
    say(f"quadratic: d = {size.d}, M = {size.M}, K = {size.K}, B = {size.B}, {rounds} rounds, best of {turns} turns")
    for name, value in (
        ("lur, all rounds in one scan", found.lur_scan),
        ("lur, a round at a time", found.lur),
        ("plain Python loop", found.python),
    ):
        say(f"  {name:28} {value:10.0f} rounds/s  {value / found.python:7.1f}x")
    say(f"  largest relative difference of the final models: {found.difference:.1e}")
    return {"task": "quadratic", **size._asdict(), "rounds": rounds, **found._asdict()}
