"""`lur reproduce`: the paper's experiments as commands, each with a verdict computed from what was run."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import tyro

from lur.cli.output import Json, check_json, silent, speaker, write_json

FIGURES = tuple(f"fig{n}" for n in range(1, 10))
TABLES = tuple(f"table{n}" for n in range(1, 8))
What = Literal[
    "all", "fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "fig8", "fig9",
    "table1", "table2", "table3", "table4", "table5", "table6", "table7", "heterogeneity",
]  # fmt: skip


def reproduce(
    what: tyro.conf.Positional[What],
    scale: Literal["smoke", "small", "paper"] = "small",
    task: str | None = None,
    store: Path | None = None,
    out: Path = Path("."),
    runs: Path | None = None,
    rounds: int | None = None,
    quiet: bool = False,
    json: Json = None,
) -> int:
    """Run the paper's experiments and judge them: lur reproduce fig2 --scale small --out results

    `fig1` to `fig9` and `table1` to `table7` are the paper's; `all` are all of them, drawn from the same runs.
    `heterogeneity`: with eta fixed, does a larger gamma lead early and lose late, and does that fade as the
    clients become alike? Runs that were cut go on where they were.

    Args:
        what: The figure, table or experiment.
        scale: smoke takes seconds, small minutes on built-in data, paper an accelerator and the real files.
        task: Only on this task. For heterogeneity digits (half a minute) or femnist (about ten).
        store: An imported store for that task.
        out: Folder for pictures (SVG, PNG), numbers (CSV) and verdicts (JSON).
        runs: Folder for the runs; by default OUT/runs-SCALE.
        rounds: Rounds of each run of heterogeneity; by default the experiment's.
        quiet: Print nothing.
    """
    from lur.cli.siblings import check_folder, require_sibling
    from lur.jax_setup import prepare

    require_sibling("benchmarks")
    check_folder("--out", out)
    check_json(json)
    say = speaker(quiet, json)
    if what == "heterogeneity":
        return heterogeneity(task or "digits", out, rounds, say, json)
    if rounds is not None:
        raise ValueError(f"--rounds is for heterogeneity; {what} takes those of its scale, got {rounds}")
    if store is not None and task is None:
        raise ValueError(f"--store needs the --task that it is for, got {store}")
    prepare()
    return paper(what, scale, task, store, out, runs or out / f"runs-{scale}", say, silent(quiet, json), json)


def paper(
    what: str,
    scale: Any,
    task: str | None,
    store: Path | None,
    out: Path,
    runs: Path,
    say: Callable[[str], None],
    quiet: bool,
    json: Path | None,
) -> int:
    """The paper's figures and tables."""
    from benchmarks.paper.experiments import Interrupted, Lab
    from lur import tasks
    from lur.runs.stopping import stoppable
    from lur.training.configuration import nearest

    if task is not None and task not in tasks.NAMES:
        raise ValueError(f"--task must be one of {', '.join(tasks.NAMES)}, got {task!r}{nearest(task, tasks.NAMES)}")
    names = (*FIGURES, *TABLES) if what == "all" else (what,)
    done: dict[str, Any] = {}
    with stoppable(quiet) as stop:
        stores = {} if task is None or store is None else {task: store.absolute()}
        lab = Lab(runs, scale, say, stop, () if task is None else (task,), stores)
        for name in names:
            if what == "all" and not has_part(name, lab):
                say(f"{name}: not about the tasks that are run")
                continue
            try:
                made = import_module(f"benchmarks.paper.{name}").make(lab, out)
            except Interrupted:
                say(f"  stopped in {name}: {runs} keeps its runs")
                return stop.status
            done[name] = {"files": made.paths, "verdicts": made.statements}
            say(f"{name}: {', '.join(str(path) for path in made.paths)}")
            for one in made.statements:
                agrees = {True: "agrees", False: "DISAGREES", None: "cannot tell"}[one.agrees]
                say(f"  [{agrees}] {one.task}: {one.paper}\n      here: {one.shows}")
    write_json(json, done)
    return 0


TASKS = {
    "table3": "cifar100",
    "table4": "femnist",
    "table5": "shakespeare",
    "table6": "stackoverflow_nwp",
    "table7": "stackoverflow_tp",
}
ON_YOGI = ("fig6", "fig7", "fig9")


def has_part(name: str, lab: Any) -> bool:
    """Whether `all` makes this figure or table: it is about the tasks of its scale, or about the one asked for."""
    from benchmarks.paper.scales import YOGI, tasks_of

    asked = lab.only or (*tasks_of("sgd", lab.scale), *tasks_of("yogi", lab.scale))
    if name in TASKS:
        return TASKS[name] in asked
    if name == "fig1" or name.startswith("table"):
        return True
    return any((task in YOGI) == (name in ON_YOGI) for task in asked)


def heterogeneity(task: str, out: Path, rounds: int | None, say: Callable[[str], None], json: Path | None) -> int:
    """The effect against the dial of heterogeneity."""
    from benchmarks.paper import heterogeneity
    from lur.jax_setup import prepare
    from lur.training.configuration import nearest

    if task not in heterogeneity.SETTINGS:
        known = ", ".join(heterogeneity.SETTINGS)
        raise ValueError(f"--task must be one of {known}, got {task!r}{nearest(task, heterogeneity.SETTINGS)}")
    setting = heterogeneity.SETTINGS[task]
    if rounds is not None:
        if rounds < setting.every:
            raise ValueError(f"--rounds must be at least {setting.every}, got {rounds}")
        setting = setting._replace(rounds=rounds)
    prepare()
    found = heterogeneity.curves(setting, say)
    verdicts, files = heterogeneity.verdict(found), heterogeneity.write(setting, found, out)
    for line in (*verdicts, *map(str, files)):
        say(line)
    write_json(json, {"heterogeneity": {"files": files, "verdicts": verdicts}})
    return 0
