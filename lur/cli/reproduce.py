"""`lur reproduce`: the paper's experiments as commands, each with a verdict computed from its runs."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import tyro

from lur.cli.output import Json, check_json, printer, prints_no_text, write_json

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
    method: str | None = None,
    client: str | None = None,
    server: str | None = None,
    quiet: bool = False,
    json: Json = None,
) -> int:
    """Run the paper's experiments and compute their verdicts: lur reproduce fig2 --scale small --out results

    `fig1` to `fig9` and `table1` to `table7` are the paper's; `all` makes all of them from the same runs.
    `heterogeneity` asks whether, with eta fixed, a larger gamma leads early and loses late, and whether that fades
    as the clients become more similar. Interrupted runs resume.

    Args:
        what: The figure, table or experiment.
        scale: smoke takes seconds, small minutes on built-in data; paper needs an accelerator and the real files.
        task: Only this task. For heterogeneity: digits (half a minute) or femnist (about ten minutes).
        store: An imported store for that task.
        out: Folder for figures (SVG, PNG), numbers (CSV) and verdicts (JSON).
        runs: Folder for the runs; by default OUT/runs-SCALE.
        rounds: Rounds of each run of heterogeneity; by default the experiment's.
        method: Method of heterogeneity, of `lur methods` or my_module:factory; by default the paper's local_update.
        client: Client optimiser of heterogeneity; by default the method's.
        server: Server optimiser of heterogeneity; by default sgd, or with --method the method's.
        quiet: Print nothing.
    """
    from lur.cli.siblings import check_folder, require_benchmarks, require_sibling
    from lur.jax_setup import prepare

    require_benchmarks("lur reproduce")
    require_sibling("theory")
    check_folder("--out", out)
    check_json(json)
    say = printer(quiet, json)
    if what == "heterogeneity":
        chosen = {"method": method or "local_update", "client": client, "server": server or (None if method else "sgd")}
        return reproduce_heterogeneity(task or "digits", out, rounds, chosen, say, json)
    if rounds is not None:
        raise ValueError(f"--rounds applies to heterogeneity only; the scale sets those of {what}, got {rounds}")
    for flag, value in (("--method", method), ("--client", client), ("--server", server)):
        if value is not None:
            raise ValueError(f"{flag} applies to heterogeneity only; the paper sets that of {what}, got {value}")
    if store is not None and task is None:
        raise ValueError(f"--store needs --task, the task that the store is for, got {store}")
    prepare()
    return reproduce_paper(
        what, scale, task, store, out, runs or out / f"runs-{scale}", say, prints_no_text(quiet, json), json
    )


def reproduce_paper(
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
    """Makes figures and tables of the paper and prints their verdicts."""
    from benchmarks.paper.experiments import Interrupted, PaperRuns
    from lur import tasks
    from lur.training.configuration import did_you_mean
    from lur.training.loop import stop_on_signals

    if task is not None and task not in tasks.NAMES:
        raise ValueError(
            f"--task must be one of {', '.join(tasks.NAMES)}, got {task!r}{did_you_mean(task, tasks.NAMES)}"
        )
    names = (*FIGURES, *TABLES) if what == "all" else (what,)
    done: dict[str, Any] = {}
    with stop_on_signals(quiet) as stop:
        stores = {} if task is None or store is None else {task: store.absolute()}
        paper_runs = PaperRuns(runs, scale, say, stop, () if task is None else (task,), stores)
        for name in names:
            if what == "all" and not concerns_tasks(name, paper_runs):
                say(f"{name}: skipped, it is about other tasks")
                continue
            try:
                result = import_module(f"benchmarks.paper.{name}").make(paper_runs, out)
            except Interrupted:
                say(f"  stopped during {name}; its runs are kept in {runs}")
                return stop.exit_status
            done[name] = {"files": result.paths, "verdicts": result.statements}
            say(f"{name}: {', '.join(str(path) for path in result.paths)}")
            for statement in result.statements:
                agrees = {True: "agrees", False: "DISAGREES", None: "cannot tell"}[statement.agrees]
                say(f"  [{agrees}] {statement.task}: {statement.paper}\n      here: {statement.shows}")
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


def concerns_tasks(name: str, runs: Any) -> bool:
    """Whether a figure or table is about one of the tasks of these runs."""
    from benchmarks.paper.scales import YOGI, tasks_of

    tasks = runs.tasks or (*tasks_of("sgd", runs.scale), *tasks_of("yogi", runs.scale))
    if name in TASKS:
        return TASKS[name] in tasks
    if name == "fig1" or name.startswith("table"):
        return True
    return any((task in YOGI) == (name in ON_YOGI) for task in tasks)


def reproduce_heterogeneity(
    task: str, out: Path, rounds: int | None, chosen: dict[str, Any], say: Callable[[str], None], json: Path | None
) -> int:
    """Runs the paper's effect at several heterogeneities of the clients."""
    from benchmarks.paper import heterogeneity
    from lur.jax_setup import prepare
    from lur.training.configuration import did_you_mean

    if task not in heterogeneity.SETTINGS:
        known = ", ".join(heterogeneity.SETTINGS)
        raise ValueError(f"--task must be one of {known}, got {task!r}{did_you_mean(task, heterogeneity.SETTINGS)}")
    setting = heterogeneity.SETTINGS[task]._replace(**chosen)
    if rounds is not None:
        if rounds < setting.every:
            raise ValueError(f"--rounds must be at least {setting.every}, got {rounds}")
        setting = setting._replace(rounds=rounds)
    prepare()
    curves = heterogeneity.curves(setting, say)
    verdicts, files = heterogeneity.verdict(curves), heterogeneity.write(setting, curves, out)
    for line in (*verdicts, *map(str, files)):
        say(line)
    write_json(json, {"heterogeneity": {"files": files, "verdicts": verdicts}})
    return 0
