"""An edited configuration is refused with the difference; flags extend a run, wherever they are killed."""

import json
from dataclasses import replace

import pytest

from lur import tasks
from lur.runs import folder, kept_config
from lur.runs.errors import RunError
from lur.runs.reader import read_run
from lur.runs.sweep_run import sweep_in_folder
from lur.runs.train_run import read_run_config, train_in_folder
from lur.training.configuration import RunConfig
from lur.training.experiment import resolve
from lur.training.sweep_plan import SweepConfig, plan_sweep

TASK = tasks.load("quadratic", clients=8)
RUN = RunConfig("quadratic", rounds=4, clients=8, clients_per_round=3, theta="1:2", checkpoint_every=2)
COMMAND = ["train", "quadratic", "--clients", 8, "--clients-per-round", 3, "--theta", "1:2", "--run-dir", "run"]


def train(path, config=RUN):
    return [*train_in_folder(path, resolve(config, TASK), notify=lambda line: None)]


def edit(file, before, after):
    text = file.read_text()
    assert text.count(before) == 1
    file.write_text(text.replace(before, after))


EDITS = [
    ("client_lr = 0.1", "client_lr = 0.5", "client_lr 0.1 -> 0.5"),
    ("rounds = 4", "rounds = 6", "rounds 4 -> 6"),
    ("rounds = 4", "rounds = 2", "rounds 4 -> 2"),
    ('theta = "1:2"', 'theta = "K=2"', "theta 1:2 -> K=2"),
    ('layout = "auto"', 'layout = "sequential"', "layout auto -> sequential"),
    ("checkpoint_seconds = 60.0", "checkpoint_seconds = 1.0", "checkpoint_seconds 60.0 -> 1.0"),
    ('weighting = "uniform"\n', "", "weighting uniform -> none"),
]


@pytest.mark.parametrize(("before", "after", "says"), EDITS)
def test_an_edited_configuration_is_refused_with_the_difference(lur, tmp_path, before, after, says):
    path = tmp_path / "run"
    train(path)
    edit(path / "config.toml", before, after)
    content = {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != "lock"}
    for arguments in (["train", "--run-dir", path], [*COMMAND, "--rounds", 6], ["report", path]):
        status, _, err = lur(*arguments)
        assert status == 2
        assert f"config.toml: expected the configuration that the run began with, found {says}" in err
        assert err.count("\n") == 1
    assert content == {file: file.read_bytes() for file in content}


def test_a_comment_is_no_edit(tmp_path):
    train(tmp_path)
    with (tmp_path / "config.toml").open("a") as file:
        file.write("# our best run\n")
    assert read_run(tmp_path).state == "finished"
    train(tmp_path, replace(RUN, rounds=6))
    assert read_run_config(tmp_path).rounds == 6


def test_an_edited_sweep_is_refused(tmp_path):
    sweep = SweepConfig(RUN, (0.1, 0.5), (0.1, 1.0))

    def run(sweep):
        return [*sweep_in_folder(tmp_path, plan_sweep(sweep, TASK), notify=lambda line: None)]

    run(sweep)
    run(replace(sweep, run=replace(RUN, checkpoint_every=1)))
    assert "checkpoint_every = 1" in (tmp_path / "config.toml").read_text()
    edit(tmp_path / "config.toml", "client_lr = [0.1, 0.5]", "client_lr = [0.1, 0.7]")
    with pytest.raises(RunError, match=r"found sweep.client_lr \[0.1, 0.5\] -> \[0.1, 0.7\]; undo the edit"):
        run(sweep)
    with pytest.raises(RunError, match=r"found sweep.client_lr"):
        run(replace(sweep, client_lr=(0.1, 0.7)))


@pytest.mark.parametrize("name", ["config", "data", "kind"])
def test_an_edited_run_json_is_refused(tmp_path, name):
    train(tmp_path)
    info = json.loads((tmp_path / "run.json").read_text())
    info[name] = info[name].replace("rounds = 4", "rounds = 6") + " "
    (tmp_path / "run.json").write_text(json.dumps(info))
    with pytest.raises(RunError, match=r"run.json: expected the SHA-256 that it records, found another"):
        train(tmp_path)


@pytest.mark.parametrize("writes", range(4))
@pytest.mark.parametrize("asked", [6, 7])
def test_an_extension_that_is_killed_after_any_write(tmp_path, monkeypatch, writes, asked):
    """The run goes on with the old or the new configuration, and an edit is still noticed."""
    train(tmp_path)
    done = []

    def write_file(path, content):
        if len(done) == writes:
            raise KeyboardInterrupt
        done.append(path.name)
        folder_write(path, content)

    folder_write = folder.write_file
    with monkeypatch.context() as patch:
        for module in (folder, kept_config):
            patch.setattr(module, "write_file", write_file)
        with pytest.raises(KeyboardInterrupt):  # after three writes the configuration is kept, and the result is not
            train(tmp_path, replace(RUN, rounds=6))
    assert done == ["run.json", "config.toml", "run.json"][:writes]
    assert read_run_config(tmp_path).rounds == (6 if writes else 4)
    train(tmp_path, replace(RUN, rounds=asked))
    assert read_run_config(tmp_path).rounds == asked
    assert len(read_run(tmp_path).rounds) == asked
    assert f"rounds = {asked}\n" in (tmp_path / "config.toml").read_text()
    assert "superseded" not in json.loads((tmp_path / "run.json").read_text())
    edit(tmp_path / "config.toml", f"rounds = {asked}", "rounds = 4")
    with pytest.raises(RunError, match=f"found rounds {asked} -> 4"):
        read_run_config(tmp_path)


def test_a_folder_of_an_earlier_version_resumes_and_keeps_its_configuration(tmp_path):
    train(tmp_path)
    info = json.loads((tmp_path / "run.json").read_text())
    result = json.loads((tmp_path / "result.json").read_text())
    for name in ("config", "sha256"):
        del info[name]
    for name in ("logs", "sha256"):
        del result[name]
    (tmp_path / "run.json").write_text(json.dumps(info, indent=1))
    (tmp_path / "result.json").write_text(json.dumps(result, indent=1))
    assert train(tmp_path) == []
    assert [at.rounds for at in train(tmp_path, replace(RUN, rounds=6))] == [6]
    edit(tmp_path / "config.toml", "rounds = 6", "rounds = 8")
    with pytest.raises(RunError, match="found rounds 6 -> 8"):
        train(tmp_path, replace(RUN, rounds=6))
