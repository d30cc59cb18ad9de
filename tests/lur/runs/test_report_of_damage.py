"""`lur report` on damaged and hostile files: a page, or one sentence that names the file."""

import json
import math
import shutil

import pytest

from lur.runs.reader import block_statistics
from lur.runs.sweep_run import sweep_in_folder
from lur.runs.train_run import train_in_folder
from lur.training.configuration import RunConfig
from lur.training.experiment import resolve
from lur.training.sweep_plan import SweepConfig, plan_sweep
from tests.lur.runs.test_kept_config import TASK

RUN = RunConfig("quadratic", rounds=4, clients=8, clients_per_round=3, theta="1:2", evaluate_every=2)
HUGE = '{"round": ' + "9" * 5000 + "}"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """By kind, the files of a run of two rounds, of a sweep, and of what `lur reproduce` wrote."""
    path = tmp_path_factory.mktemp("runs")
    [*train_in_folder(path / "train", resolve(RUN, TASK), notify=str)]
    [*sweep_in_folder(path / "sweep", plan_sweep(SweepConfig(RUN, (0.1,), (0.1, 0.5)), TASK), notify=str)]
    for kind in ("train", "sweep"):
        (path / kind / "result.json").unlink()  # stopped: with it, the digests of the logs would notice
    verdict = {"task": "digits", "paper": "a", "shows": "b", "agrees": True}
    entry = {"name": "fig2", "data": {"digits": "real"}, "rounds": {"digits": 3}, "verdicts": [verdict]}
    (path / "fig").mkdir()
    (path / "fig" / "fig2.json").write_text(json.dumps(entry))
    return {
        kind: {file.name: file.read_bytes() for file in (path / kind).iterdir() if file.is_file()}
        for kind in ("train", "sweep", "fig")
    }


def line(**changes):
    """The first line of a log with changes; None removes a field."""
    return lambda content: b"".join([_changed(content.splitlines()[0], changes), *content.splitlines(True)[1:]])


def whole(**changes):
    """The object of a file with changes, without the file's digest."""
    return lambda content: _changed(content, {"sha256": None, **changes})


def _changed(content, changes):
    entry = json.loads(content) | changes
    return json.dumps({name: value for name, value in entry.items() if value is not None}).encode() + b"\n"


REFUSED = [
    ("train", "log.jsonl", line(loss=None)),
    ("train", "log.jsonl", line(loss={"a": 1})),
    ("train", "log.jsonl", line(round="1")),
    ("train", "log.jsonl", line(round=10**400)),
    ("train", "log.jsonl", HUGE + "\n"),
    ("train", "log.jsonl", "[" * 100_000 + "\n"),
    ("train", "evaluation.jsonl", line(f="abc")),
    ("train", "timing.jsonl", line(seconds=[1])),
    ("train", "environment.json", "[]"),
    ("train", "environment.json", whole(begun=[1])),
    ("train", "environment.json", whole(later={"a": 1})),
    ("train", "environment.json", HUGE),
    ("train", "environment.json", b"\xff\xfe\x00"),
    ("train", "result.json", "{}"),
    ("train", "result.json", '{"state": "finished", "round": "1"}'),
    ("train", "result.json", '{"state": "finished", "round": NaN}'),
    ("train", "result.json", '{"state": "finished", "round": 4, "logs": {"log.jsonl": 3}}'),
    ("train", "config.toml", "rounds = " + "9" * 5000),
    ("train", "config.toml", "a = " + "[" * 5000),
    ("train", "config.toml", "rounds = 1e400\n"),
    ("train", "run.json", whole(config=3)),
    ("train", "run.json", whole(config="a = [[[")),
    ("sweep", "log.jsonl", line(cells=None)),
    ("sweep", "log.jsonl", line(cells=[0, 7])),
    ("sweep", "log.jsonl", line(cells=[0, -1])),
    ("sweep", "log.jsonl", line(cells=[0, True])),
    ("sweep", "log.jsonl", line(loss=[1.0])),
    ("sweep", "log.jsonl", line(loss=["one", 2.0])),
    ("sweep", "log.jsonl", line(round=None)),
    ("sweep", "log.jsonl", line(diverged=["a"])),
    ("sweep", "log.jsonl", line(diverged={"x": "y"})),
    ("sweep", "log.jsonl", line(diverged={"1": {"deep": 1}})),
    ("sweep", "evaluation.jsonl", line(f=3)),
    ("sweep", "evaluation.jsonl", line(accuracy=[{}, {}])),
    ("fig", "fig2.json", whole(verdicts={"a": 1})),
    ("fig", "fig2.json", whole(verdicts=["a"])),
    ("fig", "fig2.json", whole(verdicts=[{"agrees": [1]}])),
    ("fig", "fig2.json", whole(data=[1])),
    ("fig", "fig2.json", whole(rounds="many")),
    ("fig", "fig2.json", whole(environment=[1])),
    ("fig", "fig2.json", HUGE),
]
SHOWN = [
    ("train", "log.jsonl", line(loss=1e308)),
    ("train", "log.jsonl", line(loss=-1.7e308, update_norm=1.7e308)),
    ("train", "log.jsonl", line(loss="NaN", update_norm="Infinity")),
    ("train", "log.jsonl", line(loss=math.nan, update_norm=-math.inf, client_lr=math.nan)),
    ("train", "log.jsonl", line(client_lr=1e308, server_lr=5e-324)),
    ("train", "log.jsonl", line(loss=10**300, client_lr=10**300)),
    ("train", "evaluation.jsonl", line(f=1e308, accuracy={"a": [1]})),
    ("train", "evaluation.jsonl", line(f=math.inf, accuracy="\ud800<b>")),
    ("train", "environment.json", whole(begun={"host": "\ud800"})),
    ("train", "environment.json", whole(begun={"a": math.nan})),
    ("train", "result.json", '{"state": "diverged", "round": 4, "why": {"a": "<b>"}}'),
    ("sweep", "log.jsonl", line(loss=[1e308, -1e308], update_norm=["NaN", 1])),
    ("sweep", "log.jsonl", line(loss=["Infinity", 10**300])),
    ("sweep", "evaluation.jsonl", line(f=["NaN", 1e308])),
    ("fig", "fig2.json", whole(name=3, title=[1], scale={}, verdicts=[])),
]


def written(tmp_path, folders, kind, name, content):
    (tmp_path / "run").mkdir()
    for file, original in folders[kind].items():
        (tmp_path / "run" / file).write_bytes(original)
    target = tmp_path / "run" / name
    if callable(content):
        content = content(target.read_bytes())
    target.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.mark.parametrize(("kind", "name", "content"), REFUSED, ids=map(str, range(len(REFUSED))))
def test_damage_is_refused_in_a_sentence(lur, tmp_path, folders, kind, name, content):
    written(tmp_path, folders, kind, name, content)
    status, out, err = lur("report", "run")
    assert (status, out) == (2, "")
    assert err.startswith(f"lur: run/{name}")
    assert (err.count("\n"), len(err) < 500) == (1, True)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(("kind", "name", "content"), SHOWN, ids=map(str, range(len(SHOWN))))
def test_extreme_numbers_and_texts_are_shown(lur, tmp_path, folders, kind, name, content):
    written(tmp_path, folders, kind, name, content)
    assert lur("report", "run") == (0, "report.html\n", "")
    assert "<b>" not in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("depth", [100, 300, 500, 800, 900, 950, 990, 10**5])
def test_nested_objects_are_shown_or_refused(lur, tmp_path, folders, depth):
    """How deep Python's own parser and printer go depends on its version."""
    deep = "[" * depth + "]" * depth
    for kind, name, content in (
        ("train", "environment.json", f'{{"begun": {{"a": {deep}}}}}'),
        ("train", "log.jsonl", f'{{"round": {deep}}}\n'),
        ("fig", "fig2.json", f'{{"environment": {{"a": {deep}}}}}'),
        ("fig", "fig2.json", f'{{"verdicts": {deep}}}'),
        ("fig", "fig2.json", f'{{"title": {deep}}}'),
    ):
        written(tmp_path, folders, kind, name, content)
        status, _, err = lur("report", "run")
        assert (status == 2 and err.startswith("lur: run")) or (status, err) == (0, "")
        assert len(err.splitlines()) == (status == 2)
        shutil.rmtree(tmp_path / "run")


def test_finished_runs_whose_files_changed_are_refused(lur, tmp_path, folders):
    [*train_in_folder(tmp_path / "run", resolve(RUN, TASK), notify=str)]
    for name in ("log.jsonl", "evaluation.jsonl", "result.json"):
        file = tmp_path / "run" / name
        content = file.read_bytes()
        for other in (content.replace(b"0", b"1", 1), content + content.splitlines(True)[-1], content[:-2]):
            file.write_bytes(other)
            status, _, err = lur("report", "run")
            assert (status, err.count("\n")) == (2, 1)
            assert name in err
        file.write_bytes(content)
    assert lur("report", "run")[0] == 0


def test_blocks_of_numbers_whose_squares_or_sums_are_infinite():
    found = block_statistics([{"round": k + 1, "q": sign * 1.5e308} for k, sign in enumerate((1, 1, -1, -1))], "q")
    assert found[0].mean == 0.0
    assert found[0].spread == 1.5e308
    found = block_statistics([{"round": k + 1, "q": 2.0**1000} for k in range(3)], "q")
    assert (found[0].mean, found[0].spread) == (2.0**1000, 0.0)
