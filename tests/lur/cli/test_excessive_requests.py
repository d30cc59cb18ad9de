"""Requests beyond a machine's means, and strangers' text on the terminal: one sentence, and only printable text."""

import json
import os
import subprocess
import sys

import pytest

from lur.data.writer import write_store
from lur.runs.folder import write_with_digest
from lur.theta import MAX_K, fedavg, parse
from lur.training.configuration import MAX_CLIENTS, RunConfig, config_from_values, read_toml, to_toml
from lur.training.sweep_plan import SweepConfig
from tests.lur.runs.test_kills import LUR

SMALL = ["--rounds", 2, "--clients", 5, "--clients-per-round", 2, "--theta", "1:2"]
HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\u202e\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--theta", "1:999999999999"], "K must be at most 1,000,000 local steps, got 999,999,999,999"),
        (["--theta", "K=1000001"], "K must be at most 1,000,000 local steps, got 1,000,001"),
        (["--theta", "1:" + "9" * 5000], "K must be at most 1,000,000 local steps, got 999,"),
        (["--clients", "2000000000"], "clients must be at most 1,000,000, got 2,000,000,000; import a store for more"),
        (["--clients", "2e9"], "--clients must be an integer, got '2e9'"),
        (
            ["--clients", "5", "--clients-per-round", "2", "--epochs", "100000000"],
            "epochs must give at most 1,000,000 local steps, got 100,000,000, which take 100,000,000 over the largest",
        ),
    ],
    ids=["theta", "theta K", "digits", "clients", "clients e9", "epochs"],
)
def test_what_no_machine_can_do_is_refused_before_it_begins(lur, tmp_path, arguments, says):
    status, out, err = lur("train", "quadratic", *arguments, "--run-dir", "run")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert says in err
    assert not (tmp_path / "run").exists()


def test_the_same_in_a_file_and_in_python(lur, tmp_path):
    for line, says in (("clients = 2e9", "clients must be at most"), ("epochs = 1e8", "epochs must give at most")):
        (tmp_path / "run.toml").write_text(f'task = "quadratic"\n{line}\n')
        status, _, err = lur("train", "--config", "run.toml")
        assert (status, err.count("\n")) == (2, 1)
        assert says in err
    assert (parse("1:0010"), len(parse(f"K={MAX_K}"))) == (fedavg(10), MAX_K)
    assert RunConfig("quadratic", clients=MAX_CLIENTS).clients == MAX_CLIENTS
    with pytest.raises(ValueError, match="must have at most 100,000 pairs, got 400 times 400"):
        SweepConfig(RunConfig("quadratic"), tuple(range(400)), tuple(range(400)))


def test_a_memory_that_is_too_small_is_a_sentence(lur, monkeypatch):
    def load_task(config):
        raise MemoryError("Unable to allocate 9.3 GiB for an array")

    monkeypatch.setattr("lur.training.experiment.load_task", load_task)
    status, _, err = lur("train", "quadratic")
    assert (status, err) == (
        2,
        "lur: Unable to allocate 9.3 GiB for an array; ask for less, or use a machine with more\n",
    )


def test_sixteen_files_are_too_few(tmp_path):
    """Refused before the first round, where orbax would leave a traceback at the first checkpoint."""

    command = [*LUR, "train", "quadratic", *map(str, SMALL), "--run-dir", "run", "--quiet"]
    environ = {**os.environ, "LUR_CACHE": str(tmp_path), "MALLOC_ARENA_MAX": "1"}
    limited = ["sh", "-c", 'ulimit -n 16; exec "$@"', "sh", *command]
    done = subprocess.run(limited, cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "Too many open files" in done.stderr


def is_printable(text):
    return text.replace("\n", "").isprintable()


def test_strangers_text_in_a_run_folder_does_not_steer_the_terminal(lur, tmp_path):
    assert lur("train", "quadratic", *SMALL, "--run-dir", "run")[0] == 0
    run = tmp_path / "run"
    environment = json.loads((run / "environment.json").read_text())
    environment["begun"]["host"] = HOSTILE
    (run / "environment.json").write_text(json.dumps(environment))
    status, out, err = lur("train", "--run-dir", "run", "--rounds", 3)
    assert (status, err) == (0, "")
    assert r"environment has changed, so the last digits may differ: host \x1b[2J" in out
    assert is_printable(out)
    result = {"state": "diverged", "round": 3, "why": HOSTILE}
    write_with_digest(run / "result.json", result)
    status, out, err = lur("train", "--run-dir", "run")
    assert (status, err) == (1, "")
    assert is_printable(out)
    (run / "result.json").unlink()
    lines = (run / "log.jsonl").read_text().splitlines()
    (run / "log.jsonl").write_text(
        "\n".join([*lines[:-1], json.dumps(json.loads(lines[-1]) | {"round": HOSTILE})]) + "\n"
    )
    status, out, err = lur("report", "run")
    assert (status, err.count("\n")) == (2, 1)
    assert is_printable(out + err)
    info = json.loads((run / "run.json").read_text())
    for changes in ({"version": 2, "lur": HOSTILE}, {"format": HOSTILE}, {"kind": HOSTILE}):
        info.pop("sha256", None)
        write_with_digest(run / "run.json", info | changes)
        status, out, err = lur("train", "--run-dir", "run")
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert is_printable(err)


def test_a_configuration_prints_only_printable_text(lur, tmp_path):
    (tmp_path / "run.toml").write_text(f'task = "digits"\nword_count = {json.dumps(HOSTILE)}\n')
    _, out, err = lur("config", "--config", "run.toml")
    assert is_printable(out + err)
    (tmp_path / "again.toml").write_text(to_toml(RunConfig("digits", store=HOSTILE)))
    assert is_printable((tmp_path / "again.toml").read_text())
    assert str(config_from_values(read_toml(tmp_path / "again.toml")).store) == HOSTILE


@pytest.mark.full
def test_a_launcher_prints_only_printable_text(tmp_path):
    (tmp_path / "lur.toml").write_text(f"task = {json.dumps(HOSTILE)}\n")
    command = [sys.executable, *LUR[1:], "launch", "--processes", "2", "--", "train", "--config", "lur.toml"]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 2
    assert is_printable(done.stderr)


def test_a_sheet_of_hostile_text_and_of_other_features(lur, tmp_path):
    client = {"snippets": [HOSTILE.encode() + b"$\\frac$", b"b"]}
    write_store(tmp_path / "s", [("$x_" + "1", client), ("b", client)], {})
    status, out, err = lur("data", "show", "shakespeare", "--store", "s", "--out", "s.png")
    assert (status, out, err) == (0, "s.png\n", "")
    for task in ("femnist", "cifar100", "stackoverflow_nwp"):
        status, out, err = lur("data", "show", task, "--store", "s", "--out", "t.png")
        assert (status, out) == (2, "")
        assert err.endswith("found snippets ragged uint8\n")
    assert not (tmp_path / "t.png").exists()
