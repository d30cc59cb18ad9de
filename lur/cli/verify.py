"""`lur verify`: the paper's claims on trial."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from lur.cli.output import STDOUT, Json, check_json, silent, speaker, write_json
from lur.cli.siblings import check_folder, require_sibling


def verify(
    claim: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = (),
    json: Json = None,
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
    """Put the paper's claims on trial: lur verify --claim T1 --claim L5

    Each holds, or here is a counterexample in exact numbers. Exit status 0 only if every verdict is the one on record.

    Args:
        claim: Try only this claim; may be given again.
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
        if json is not None:
            write_json(json, [{"id": entry.id, "line": entry.line, "label": entry.label} for entry in CLAIMS])
            return 0
        for entry in CLAIMS:
            print(f"{entry.id:5} line {entry.line:<5} {entry.label}")
        return 0
    jobs = os.cpu_count() or 1 if jobs is None else jobs
    if jobs < 1:
        raise ValueError(f"--jobs must be >= 1, got {jobs}")
    if not budget > 0:
        raise ValueError(f"--budget must be > 0, got {budget}")
    check_json(json)
    say = speaker(quiet, json)
    ids = [find(id).id for id in claim] or [entry.id for entry in CLAIMS]
    for option, folder in (("--figures", figures), ("--errata", errata), ("--atlas", atlas)):
        if folder is not None:
            check_folder(option, folder)
    if atlas is not None:
        from theory.trials.atlas import check_ids

        check_ids(ids)
    with tempfile.TemporaryDirectory() as scratch:
        record = Path(scratch) / "record.json" if json == STDOUT or (json is None and errata) else json
        quiet = silent(quiet, json)
        status = trial.verify(
            [*dict.fromkeys(ids)], json_path=record, full=full, seed=seed, jobs=jobs, quiet=quiet, budget=budget
        )
        if status == 130:
            return status
        if json == STDOUT and record is not None:
            print(record.read_text(), end="")
        paths: Sequence[Path] = ()
        if errata is not None and record is not None:
            from theory.trials import errata as sheet

            paths = sheet.write_from_record(record, errata)
    if figures is not None:
        from theory.trials import figure1

        paths = (*paths, *figure1.draw(figures))
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
