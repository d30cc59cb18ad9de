"""How much of lur a reader meets between `lur train femnist` and its first log line.

    python -m tests.count_calls [--list] [--without-folder] [--kept-data]

Runs the command in this process under `sys.setprofile` and counts the functions and files of `lur/` that are called,
and how often the configuration, the layout and the method are made. Counted are named functions; lambdas,
comprehensions and class bodies belong to the code around them. Left out are the parts that every data set or model
brings along: generators, the store's writer, the models' layers, and Theta.
"""

import argparse
import collections
import contextlib
import json
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

LEFT_OUT = ("data/generate/", "data/writer.py", "models/layers/", "theta.py")
MADE = {
    "configuration": ("training/configuration.py", "resolve_config"),
    "layout": ("parallel/layouts.py", "choose_layout"),
    "method": ("training/experiment.py", "build_method"),
}
"""The function that makes each of these."""
COMMAND = ["lur", "train", "femnist", "--rounds", "2", "--clients", "4", "--quiet"]


class FirstLogLine(BaseException):
    """Ends the command where the first log line is written."""


def count_calls(in_folder: bool, kept_data: bool) -> dict[str, Any]:
    """The functions and files that the command visits up to its first log line.

    Args:
      in_folder: whether the run has a run folder. Without one, counting ends with the first report of progress.
      kept_data: whether the built-in data were made by an earlier command.
    """
    import lur
    from lur.cli import main

    root = str(Path(lur.__file__).parent) + os.sep
    calls: collections.Counter[tuple[str, str]] = collections.Counter()
    class_bodies = set()
    end = ("runs/files.py", "Log.append") if in_folder else ("training/loop.py", "train")
    counting = True

    def profile(frame: Any, event: str, value: Any) -> None:
        nonlocal counting
        code = frame.f_code
        if not counting or event not in ("call", "return") or not code.co_filename.startswith(root):
            return
        function = code.co_filename.removeprefix(root), code.co_qualname
        if event == "call":
            calls[function] += 1
            if code.co_flags & 0x2 == 0:  # CO_NEWLOCALS without CO_OPTIMIZED: a class body
                class_bodies.add(function)
        if function == end and (in_folder or (event == "return" and value is not None)):
            counting = False
            raise FirstLogLine

    with tempfile.TemporaryDirectory() as scratch:
        os.environ["LUR_CACHE"] = str(Path(scratch) / "cache")
        if kept_data:
            from lur.tasks import load

            load("femnist", clients=4)
        sys.argv = [*COMMAND, *(["--run-dir", str(Path(scratch) / "run")] if in_folder else [])]
        threading.setprofile(profile)
        sys.setprofile(profile)
        try:
            with contextlib.suppress(FirstLogLine):
                main()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    if counting:
        raise RuntimeError(f"{' '.join(sys.argv)} ended before {end[1]} in {end[0]}")
    named = sorted(
        (file, name)
        for file, name in calls
        if not file.startswith(LEFT_OUT) and not name.endswith(">") and (file, name) not in class_bodies
    )
    return {
        "functions": len(named),
        "files": len({file for file, _ in named}),
        "made": {what: calls[function] for what, function in MADE.items()},
        "visited": named,
    }


def print_counts() -> None:
    """Print the counts as JSON."""
    parser = argparse.ArgumentParser(description="Count the functions and files up to the first log line.")
    parser.add_argument("--list", action="store_true", help="also list the functions")
    parser.add_argument("--without-folder", action="store_true", help="run without a run folder")
    parser.add_argument("--kept-data", action="store_true", help="make the built-in data before counting")
    asked = parser.parse_args()
    counts = count_calls(not asked.without_folder, asked.kept_data)
    visited = counts.pop("visited")
    print(json.dumps(counts))
    if asked.list:
        files = collections.defaultdict(list)
        for file, name in visited:
            files[file].append(name)
        for file, names in files.items():
            print(f"{len(names):3} {file}: {' '.join(names)}")


if __name__ == "__main__":
    print_counts()
