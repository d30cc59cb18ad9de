"""`lur report RUN...`: one self-contained HTML page."""

from pathlib import Path

import tyro


def report(
    runs: tyro.conf.Positional[tuple[Path, ...]],
    out: Path = Path("report.html"),
    quiet: bool = False,
) -> int:
    """Make one page of runs, sweeps and what `lur reproduce` wrote: lur report runs/digits --out report.html

    It has the figures, tables, configurations, environments and verdicts, needs no other file, and may be made while
    a run goes on or after it was cut off.

    Args:
        runs: Folders.
        out: The file to write.
        quiet: Print nothing.
    """
    from lur.runs.files import write_file
    from lur.runs.report_page import page

    if not runs:
        raise ValueError("expected at least one folder of a run, got none")
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise ValueError(f"--out must name a file in a folder that is there, got {out}")
    write_file(out, page(runs))
    if not quiet:
        print(out)
    return 0
