"""The command line: verify, its record and its manners; bench."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

LUR = [sys.executable, "-c", "import sys; from lur.cli import main; sys.exit(main())"]


@pytest.fixture
def called(request):
    """The command in this process."""
    return request.getfixturevalue("lur")


def lur(*arguments, **options):
    """The command in a process of its own, which compiles what it runs but once without much ado."""
    hasty = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    return subprocess.run(
        [*LUR, *arguments], capture_output=True, text=True, timeout=600, check=False, env=hasty, **options
    )


def test_verify_writes_its_record(tmp_path):
    file = tmp_path / "record.json"
    done = lur("verify", "--claim", "L5", "--claim", "e2", "--json", str(file))
    assert done.returncode == 0, done.stderr
    claims = {row["id"]: row for row in json.loads(file.read_text())["claims"]}
    assert list(claims) == ["L5", "E2"]
    assert claims["E2"]["verdict"] == "HOLDS"
    assert claims["L5"]["verdict"] == "FALSE"
    assert claims["L5"]["counterexample"] == {
        "instance": {"d": 1, "n": 1, "K": 1, "A": [[["1"]]], "gamma": "1/2"},
        "left": "[1, 1]",
        "right": "[1/2, 1/2]",
    }
    assert {"id", "label", "verdict", "ratio", "counterexample", "seconds"} <= set(claims["L5"])
    assert "fails at:  d = 1, n = 1, K = 1" in done.stdout
    assert "\x1b" not in done.stdout
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("verify", "--claim", "L55"), "did you mean L5"),
        (("verify", "--json", "/nowhere/at/all.json"), "no folder /nowhere/at"),
        (("verify", "--json", "."), "got the folder"),
        (("verify", "--jobs", "0"), "--jobs must be >= 1, got 0"),
        (("verify", "--budget", "0"), "--budget must be > 0, got 0.0"),
        (("verify", "--budget", "-1"), "--budget must be > 0, got -1.0"),
        (("verify", "--errata", "/proc/nowhere"), "--errata must name a folder that can be written"),
        (("bench", "speed", "--rounds", "0"), "--rounds must be >= 1, got 0"),
        (("bench", "speed", "--turns", "0"), "--turns must be >= 1, got 0"),
    ],
)
def test_bad_input_is_one_sentence(called, arguments, message):
    status, _, err = called(*arguments)
    assert status == 2
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_verdict_that_is_not_as_recorded_fails(monkeypatch, tmp_path, capsys):
    from theory.reports import terminal
    from theory.trials import verify as trials

    row = {"id": "L5", "label": "", "line": 1, "verdict": "HOLDS", "expected": "FALSE", "ratio": 1.0}
    row |= {"exact_checks": 0, "seconds": 0.0, "counterexample": None, "corrected": "", "statement": ""}
    monkeypatch.setattr(trials, "rows", lambda *_, **__: iter([row]))
    status = terminal.verify(["L5"], json_path=None, full=False, seed=0, jobs=1, quiet=False)
    assert status == 1
    assert "not as recorded: L5" in capsys.readouterr().out


def test_interrupted_verify_says_what_was_decided_and_writes_nothing(tmp_path):
    file = tmp_path / "record.json"
    process = subprocess.Popen(
        [*LUR, "verify", "--jobs", "1", "--json", str(file)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    first = process.stdout.readline()
    assert first.startswith("1/")
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "interrupted:" in out
    assert "claims decided; nothing was written" in out
    assert not list(tmp_path.iterdir())


def test_list():
    assert "T1    line 322" in lur("verify", "--list").stdout


def test_figure_1(tmp_path):
    import lur
    from lur import plots
    from theory.reports import figure1
    from theory.trials import implementation_of

    paths = figure1.draw(tmp_path, figure1.points(implementation_of(lur)), plots)
    assert [path.suffix for path in paths] == [".svg", ".png"]
    lines = (tmp_path / "figure1.csv").read_text().splitlines()
    header = lines[0].split(",")
    rows = [dict(zip(header, map(float, line.split(",")), strict=True)) for line in lines[1:]]
    assert len(rows) == 12
    for row in rows:
        assert abs(row["limit"] - row["closed_form"]) < 1e-9
        assert abs(row["mean"] - row["closed_form"]) < 0.5 * row["spread"] + 1e-3


def test_a_stranger_named_theory_is_refused(tmp_path):
    (tmp_path / "theory").mkdir()
    (tmp_path / "theory" / "__init__.py").write_text("")
    done = lur("verify", "--list", cwd=tmp_path)  # `python -c` looks into the working folder first
    assert done.returncode == 2
    assert "the package `theory` must be the one next to lur" in done.stderr


def test_bench_speed():
    done = lur("bench", "speed", "--task", "quadratic", "--rounds", "5", "--turns", "1")
    assert done.returncode == 0, done.stderr
    assert "Python loops" in done.stdout
    assert "rounds/s" in done.stdout


def test_diagnose_prints_and_writes(tmp_path):
    done = lur("diagnose", "quadratic", "--rounds", "2", "--steps", "1", "3", "--gammas", "0.1", "0.5", "--depth", "20",
               "--clients", "3", "--out", str(tmp_path))  # fmt: skip
    assert done.returncode == 0, done.stderr
    header, *rows = (tmp_path / "diagnose-quadratic.csv").read_text().splitlines()
    assert len(rows) == 3
    for row in rows:
        values = dict(zip(header.split(","), map(float, row.split(",")), strict=True))
        assert abs(values["largest"] / values["predicted_largest"] - 1) < 1e-4
        assert max(values["asymmetry"], values["jacobian_gap"], values["update_gap"]) < 1e-4
    assert (tmp_path / "diagnose-quadratic.svg").exists()


@pytest.mark.parametrize(("arguments", "reader", "seen"), [("verify --list", "head -1", "D1"), ("--help", "true", "")])
def test_a_reader_that_stops_early_is_no_error(arguments, reader, seen):
    """The second says so little that it is written at the end."""
    program = f"{sys.executable} -c 'from lur.cli import main; raise SystemExit(main())'"
    command = f"env -u PYTHONUNBUFFERED {program} {arguments} | {reader}"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout.startswith(seen)
    assert done.stderr == ""
