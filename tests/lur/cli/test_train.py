"""`lur train` and `lur config` with files and folders, in this process."""

import errno
import os
import sys
import tomllib

import pytest

from lur.runs.reader import read_run
from lur.training.loop import StopRequest

SMALL = ["--rounds", "4", "--clients", "5", "--clients-per-round", "2", "--theta", "1:1"]


def test_one_configuration_as_flags_file_and_folder(lur, tmp_path):
    status, printed, _ = lur("config", "quadratic", *SMALL, "--seed", 7)
    assert status == 0
    assert tomllib.loads(printed)["server_lr"] == 0.1  # the task's own
    (tmp_path / "run.toml").write_text(printed)
    assert lur("train", "quadratic", *SMALL, "--seed", 7, "--run-dir", "flags")[0] == 0
    assert lur("train", "--config", "run.toml", "--run-dir", "file")[0] == 0
    assert (
        (tmp_path / "flags" / "config.toml").read_text() == (tmp_path / "file" / "config.toml").read_text() == printed
    )
    logs = [(tmp_path / name / "log.jsonl").read_bytes() for name in ("flags", "file")]
    assert logs[0] == logs[1]
    assert lur("config", "--run-dir", "file")[1] == printed
    status, out, _ = lur("train", "--run-dir", "file")
    assert (status, out.splitlines()[-1]) == (0, "file: finished after 4 rounds; nothing to do")
    drawn = (tmp_path / "file" / "figures" / "run.svg").read_text()
    status, out, _ = lur("train", "--run-dir", "file", "--rounds", "6")
    assert (status, "file: resuming after round 4" in out) == (0, True)
    assert len(read_run(tmp_path / "file").rounds) == 6
    assert read_run(tmp_path / "file").config["rounds"] == 6
    assert (tmp_path / "file" / "figures" / "run.svg").read_text() != drawn  # of six rounds now


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["train", "quadratik"], "got 'quadratik'; did you mean quadratic?"),
        (["train"], "expected a task, one of femnist"),
        (["train", "--run-dir", "none"], "expected a task, one of femnist"),
        (["config", "femnits"], "did you mean femnist?"),
        (["train", "--config", "none.toml"], "none.toml: expected a configuration, found no such file"),
        (
            ["train", "--config", "bad.toml"],
            "bad.toml: expected the name of a setting, got clint_lr = 1; did you mean client_lr",
        ),
        (["train", "quadratic", "--run-dir", "bad.toml"], "bad.toml: expected the folder of a run, found a file"),
        (
            ["train", "quadratic", "--run-dir", "full"],
            "full: expected the folder of a run or an empty one, found thesis",
        ),
        (["train", "quadratic", "--run-dir", "old"], "expected a run folder of version 1, found version 0"),
        (
            ["train", "quadratic", "--run-dir", "old", "--no-resume"],
            "--run-dir must name a new folder with --no-resume",
        ),
        (["train", "quadratic", "--run-dir", "bad.toml/run"], "Not a directory"),
        (["train", "quadratic", "--tensorboard"], "--tensorboard needs a --run-dir"),
    ],
)
def test_refused_in_one_sentence(lur, tmp_path, arguments, says):
    (tmp_path / "bad.toml").write_text("task = 'quadratic'\nclint_lr = 1\n")
    for name, file, content in (("full", "thesis", ""), ("old", "run.json", '{"format": "lur-run", "version": 0}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(content)
    before = sorted(path for path in tmp_path.rglob("*") if "cache" not in str(path) and "jax" not in str(path))
    status, _, err = lur(*arguments)
    assert status == 2
    assert says in err
    assert err.startswith("lur: ")
    assert err.count("\n") == 1
    after = sorted(path for path in tmp_path.rglob("*") if "cache" not in str(path) and "jax" not in str(path))
    assert [path for path in after if path.name != "lock"] == before


def test_figures_are_in_the_folder_once_the_run_has_ended(lur, tmp_path, monkeypatch):
    run, figures = tmp_path / "run", tmp_path / "run" / "figures"
    with monkeypatch.context() as patch:
        patch.setattr(StopRequest, "__init__", lambda self: setattr(self, "signal", 2))
        lur("train", "quadratic", *SMALL, "--run-dir", "run")
    assert read_run(run).state == "stopped"
    assert not figures.exists()
    assert lur("train", "--run-dir", "run")[0] == 0
    assert {path.name for path in figures.iterdir()} == {"run.svg", "run.png"}
    whole = (figures / "run.svg").read_bytes()
    (figures / "run.svg").unlink()
    (figures / "run.svg.partial").write_bytes(whole[:1000])  # as a kill would leave it
    assert lur("train", "--run-dir", "run")[0] == 0
    assert (figures / "run.svg").read_bytes() == whole
    assert {path.name for path in figures.iterdir()} == {"run.svg", "run.png"}


def test_a_disk_too_full_for_figures_keeps_the_run(lur, tmp_path, monkeypatch):
    def full(figure, file, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("matplotlib.figure.Figure.savefig", full)
        status, _, err = lur("train", "quadratic", *SMALL, "--run-dir", "run")
    assert status == 2
    assert err == (
        "lur: [Errno 28] No space left on device; run lacks only its figures: fix the problem and run the same "
        "command again\n"
    )
    assert read_run(tmp_path / "run").state == "finished"
    assert not [*(tmp_path / "run").glob("figures*")]
    assert lur("train", "--run-dir", "run")[0] == 0
    assert (tmp_path / "run" / "figures" / "run.png").exists()


def test_nan_at_round_1(lur, tmp_path):
    status, _, err = lur("train", "quadratic", *SMALL[:-2], "--client-lr", "1e30", "--run-dir", "run")
    assert status == 1
    assert err == "lur: diverged in round 1: update_norm is nan; its log is in run\n"
    record = read_run(tmp_path / "run")
    assert (record.state, len(record.rounds)) == ("diverged", 1)
    assert record.rounds[0]["update_norm"] == "NaN"
    assert (tmp_path / "run" / "figures" / "run.png").exists()
    assert lur("train", "--run-dir", "run")[0] == 1


def test_tensorboard(lur, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "tensorboardX", None)
        status, _, err = lur("train", "quadratic", *SMALL, "--run-dir", "run", "--tensorboard")
    assert status == 2
    assert err == 'lur: --tensorboard needs tensorboardX: pip install "lur-jax[tensorboard]"\n'
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    assert lur("train", "quadratic", *SMALL, "--run-dir", "run", "--tensorboard")[0] == 0
    assert [*(tmp_path / "run" / "tensorboard").glob("events*")]
