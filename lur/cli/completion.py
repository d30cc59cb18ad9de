"""`lur completion SHELL`: a script by which a shell completes commands and flags."""

from collections.abc import Mapping
from typing import Any, Literal

import tyro


def completion(shell: tyro.conf.Positional[Literal["bash", "zsh", "fish"]]) -> int:
    """Print a script that completes commands and flags in the shell: lur completion bash

    To install it, put eval "$(lur completion bash)" into ~/.bashrc, the same with zsh into ~/.zshrc, or run
    lur completion fish > ~/.config/fish/completions/lur.fish.

    Args:
        shell: The shell.
    """
    from lur.cli.commands import COMMANDS

    try:
        _tyro_app(COMMANDS).cli(prog="lur", args=["--tyro-write-completion", shell, "-"])
    except SystemExit as exit:
        return int(exit.code or 0)
    return 0


def _tyro_app(commands: Mapping[str, Any]) -> Any:
    """All commands as one tyro application."""
    app = tyro.extras.SubcommandApp()
    for name, command in commands.items():
        app.command(_tyro_app(command) if isinstance(command, Mapping) else command, name=name)
    return app
