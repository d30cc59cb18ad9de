"""`lur completion SHELL`: what makes a shell complete commands and flags."""

from collections.abc import Mapping
from typing import Any, Literal

import tyro


def completion(shell: tyro.conf.Positional[Literal["bash", "zsh", "fish"]]) -> int:
    """Print the shell's completion of commands and flags: lur completion bash

    To have it always: eval "$(lur completion bash)" in ~/.bashrc, the same with zsh in ~/.zshrc, and in fish
    lur completion fish > ~/.config/fish/completions/lur.fish.

    Args:
        shell: For which shell.
    """
    from lur.cli.commands import COMMANDS

    try:
        nested(COMMANDS).cli(prog="lur", args=["--tyro-write-completion", shell, "-"])
    except SystemExit as left:
        return int(left.code or 0)
    return 0


def nested(commands: Mapping[str, Any]) -> Any:
    """All commands as one tyro application."""
    app = tyro.extras.SubcommandApp()
    for name, command in commands.items():
        app.command(nested(command) if isinstance(command, Mapping) else command, name=name)
    return app
