"""`lur`: thin, typed commands. Each imports what it needs when it runs."""

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from lur.commands.bench import bench
from lur.commands.data import DESCRIPTION as DATA
from lur.commands.data import app as data_app
from lur.commands.diagnose import diagnose
from lur.commands.predict import predict
from lur.commands.report import report
from lur.commands.reproduce import reproduce
from lur.commands.siblings import check_folder, require_sibling
from lur.commands.sweep import decay, sweep, tune
from lur.commands.train import config, train

DESCRIPTION = "Local update methods, and the trial of what is claimed of them. Start with: lur verify"

app = tyro.extras.SubcommandApp()


@app.command
def verify(
    claim: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = (),
    json: Path | None = None,
    figures: Path | None = None,
    errata: Path | None = None,
    atlas: Path | None = None,
    full: bool = False,
    budget: float = 1.0,
    seed: int = 0,
    jobs: int | None = None,
    list: bool = False,
    quiet: bool = False,
) -> int:
    """Put the paper's claims on trial: each holds, or here is a counterexample in exact numbers.

    Exit status 0 only if every verdict is the one on record.

    Args:
        claim: Try only this claim; may be given again.
        json: Write the record to this file.
        figures: Draw Figure 1, with what LocalUpdate really converges to, into this folder.
        errata: Write what is printed beside what is true, as errata.md and errata.html, into this folder.
        atlas: Draw how tight each bound is, over gamma L and K, into this folder.
        full: The exhaustive budget instead of the quick one.
        budget: How hard to look, as a multiple of the quick (or full) budget.
        seed: Seed of all sampling.
        jobs: Claims tried at once; by default one per core.
        list: List the claims and stop.
        quiet: Print nothing.
    """
    require_sibling("theory")
    from theory.claims import CLAIMS, find
    from theory.trials import verify as trial

    if list:
        for entry in CLAIMS:
            print(f"{entry.id:5} line {entry.line:<5} {entry.label}")
        return 0
    jobs = os.cpu_count() or 1 if jobs is None else jobs
    if jobs < 1:
        raise ValueError(f"--jobs must be >= 1, got {jobs}")
    if not budget > 0:
        raise ValueError(f"--budget must be > 0, got {budget}")
    ids = [find(id).id for id in claim] or [entry.id for entry in CLAIMS]
    for option, folder in (("--figures", figures), ("--errata", errata), ("--atlas", atlas)):
        if folder is not None:
            check_folder(option, folder)
    if atlas is not None:
        from theory.trials.atlas import check_ids

        check_ids(ids)
    with tempfile.TemporaryDirectory() as scratch:
        record = json or (Path(scratch) / "record.json" if errata else None)
        status = trial.verify(
            [*dict.fromkeys(ids)], json_path=record, full=full, seed=seed, jobs=jobs, quiet=quiet, budget=budget
        )
        if status == 130:
            return status
        paths: Sequence[Path] = ()
        if errata is not None and record is not None:
            from theory.trials import errata as sheet

            paths = sheet.write_from_record(record, errata)
    if figures is not None:
        from theory.trials import figure1

        paths = (*paths, *figure1.draw(figures))
    say = (lambda line: None) if quiet else print
    for path in paths:
        say(str(path))
    if atlas is not None:
        from theory.trials.atlas import draw

        try:
            drawn = draw(atlas, full, ids=ids, seed=seed, jobs=jobs, report=say)
        except KeyboardInterrupt:
            say(f"interrupted: no atlas was written into {atlas}")
            return 130
        for path in drawn:
            say(str(path))
    return status


app.command(bench)
app.command(train)
app.command(config)
app.command(sweep)
app.command(tune)
app.command(decay)
app.command(reproduce)
app.command(predict)
app.command(diagnose)
app.command(report)


@app.command
def data() -> int:
    """Federated data: import it from its published formats, look at it."""
    return 0  # `main` hands over to the group's own commands


def main() -> int:
    """The command line: errors in one sentence, exit status 2."""
    arguments = sys.argv[1:]
    try:
        if arguments[:1] == ["data"]:
            return data_app.cli(prog="lur data", args=arguments[1:] or ["--help"], description=DATA) or 0
        return app.cli(prog="lur", args=arguments or ["--help"], description=DESCRIPTION, sort_subcommands=False) or 0
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("lur: interrupted", file=sys.stderr)
        return 130
    except (ValueError, OSError) as error:
        print(f"lur: {error}", file=sys.stderr)
        return 2
