"""The code in the README and in docs/ runs and says what it says."""

import os
import re
import shlex
import subprocess
import sys

import pytest

from tests.documents import ALL, PAGES, ROOT

RUNNER = """
import json, sys, traceback
failed = []
for page, blocks in json.load(sys.stdin).items():
    names = {"__name__": page}
    for line, code in blocks:
        print(f"== {page}:{line}", flush=True)
        try:
            exec(compile("\\n" * line + code, page, "exec"), names)
        except Exception:
            traceback.print_exc()
            failed.append(f"{page}:{line}")
            break
sys.exit(f"failed: {', '.join(failed)}" if failed else 0)
"""


def run(pages):
    """Runs {page: [(line, code), ...]} in one process, each page with names of its own."""
    import json

    done = subprocess.run(
        [sys.executable, "-c", RUNNER], input=json.dumps(pages), capture_output=True, text=True, check=False, cwd=ROOT,
        env={**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},  # nearly all of its time is compiling
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def python_of(marks):
    """{page: blocks} of Python with these marks; a page's earlier blocks come along, its later ones may need them."""
    pages = {}
    for block in ALL:
        if block.language == "python" and block.mark in marks:
            pages.setdefault(block.page, []).append((block.line, block.code))
    return pages


def numbers(printed, page):
    """The arrays of one number with which lines begin that a page printed."""
    mine = re.findall(rf"^== {re.escape(page)}:\d+\n(.*?)(?=^== |\Z)", printed, re.MULTILINE | re.DOTALL)
    return [float(value) for value in re.findall(r"^\[([0-9.]+)\]", "".join(mine), re.MULTILINE)]


def test_python_runs():
    pages = python_of((None,))
    printed = run(pages)
    assert printed.count("== ") == sum(map(len, pages.values())) > 8
    (predicted,), (reached, same) = (numbers(printed, page) for page in ("README.md", "docs/use.md"))
    assert abs(reached - 13 / 19) < 1e-6
    assert predicted == same
    assert abs(predicted - 13 / 19) < 1e-8


@pytest.mark.full
def test_slow_python_runs():
    slow = {block.page for block in ALL if block.mark == "slow"}
    assert slow
    run({page: blocks for page, blocks in python_of((None, "slow")).items() if page in slow})


def test_what_is_not_run_is_listed():
    """Blocks that no test runs, each with its reason in the page: this list grows only on purpose."""
    assert not [block for block in ALL if block.mark == "not run"]
    assert [(block.page, block.why) for block in ALL if block.mark == "slow"] == [
        ("docs/optimal.md", "several seconds, most of them compiling"),
    ]
    assert {block.language for block in ALL} <= {"python", "notebook", "bash", ""}


def commands():
    """(page, words) of every command of lur in a block, fenced or indented."""
    lines = [(block.page, line) for block in ALL if block.language in ("bash", "") for line in block.code.splitlines()]
    for path in PAGES:
        page = str(path.relative_to(ROOT))
        lines += [(page, line) for line in re.findall(r"^ {4}(lur .*)$", path.read_text(), re.MULTILINE)]
    for page, line in lines:
        command = line.removeprefix("$ ")
        if command.startswith(("lur ", "./run ")):
            yield page, shlex.split(command, comments=True)


def test_shell_blocks_name_real_commands(lur, capsys, monkeypatch):
    """Every command is there and takes the options it is given; what it does is tested with the command."""
    monkeypatch.setenv("COLUMNS", "200")
    helps, found = {}, list(commands())
    assert len(found) > 12
    for page, (program, *words) in found:
        if program == "./run" and words[0] in ("test", "docs"):
            assert f"./run {words[0]}" in (ROOT / "run").read_text()
            continue
        command = tuple(words[:2] if words[0] == "data" else words[:1])
        if command not in helps:
            try:
                status, helps[command], _ = lur(*command, "--help")
            except SystemExit as stopped:
                status, helps[command] = stopped.code, capsys.readouterr().out
            assert status == 0, (page, command)
        for word in words:
            if word.startswith("--"):
                assert re.search(rf"(?<![\w-]){word}(?![\w-])", helps[command]), (page, command, word)
    assert len(helps) > 6


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "zensical.toml").read_text()
    for path in PAGES:
        if path.name != "README.md":
            assert f'"{path.name}"' in navigation, path
