"""The page of runs: self-contained, escaped, of runs that are finished, going or cut off."""

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from lur import tasks
from lur.runs.errors import RunError
from lur.runs.report_page import report_page
from lur.runs.sweep_run import sweep_in_folder
from lur.runs.train_run import train_in_folder
from lur.training.configuration import RunConfig
from lur.training.experiment import resolve
from lur.training.sweep_plan import SweepConfig, plan_sweep

TASK = tasks.load("quadratic", clients=8)
RUN = RunConfig("quadratic", rounds=6, clients=8, clients_per_round=3, theta="1:2", evaluate_every=3)
VOID = {"meta", "img", "br"}


class Checked(HTMLParser):
    """Tags that close, and nothing that runs or comes from elsewhere."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        assert tag not in ("script", "iframe", "object", "link")
        for name, value in attrs:
            assert not name.startswith("on")
            assert name not in ("href", "srcset")
            assert name != "src" or value.startswith("data:image/")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def quiet(line):
    pass


def test_a_run_that_goes_and_one_that_was_cut_off(tmp_path):
    path = tmp_path / "<b>run"
    going = train_in_folder(path, resolve(RUN, TASK), chunk=2, notify=quiet)
    next(going)
    text = report_page([path])
    assert "running after 2 of 6 rounds" in text
    assert "&lt;b&gt;run" in text
    assert "<b>" not in text
    going.close()
    with (path / "log.jsonl").open("ab") as file:
        file.write(b'{"round": 3, "lo')
    assert "stopped after 2 of 6 rounds" in report_page([path])
    [*train_in_folder(path, resolve(RUN, TASK), notify=quiet)]
    text = report_page([path])
    assert "finished after 6 of 6 rounds" in text
    assert Checked(text).tags.count("img") == 1
    assert "clients_per_round = 3" in text


def test_a_sweep(tmp_path):
    plan = plan_sweep(SweepConfig(RUN, (0.1, 0.5), (0.1, 1e30)), TASK)
    going = sweep_in_folder(tmp_path, plan, notify=quiet, chunk=2)
    next(going)
    assert "running: 4 cells" in report_page([tmp_path])
    going.close()
    [*sweep_in_folder(tmp_path, plan, notify=quiet)]
    text = report_page([tmp_path])
    Checked(text)
    assert "finished: 4 cells of 6 rounds, 2 diverged" in text
    assert "diverged in round 2" in text
    assert "Best eta for each gamma" in text


def test_before_its_first_round(tmp_path):
    going = train_in_folder(tmp_path, resolve(RUN, TASK), chunk=2, notify=quiet)
    next(going)
    going.close()
    for name in ("log.jsonl", "evaluation.jsonl"):
        (tmp_path / name).write_text("")
    assert "stopped after 0 of 6 rounds" in report_page([tmp_path])


def test_what_reproduce_wrote(tmp_path):
    verdicts = [
        {"task": "digits", "paper": "<script>alert(1)</script>", "shows": "a & b", "agrees": agrees}
        for agrees in (True, False, None)
    ]
    entry = {"name": "fig2", "title": "$x$", "scale": "smoke", "data": {"digits": "real"}, "verdicts": verdicts}
    (tmp_path / "fig2.json").write_text(json.dumps(entry))
    (tmp_path / "fig2.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'><script>alert(2)</script></svg>")
    text = report_page([tmp_path])
    Checked(text)
    assert "1 statements of the paper agree, 1 disagree, 1 are undecided" in text
    assert "&lt;script&gt;" in text
    assert re.search(r">disagrees</td>", text)


def test_no_run(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(RunError, match="expected"):
            report_page([path])


HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</pre><svg onload=alert(1)>",
    "javascript:alert(1)",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "\u2028</title><iframe src=//x>",
    "]]><!--<script>",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_in_every_place_that_a_run_has_for_text(tmp_path, text):
    path = tmp_path / ("run " + text.replace("/", "_"))
    run = dataclasses.replace(RUN, store=Path(text), word_count=Path(text))
    [*train_in_folder(path, resolve(run, TASK), notify=quiet)]
    environment = json.loads((path / "environment.json").read_text())
    environment["begun"] |= {"host": text, text: text}
    (path / "environment.json").write_text(json.dumps(environment))
    (path / "result.json").write_text(json.dumps({"state": "diverged", "round": 6, "why": text, "f": text}))
    for name in ("log.jsonl", "evaluation.jsonl"):
        lines = [json.loads(line) | {"note": text, text: text} for line in (path / name).read_text().splitlines()]
        if name == "evaluation.jsonl":
            lines[-1]["accuracy"] = text
        (path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = report_page([path])
    known = "html head meta title style body h1 h2 h3 p pre table tr td th img"
    assert {*Checked(found).tags} <= {*known.split()}
    assert "default-src 'none'" in found  # no script may run even where one slipped in
    if "<" in text:
        assert text not in found
