"""`lur verify`: put the paper's claims on trial."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from lur.cli.output import STDOUT, Json, check_json, printer, prints_no_text, write_json
from lur.cli.siblings import check_folder, require_sibling


def verify(
    claim: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = (),
    paper: str | None = None,
    file: Path | None = None,
    json: Json = None,
    figures: Path | None = None,
    errata: Path | None = None,
    atlas: Path | None = None,
    full: bool = False,
    budget: float = 1.0,
    seed: int = 0,
    jobs: int | None = None,
    list: bool = False,
    verbose: bool = False,
    quiet: bool = False,
) -> int:
    """Put the paper's claims on trial: lur verify --claim T1 --claim L5

    A claim holds, or a counterexample in exact numbers is shown. The exit status is 0 only if every verdict is the one
    on record.

    Args:
        claim: Try only this claim; may be given several times.
        paper: Try only the claims of this paper, such as outsized_importance.
        file: Try the claims that this Python file defines as CLAIMS instead: a dict from a name to (left, right,
            relation, space), the arguments of theory.trial.
        figures: Draw Figure 1, with the points that lur's LocalUpdate converges to, into this folder.
        errata: Write what is printed next to what is true, as errata.md and errata.html, into this folder.
        atlas: Draw how tight each bound is, over gamma L and K, into this folder.
        full: Use the exhaustive budget instead of the quick one.
        budget: How hard to look for a violation, as a multiple of the quick (or full) budget.
        seed: Seed of all sampling.
        jobs: Number of claims tried in parallel; by default one per core.
        list: List the claims and stop.
        verbose: Show every claim that does not hold as printed, not only the most surprising.
        quiet: Print nothing.
    """
    require_sibling("theory")
    import lur
    from lur.jax_setup import keep_compiled
    from theory.claims import CLAIMS, claims_of_file, claims_of_paper, find
    from theory.reports.terminal import verify as verify_claims
    from theory.trials import implementation_of

    if file is not None and paper is not None:
        raise ValueError(f"--file and --paper must not be given together, got {file} and {paper}")
    if file is not None and any(folder is not None for folder in (errata, atlas, figures)):
        raise ValueError("--errata, --atlas and --figures must be without --file: they are about the paper's claims")
    known = CLAIMS
    if file is not None:
        known = claims_of_file(file)
    elif paper is not None:
        known = claims_of_paper(paper)
    if list:
        if json is not None:
            write_json(json, [{"id": entry.id, "line": entry.line, "label": entry.label} for entry in known])
            return 0
        for entry in known:
            print(f"{entry.id:5} line {entry.line:<5} {entry.label}")
        return 0
    jobs = os.cpu_count() or 1 if jobs is None else jobs
    if jobs < 1:
        raise ValueError(f"--jobs must be >= 1, got {jobs}")
    if not budget > 0:
        raise ValueError(f"--budget must be > 0, got {budget}")
    check_json(json)
    say = printer(quiet, json)
    ids = [find(id, known).id for id in claim] or [entry.id for entry in known]
    for option, folder in (("--figures", figures), ("--errata", errata), ("--atlas", atlas)):
        if folder is not None:
            check_folder(option, folder)
    if atlas is not None:
        from theory.reports.atlas import check_ids

        check_ids(ids)
    shared: Any = {"seed": seed, "jobs": jobs, "implementation": implementation_of(lur), "prepare": keep_compiled}
    with tempfile.TemporaryDirectory() as temporary:
        record = Path(temporary) / "record.json" if json == STDOUT or (json is None and errata) else json
        quiet = prints_no_text(quiet, json)
        unique = [*dict.fromkeys(ids)]
        status = verify_claims(unique, json_path=record, full=full, quiet=quiet, budget=budget,
                               file=file, verbose=verbose, **shared)  # fmt: skip
        if status == 130:
            return status
        if json == STDOUT and record is not None:
            print(record.read_text(), end="")
        paths: Sequence[Path] = ()
        if errata is not None and record is not None:
            from theory.reports.errata import write_from_record

            paths = write_from_record(record, errata)
    if figures is not None:
        from lur import plots
        from theory.reports import figure1

        paths = (*paths, *figure1.draw(figures, figure1.points(implementation_of(lur)), plots))
    for path in paths:
        say(str(path))
    if atlas is not None:
        from lur import plots
        from theory.reports.atlas import draw

        try:
            drawn = draw(atlas, full, style=plots, ids=ids, report=say, **shared)
        except KeyboardInterrupt:
            say(f"interrupted: no atlas was written into {atlas}")
            return 130
        for path in drawn:
            say(str(path))
    return status
