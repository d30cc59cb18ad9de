"""`lur sweep`, `lur tune`, `lur decay`, `lur report`, `lur reproduce` in this process."""

import json
import tomllib

import pytest

from lur.runs.sweep_results import read_sweep
from lur.training.configuration import RunConfig
from lur.training.experiment import load_task
from lur.training.sweep_plan import GAMMAS, SweepConfig, default_client_lrs, plan_sweep

SMALL = ["--rounds", "4", "--clients", "5", "--clients-per-round", "2", "--theta", "1:2"]


def test_a_sweep_its_folder_and_its_page(lur, tmp_path):
    status, out, _ = lur("sweep", "quadratic", *SMALL, "--client-lr", "0,0.1", "--server-lr", "0.1,1e30")
    assert status == 0
    assert "all 4 cells in one program" in out
    assert "mean loss over the last 1 rounds" in out
    assert out.splitlines()[-2].split()[-2:] == ["x", "2"]
    path = tmp_path / "runs" / "sweep-quadratic"
    assert read_sweep(path).sweep.client_lr == (0.0, 0.1)
    assert {figure.name for figure in (path / "figures").iterdir()} == {"sweep.svg", "sweep.png"}
    assert "nothing to do" in lur("sweep", "--run-dir", path)[1]
    status, _, err = lur("sweep", "quadratic", *SMALL, "--client-lr", "0.1")
    assert status == 2
    assert "client_lr 0,0.1 -> 0.1; server_lr 0.1,1e+30 -> 0.001," in err
    assert lur("report", path, "--out", "page.html")[0] == 0
    assert "finished: 4 cells of 4 rounds, 2 diverged" in (tmp_path / "page.html").read_text()


def test_tune_and_decay(lur, tmp_path):
    rates = ["--client-lr", "0.1,1e30", "--server-lr", "0.1,0.01"]
    status, out, _ = lur("tune", "quadratic", *SMALL, *rates, "--run-dir", "t", "--csv", "t.csv", "--json", "t.json")
    assert status == 0
    found = json.loads((tmp_path / "t.json").read_text())
    assert [(row["gamma"], row["eta"], row["diverged"]) for row in found] == [(0.1, 0.1, 0), (1e30, None, 2)]
    assert (tmp_path / "t.csv").read_bytes() == (tmp_path / "t" / "tuned.csv").read_bytes()
    assert "all diverged" in out
    status, out, err = lur("decay", "quadratic", *SMALL, *rates, "--run-dir", "short", "--client-lr", "1e30")
    assert status == 2
    assert "--client-lr must have a gamma for which some eta trains, got 1e+30" in err
    status, out, err = lur("decay", "quadratic", *SMALL, *rates, "--run-dir", "d", "--rounds", "40")
    assert (status, err) == (0, "")
    assert "gamma 1e+30: diverges for every eta" in out
    assert out.splitlines()[-1] == "LocalUpdateDecay: gamma 0.1, eta 0.1"
    assert read_sweep(tmp_path / "d" / "gamma-0.1").sweep.run.decay == "paper"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["sweep"], "expected a task, one of femnist"),
        (
            ["sweep", "quadratic", "--client-lr", "a,b"],
            "--client-lr must be comma-separated numbers",
        ),
        (["sweep", "quadratik"], "did you mean quadratic?"),
        (["sweep", "quadratic", "--tied", "--server-lr", "1"], "server_lr must be left out where it is tied"),
        (["decay"], "expected a task or --config FILE"),
        (["report", "nowhere"], "nowhere: expected the folder of a run"),
        (["report", ".", "--out", "no/where.html"], "--out must name a file in an existing folder"),
        (["reproduce", "fig2", "--task", "digit"], "did you mean digits?"),
        (["reproduce", "fig2", "--rounds", "3"], "--rounds applies to heterogeneity only"),
        (["reproduce", "fig2", "--store", "x"], "--store needs --task"),
    ],
)
def test_bad_input_is_one_sentence(lur, arguments, says):
    status, _, err = lur(*arguments)
    assert status == 2
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(("method", "zero"), [("scaffold", False), ("proxskip", False), ("fedprox", True)])
def test_default_client_rates_leave_out_0_where_the_method_refuses_it(method, zero):
    run = RunConfig("quadratic", method=method, rounds=2, clients=4)
    task = load_task(run)
    gammas = default_client_lrs(run, task)
    assert gammas == (GAMMAS if zero else GAMMAS[1:])
    assert plan_sweep(SweepConfig(run, gammas, (1.0,)), task).sweep.client_lr == gammas


def test_sweep_scaffold_with_default_client_rates(lur, tmp_path):
    sweep = ("sweep", "quadratic", "--clients", 4, "--server-lr", 1, "--rounds", 2, "--run-dir", tmp_path / "sweep")
    assert lur(*sweep, "--method", "scaffold", "--quiet")[0] == 0
    kept = tomllib.loads((tmp_path / "sweep" / "config.toml").read_text())
    assert kept["sweep"]["client_lr"] == [*GAMMAS[1:]]
