"""Symbolic links, pipes and folders in the place of a run's files: nothing is followed, waited for or overwritten."""

import os
import shutil
import socket
from dataclasses import replace

import pytest

from lur import plots
from lur.regular_files import create_new, kind_of, open_in_place, open_regular, read_regular
from lur.runs import folder
from lur.runs.errors import RunError
from lur.runs.figures import save_figures
from lur.runs.files import write_file
from lur.runs.reader import read_run
from lur.runs.report_page import report_page
from lur.runs.train_run import train_in_folder
from lur.training.configuration import RunConfig
from lur.training.experiment import resolve
from tests.lur.runs.test_kept_config import TASK

RUN = RunConfig("quadratic", rounds=4, clients=8, clients_per_round=3, theta="1:2", checkpoint_every=2)
LOGS = ("log.jsonl", "evaluation.jsonl")


def train(path, rounds=4):
    notes = []
    reports = train_in_folder(path, resolve(replace(RUN, rounds=rounds), TASK), notify=notes.append)
    return [at.rounds for at in reports], notes


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "finished"
    train(path)
    return path


@pytest.fixture
def run(tmp_path, finished):
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def victim(tmp_path):
    """A file, and a folder, outside the run folder, which nothing may change."""
    (tmp_path / "outside").mkdir()
    file = tmp_path / "outside" / "thesis.tex"
    file.write_text("years of work")
    yield file
    assert file.read_text() == "years of work"
    assert [path.name for path in file.parent.iterdir()] == ["thesis.tex"]


def replaced(path, kind, victim):
    """Put something else in the place of a file or folder."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    match kind:
        case "symbolic link":
            path.symlink_to(victim)
        case "link to a folder":
            path.symlink_to(victim.parent)
        case "dangling link":
            path.symlink_to(victim.parent / "new")
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "file":
            path.write_text("")
        case "socket":
            where = os.getcwd()
            os.chdir(path.parent)  # names of sockets are short
            with socket.socket(socket.AF_UNIX) as one:
                one.bind(path.name)
            os.chdir(where)


KINDS = (
    "symbolic link",
    "pipe",
    *(pytest.param(kind, marks=pytest.mark.full) for kind in ("dangling link", "folder", "socket")),
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", folder.FILES)
def test_something_else_in_the_place_of_a_file_is_refused(run, victim, name, kind):
    replaced(run / name, kind, victim)
    before = sorted(path.name for path in run.rglob("*"))
    words = "a symbolic link" if "link" in kind else f"a {kind}"
    for action in (lambda: train(run, rounds=6), lambda: report_page([run])):
        with pytest.raises(ValueError, match=rf"{name}: expected a (regular )?file, found {words}"):
            action()
    assert sorted(path.name for path in run.rglob("*")) == before


@pytest.mark.parametrize("kind", ["link to a folder", "file", "pipe"])
@pytest.mark.parametrize("name", folder.FOLDERS)
def test_something_else_in_the_place_of_a_folder_is_refused(run, victim, name, kind):
    replaced(run / name, kind, victim)
    words = "a symbolic link" if "link" in kind else f"a {kind}"
    with pytest.raises(RunError, match=f"{name}: expected a folder, found {words}"):
        train(run, rounds=6)
    with pytest.raises(RunError, match=f"{name}: expected a folder, found {words}"):
        save_figures(run)


@pytest.mark.parametrize("kind", ["symbolic link", "link to a folder", "pipe", "folder"])
def test_what_lies_where_a_partial_file_is_written_is_replaced(tmp_path, run, victim, kind):
    (run / "checkpoints").mkdir(exist_ok=True)
    for name in ("run.json", "config.toml", "result.json", "environment.json", "checkpoints/00000006"):
        replaced(run / f"{name}.partial", kind, victim)
    train(run, rounds=6)
    train(tmp_path / "whole", rounds=6)
    assert all((run / name).read_bytes() == (tmp_path / "whole" / name).read_bytes() for name in LOGS)
    assert kind_of(run / "checkpoints" / "00000006") == "a folder"
    save_figures(run)
    for file in (run / "figures").iterdir():
        replaced(file, "symbolic link", victim)
        replaced(file.with_name(f"{file.name}.partial"), "symbolic link", victim)
    save_figures(run)
    assert {kind_of(file) for file in (run / "figures").iterdir()} == {"a file"}
    assert {file.name for file in (run / "figures").iterdir()} == {"run.svg", "run.png"}


@pytest.mark.parametrize("kind", ["symbolic link", "link to a folder", "pipe", "file"])
def test_what_is_no_folder_among_the_checkpoints_is_set_aside(tmp_path, run, victim, kind):
    replaced(run / "checkpoints" / "00000004", kind, victim)
    replaced(run / "checkpoints" / "damaged-00000004", "link to a folder", victim)
    words = "a symbolic link" if "link" in kind else f"a {kind}"
    rounds, notes = train(run, rounds=6)
    assert rounds == [4, 6]
    assert f"expected the folder of a checkpoint, found {words}" in notes[0]
    train(tmp_path / "whole", rounds=6)
    assert all((run / name).read_bytes() == (tmp_path / "whole" / name).read_bytes() for name in LOGS)


@pytest.mark.parametrize("kind", ["symbolic link", "pipe", "socket"])
def test_what_is_no_file_inside_a_checkpoint_is_damage(run, victim, kind):
    for name in ("manifest.json", "state/_METADATA"):
        replaced(run / "checkpoints" / "00000004" / name, kind, victim)
    rounds, notes = train(run, rounds=6)
    assert rounds == [4, 6]
    assert "00000004" in notes[0]


@pytest.mark.parametrize("name", ["lock", "log.jsonl"])
def test_a_hard_link_to_a_file_elsewhere_is_refused(run, victim, name):
    (run / name).unlink()
    (run / name).hardlink_to(victim)
    if name == "log.jsonl":
        (run / "result.json").unlink()
        shutil.rmtree(run / "checkpoints")
    with pytest.raises(RunError, match=f"{name}: expected a file with one name, found a hard link"):
        train(run)


@pytest.mark.parametrize("kind", ["pipe", "socket", "folder"])
def test_a_configuration_that_is_no_file_is_refused(lur, tmp_path, victim, kind):
    replaced(tmp_path / "run.toml", kind, victim)
    for command in ("train", "config", "sweep"):
        status, _, err = lur(command, "--config", "run.toml")
        assert (status, err) == (2, f"lur: run.toml: expected a regular file, found a {kind}\n")
    (tmp_path / "real.toml").write_text('task = "quadratic"\n')
    (tmp_path / "link.toml").symlink_to(tmp_path / "real.toml")
    assert lur("config", "--config", "link.toml")[0] == 0  # the user names it


def test_the_output_of_a_report_must_be_a_file(lur, tmp_path, run):
    os.mkfifo(tmp_path / "pipe")
    for out in ("pipe", "/dev/null"):
        status, _, err = lur("report", run, "--out", out)
        assert (status, err) == (2, f"lur: --out must name a file in an existing folder, got {out}\n")
    assert kind_of(tmp_path / "pipe") == "a pipe"


def test_the_folder_of_a_decay_may_not_be_a_link(lur, tmp_path, victim):
    (tmp_path / "runs" / "d").mkdir(parents=True)
    (tmp_path / "runs" / "d" / "gamma-0.1").symlink_to(tmp_path / "runs")
    status, _, err = lur("decay", "quadratic", "--clients", 5, "--client-lr", "0.1", "--run-dir", "runs/d")
    assert (status, err) == (2, "lur: runs/d/gamma-0.1: expected the folder of a sweep, found a symbolic link\n")


def test_regular_files(tmp_path, victim):
    file, link = tmp_path / "a", tmp_path / "b"
    file.write_bytes(b"abc")
    link.symlink_to(file)
    assert read_regular(file, 3) == read_regular(link, 3, follow=True) == b"abc"
    with pytest.raises(RunError, match="expected at most 2 bytes, found 3"):
        read_regular(file, 2, error=RunError)
    with pytest.raises(RunError, match="expected a regular file, found a symbolic link"):
        open_regular(link, error=RunError)
    with pytest.raises(ValueError, match="expected a regular file, found a device"):
        open_regular(type(file)("/dev/null"))
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "c")
    with pytest.raises(FileExistsError):
        create_new(link)
    for path in (link, file):
        write_file(path, b"d")
    assert (kind_of(link), file.read_bytes(), link.read_bytes()) == ("a file", b"d", b"d")
    os.close(open_in_place(tmp_path / "e"))
    assert kind_of(tmp_path / "e") == "a file"


def test_two_drawings_at_once_and_one_beside_a_process_that_goes_on(run, monkeypatch):
    """Two starts of a finished run draw at the same time; the second one begins and ends while the first one draws."""
    render, drawn = plots.render, []

    def render_beside(figure):
        drawn.append(figure)
        if len(drawn) == 1:
            save_figures(run)
            assert train(run) == ([], [f"{run}: finished after 4 rounds; nothing to do"])
        return render(figure)

    monkeypatch.setattr(plots, "render", render_beside)
    save_figures(run)
    assert len(drawn) == 2
    assert {file.name for file in (run / "figures").iterdir()} == {"run.svg", "run.png"}
    shutil.rmtree(run / "figures")
    with folder.lock_folder(run):
        save_figures(run)  # whoever has the lock draws when the run ends
    assert not (run / "figures").exists()

    def extend_meanwhile(figure):
        if len(drawn) == 2:
            drawn.append(figure)
            train(run, rounds=5)
        return render(figure)

    monkeypatch.setattr(plots, "render", extend_meanwhile)
    save_figures(run)
    assert not (run / "figures").exists()  # this drawing would be out of date
    assert read_run(run).state == "finished"
