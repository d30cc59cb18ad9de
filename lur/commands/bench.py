"""`lur bench`: what lur costs, measured beside a baseline in the same run."""

from pathlib import Path
from typing import Literal

import tyro

from lur.commands.siblings import require_sibling


def bench(
    what: tyro.conf.Positional[Literal["speed", "grid", "sweep", "scaling", "compile", "store"]],
    task: Literal[
        "quadratic", "tiny", "femnist", "cifar100", "shakespeare", "stackoverflow_nwp", "stackoverflow_tp"
    ] = "quadratic",
    rounds: int | None = None,
    turns: int = 5,
    peers: str = "torch,fedjax,pfl,flower,tff",
    forms: str | None = None,
    clients_per_round: int | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    processes: int = 6,
    json: Path | None = None,
    figures: Path | None = None,
) -> int:
    """Measure lur: `lur bench speed` prints rounds per second beside a plain Python loop over the same work,
    `lur bench speed --task femnist` seconds per round beside other frameworks and the floor,
    `lur bench grid` a grid of rates as one program beside one run after the other,
    `lur bench sweep` a sweep of digits beside as many calls of `lur train`,
    `lur bench scaling --task femnist` how time and memory grow with M, K and B,
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
        json: Write the results and the machine's description to this file.
        figures: Draw the scaling into this folder.
    """
    require_sibling("benchmarks")
    for name, value in (("--rounds", rounds), ("--turns", turns)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be >= 1, got {value}")
    if what == "store":
        from benchmarks.data import store

        print(store.report(store.measure()))
    elif what == "grid":
        from benchmarks.speed import grid
        from lur.machine import prepare

        prepare()
        print(grid.report(grid.measure(rounds or 1000, turns)))
    elif what == "sweep":
        from json import dumps

        from benchmarks.speed import sweep
        from lur.machine import prepare

        prepare()
        measured = sweep.measure(rounds or 200, processes or None)
        print(sweep.report(measured))
        if json is not None:
            json.write_text(dumps(sweep.record(measured), indent=1) + "\n")
    elif what == "compile":
        from benchmarks.speed import first_round

        first_round.measure(report=print)
    elif what == "scaling":
        from benchmarks.speed import scaling

        found = scaling.measure(task, print)
        for path in () if figures is None else scaling.draw(task, found, figures):
            print(path)
    elif task == "quadratic":
        quadratic_speed(rounds or 200, turns)
    else:
        from benchmarks.speed import side_by_side

        return side_by_side.measure(task, peers, rounds, turns, clients_per_round, steps, batch_size, json, forms)
    return 0


def quadratic_speed(rounds: int, turns: int) -> None:
    """lur beside a plain Python loop."""
    from benchmarks.speed import quadratic

    size = quadratic.DEFAULT
    found = quadratic.measure(size, rounds, turns)
    print(f"quadratic: d = {size.d}, M = {size.M}, K = {size.K}, B = {size.B}, {rounds} rounds, best of {turns} turns")
    for name, value in (
        ("lur, all rounds in one scan", found.lur_scan),
        ("lur, a round at a time", found.lur),
        ("plain Python loop", found.python),
    ):
        print(f"  {name:28} {value:10.0f} rounds/s  {value / found.python:7.1f}x")
    print(f"  largest relative difference of the final models: {found.difference:.1e}")
