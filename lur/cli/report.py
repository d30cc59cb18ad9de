"""`lur report RUN...`: a report of runs as one HTML page."""

from pathlib import Path

import tyro


def report(
    runs: tyro.conf.Positional[tuple[Path, ...]],
    out: Path = Path("report.html"),
    quiet: bool = False,
) -> int:
    """Report runs, sweeps and the output of `lur reproduce` as one page: lur report runs/digits --out report.html

    The page has the figures, tables, configurations, environments and verdicts, and needs no other file. The runs may
    be finished, still going, or killed.

    Args:
        runs: Folders of runs.
        out: The HTML file to write.
        quiet: Print nothing.
    """
    from lur.regular_files import kind_of
    from lur.runs.files import write_file
    from lur.runs.report_page import report_page

    if not runs:
        raise ValueError("expected at least one folder of a run, got none")
    if kind_of(out, follow=True) not in (None, "a file") or not out.absolute().parent.is_dir():
        raise ValueError(f"--out must name a file in an existing folder, got {out}")
    write_file(out, report_page(runs))
    if not quiet:
        print(out)
    return 0
