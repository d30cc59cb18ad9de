"""The configuration that a run began with, which run.json keeps, and config.toml beside it, which people read and edit.

An edited config.toml is an error that names the difference: the run would otherwise be another one from some round on.
Flags may extend a run. Two files cannot change at once, so run.json gets the new configuration and the one that it
supersedes, then config.toml is written, then run.json drops the superseded one. Wherever a process is killed, run.json
says which configuration counts, and config.toml is one of its two.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lur.regular_files import read_regular
from lur.runs import folder
from lur.runs.errors import RunError
from lur.runs.files import write_file
from lur.training.configuration import MAX_FILE_BYTES, read_toml

MOST = 5
"""Differences that an error names."""
EDITED = "config.toml: expected the configuration that the run began with, found"


def read_kept_config(path: Path, kind: str | None = None) -> dict[str, Any]:
    """The values of the configuration that a run began with, or that it was last extended to.

    Args:
      path: the run folder.
      kind: "train" or "sweep", if it must be a run of this kind.
    """
    for is_last in (False, True):  # read twice, because another process may extend the run meanwhile
        info = folder.read_run_info(path, kind)
        found = read_toml(path / "config.toml")
        if "config" not in info:  # an earlier version of lur kept no copy, and trained on all examples
            return {"test_fraction": 0.0, **found}
        kept = [_parse(path, info[name]) for name in ("config", "superseded") if name in info]
        if found in kept:
            return kept[0]
        if is_last:
            changes = differences(kept[0], found)
            more = f"; and {len(changes) - MOST} more" if len(changes) > MOST else ""
            raise RunError(f"{path / EDITED} {'; '.join(changes[:MOST])}{more}; undo the edit")
    raise AssertionError("unreachable")


def update_kept_config(path: Path, config: str) -> None:
    """Make a configuration the one of a locked run folder, whose config.toml is not edited.

    Args:
      path: the run folder.
      config: the configuration as TOML.
    """
    file, info = path / "config.toml", folder.read_run_info(path)
    found = read_toml(file)
    if info.get("config") == config and "superseded" not in info and found == _parse(path, config):
        return
    superseded = read_regular(file, MAX_FILE_BYTES, error=RunError).decode()
    info = {**info, "config": config}
    if superseded != config:
        folder.write_with_digest(path / "run.json", {**info, "superseded": superseded})
    write_file(file, config)
    info.pop("superseded", None)
    folder.write_with_digest(path / "run.json", info)


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The names whose values differ, each as text: ``client_lr 0.1 -> 0.5``."""
    old, new = dict(_flat(before)), dict(_flat(after))
    pairs = [(name, old.get(name, "none"), new.get(name, "none")) for name in {**old, **new}]
    return [f"{name} {x} -> {y}" for name, x, y in pairs if x != y]


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values by name, those of a table with the name of the table before theirs."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _parse(path: Path, text: Any) -> dict[str, Any]:
    """The values of a configuration in run.json."""
    try:
        if not isinstance(text, str) or len(text) > MAX_FILE_BYTES:
            raise ValueError("found something else")
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path / 'run.json'}: expected a configuration in TOML, {error}") from None
