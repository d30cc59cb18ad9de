"""`lur reproduce`: the paper's experiments as commands, each with a verdict computed from what was run."""

from pathlib import Path
from typing import Literal

import tyro


def reproduce(
    what: tyro.conf.Positional[Literal["heterogeneity"]],
    task: Literal["digits", "femnist"] = "digits",
    out: Path = Path("."),
    rounds: int | None = None,
    quiet: bool = False,
) -> int:
    """Run one of the paper's experiments and judge it: lur reproduce heterogeneity --task digits

    `heterogeneity`: with eta fixed, does a larger gamma lead early and lose late, and does that fade as the
    clients become alike?

    Args:
        what: The experiment.
        task: On which task. digits takes half a minute, femnist about ten.
        out: Folder for the picture (SVG, PNG) and the numbers (CSV).
        rounds: Rounds of each run; by default the experiment's.
        quiet: Print nothing.
    """
    from lur.commands.siblings import check_folder, require_sibling
    from lur.machine import prepare

    require_sibling("benchmarks")
    from benchmarks.paper import heterogeneity

    check_folder("--out", out)
    setting = heterogeneity.SETTINGS[task]
    if rounds is not None:
        if rounds < setting.every:
            raise ValueError(f"--rounds must be at least {setting.every}, got {rounds}")
        setting = setting._replace(rounds=rounds)
    prepare()
    say = (lambda line: None) if quiet else print
    found = heterogeneity.curves(setting, say)
    for line in (*heterogeneity.verdict(found), *map(str, heterogeneity.write(setting, found, out))):
        say(line)
    return 0
