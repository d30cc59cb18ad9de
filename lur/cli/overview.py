"""`lur` and `lur --help`: what to do first, and the commands in groups, each with an example.

Summary and example of a command are the first line of its docstring: ``What it does: lur command argument``.
"""

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

from lur.cli.parsing import Commands

FIRST = """\
lur: local update methods (FedAvg, Reptile, FOMAML, MAML, ...), and what they really optimise.

Start here:
  lur verify          put the paper's claims on trial: each holds, or here is a counterexample
  lur train digits    FedAvg on real handwritten digits, in seconds
  lur doctor          what this machine has, and what to install for its GPU or TPU

lur --help lists all commands. Notebooks: colab/quickstart.ipynb is the first of six."""

HEAD = """\
usage: lur COMMAND [options]
lur COMMAND --help explains a command; --quiet and --json are for scripts."""

GROUPS = {
    "theory": ("verify", "predict", "explore"),
    "training": ("train", "config", "sweep", "tune", "decay", "launch"),
    "data, experiments and reports": ("data", "reproduce", "diagnose", "report"),
    "this machine": ("doctor", "bench", "completion"),
}
DATA = "Import federated data from its published formats, look at it: lur data show femnist"


class Line(NamedTuple):
    """A command in the overview."""

    name: str
    summary: str
    example: str


def line_of(name: str, command: Any) -> Line:
    """What a command says of itself in the first paragraph of its docstring."""
    text = DATA if isinstance(command, Mapping) else inspect.getdoc(command) or ""
    summary, _, example = " ".join(text.split("\n\n")[0].split()).partition(": lur ")
    return Line(name, summary, f"lur {example}" if example else "")


def listed(lines: list[Line]) -> list[str]:
    """Names, summaries and examples."""
    width = max(len(line.name) for line in lines) + 2
    return [
        text
        for line in lines
        for text in (f"  {line.name:{width}}{line.summary}", f"  {'':{width}}  {line.example}")
        if text.strip()
    ]


def overview(commands: Commands) -> str:
    """All commands in groups; those of no group come last."""
    grouped = {name for names in GROUPS.values() for name in names}
    groups = {**GROUPS, "more": tuple(name for name in commands if name not in grouped)}
    parts = [HEAD]
    for title, names in groups.items():
        lines = [line_of(name, commands[name]) for name in names if name in commands]
        if lines:
            parts.append("\n".join([f"{title}:", *listed(lines)]))
    return "\n\n".join(parts)


def group_overview(name: str, commands: Commands) -> str:
    """The commands of a group, as `lur data --help` shows them."""
    lines = [line_of(key, command) for key, command in commands.items()]
    return "\n".join([f"usage: lur {name} COMMAND [options]", "", *listed(lines)])
