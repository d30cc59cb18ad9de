"""The code in the README and in docs/ runs, and its commands exist."""

import json
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
    """Runs {page: [(line, code), ...]} in one process, each page in its own namespace; returns the output."""
    done = subprocess.run(
        [sys.executable, "-c", RUNNER], input=json.dumps(pages), capture_output=True, text=True, check=False, cwd=ROOT,
        env={**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},  # nearly all of its time is compiling
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def python_blocks(marks):
    """{page: [(line, code), ...]} of the runnable Python blocks with these marks."""
    pages = {}
    for block in ALL:
        if block.language == "python" and block.mark in marks and block.is_runnable:
            pages.setdefault(block.page, []).append((block.line, block.code))
    return pages


def numbers(printed, page):
    """The numbers in one-element arrays at the beginning of lines that a page printed."""
    parts = re.findall(rf"^== {re.escape(page)}:\d+\n(.*?)(?=^== |\Z)", printed, re.MULTILINE | re.DOTALL)
    return [float(value) for value in re.findall(r"^\[([0-9.]+)\]", "".join(parts), re.MULTILINE)]


def test_python_blocks_run():
    pages = python_blocks((None, "needs"))
    printed = run(pages)
    assert printed.count("== ") == sum(map(len, pages.values())) > 8
    (predicted,), (reached, same) = (numbers(printed, page) for page in ("README.md", "docs/use.md"))
    assert abs(reached - 13 / 19) < 1e-6
    assert predicted == same
    assert abs(predicted - 13 / 19) < 1e-8


@pytest.mark.full
def test_slow_python_blocks_run():
    slow = {block.page for block in ALL if block.mark == "slow"}
    assert slow
    run({page: blocks for page, blocks in python_blocks((None, "needs", "slow")).items() if page in slow})


def test_blocks_that_are_not_always_run_are_listed():
    """Each has its reason in the page; this list grows only on purpose."""
    assert not [block for block in ALL if block.mark == "not run"]
    assert [(block.page, block.reason) for block in ALL if block.mark is not None] == [
        ("docs/bring_your_own_model.md", "equinox"),
        ("docs/optimal.md", "several seconds, most of them compiling"),
    ]
    assert {block.language for block in ALL} <= {"python", "notebook", "bash", ""}


def commands():
    """(page, words) of every lur command in a fenced or indented block."""
    lines = [(block.page, line) for block in ALL if block.language in ("bash", "") for line in block.code.splitlines()]
    for path in PAGES:
        page = str(path.relative_to(ROOT))
        lines += [(page, line) for line in re.findall(r"^ {4}(lur .*)$", path.read_text(), re.MULTILINE)]
    for page, line in lines:
        command = line.removeprefix("$ ")
        if command.startswith(("lur ", "./run ")):
            yield page, shlex.split(command, comments=True)


def test_shell_blocks_have_existing_commands_and_options(lur, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    helps, listed = {}, list(commands())
    assert len(listed) > 12
    for page, (program, *words) in listed:
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
