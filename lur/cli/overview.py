"""The text of `lur` and `lur --help`: where to start, and the commands in groups, each with an example.

The first line of a command's docstring is its summary and example: ``What it does: lur command argument``.
"""

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

from lur.cli.arguments import Commands

START_HERE = """\
lur: local update methods (FedAvg, Reptile, FOMAML, MAML, ...), and what they really optimise.

Start here:
  lur verify          check the paper's claims: each one holds, or a counterexample is shown
  lur train digits    train FedAvg on real handwritten digits, in seconds
  lur doctor          show what this machine has, and what to install for its GPU or TPU

lur --help lists all commands. Notebooks: colab/quickstart.ipynb is the first of six."""

HEAD = """\
usage: lur COMMAND [options]
lur COMMAND --help explains a command; --quiet and --json are for scripts."""

GROUPS = {
    "theory": ("verify", "predict", "explore"),
    "training": ("train", "methods", "config", "sweep", "tune", "decay", "launch"),
    "data, experiments and reports": ("data", "reproduce", "diagnose", "report"),
    "this machine": ("doctor", "bench", "completion"),
}
DATA = "Import federated data from published formats, and inspect it: lur data show femnist"


class CommandSummary(NamedTuple):
    """A command in the overview.

    Attributes:
        name: name of the command.
        summary: what it does.
        example: a command line to try.
    """

    name: str
    summary: str
    example: str


def command_summary(name: str, command: Any) -> CommandSummary:
    """The summary and example in the first paragraph of a command's docstring."""
    doc = DATA if isinstance(command, Mapping) else inspect.getdoc(command) or ""
    summary, _, example = " ".join(doc.split("\n\n")[0].split()).partition(": lur ")
    return CommandSummary(name, summary, f"lur {example}" if example else "")


def _listing(summaries: list[CommandSummary]) -> list[str]:
    """Two lines per command: its name and summary, and its example."""
    width = max(len(each.name) for each in summaries) + 2
    return [
        line
        for each in summaries
        for line in (f"  {each.name:{width}}{each.summary}", f"  {'':{width}}  {each.example}")
        if line.strip()
    ]


def overview(commands: Commands) -> str:
    """All commands in groups; commands without a group come last."""
    grouped = {name for names in GROUPS.values() for name in names}
    groups = {**GROUPS, "more": tuple(name for name in commands if name not in grouped)}
    parts = [HEAD]
    for title, names in groups.items():
        summaries = [command_summary(name, commands[name]) for name in names if name in commands]
        if summaries:
            parts.append("\n".join([f"{title}:", *_listing(summaries)]))
    return "\n\n".join(parts)


def group_overview(prog: str, commands: Commands) -> str:
    """The commands of a group, as `lur data --help` shows them."""
    summaries = [command_summary(key, command) for key, command in commands.items()]
    return "\n".join([f"usage: {prog} COMMAND [options]", "", *_listing(summaries)])
