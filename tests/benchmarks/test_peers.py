"""The race against other frameworks: all do the same work, skips have reasons, and the peers' models equal lur's."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.speed import case, comparison, environments
from benchmarks.speed.contenders import PEERS
from benchmarks.speed.environments import Environment, Unavailable, last_lines, python_of
from benchmarks.speed.lur_worker import linear_gradient
from benchmarks.speed.memory import peak_memory
from benchmarks.speed.peers import jax_models
from benchmarks.speed.race import Result, race, relative_difference
from benchmarks.speed.table import does_same_work, record, table
from benchmarks.speed.workloads import WORKLOADS, Sizes

PEER = """
import sys, time
sys.path.insert(0, {folder!r})
import numpy as np
from protocol import Done, serve

def contender(case):
    if {kind!r} == "dead":
        sys.exit("this peer cannot do it")
    def run(rounds):
        x, examples = case.params["kernel"].astype(np.float64), 0
        for clients in case.rows[:rounds]:
            models = []
            for batches in clients:
                y = x.copy()
                for rows in batches[: len(batches) // 2 if {kind!r} == "lazy" else None]:
                    a, b = case.data["x"][rows], case.data["y"][rows]
                    y -= case.client_lr * a.T @ (1 / (1 + np.exp(-a @ y)) - b) / len(rows)
                    examples += len(rows)
                models.append(y)
            x = np.mean(models, axis=0)
        print("this is not an answer")
        return Done(1e-3 * rounds, examples, {{"kernel": x.astype(np.float32)}})
    return run

serve(contender, ("numpy",))
"""
SIZES = Sizes(3, 4, 2)


def test_contenders_that_do_other_work_are_named(tmp_path):
    commands = {}
    folder = str(Path(comparison.__file__).parent / "peers")
    for kind in ("honest", "lazy", "dead"):
        file = tmp_path / f"{kind}.py"
        file.write_text(PEER.format(folder=folder, kind=kind))
        commands[kind] = [sys.executable, str(file)]
    names = ("lur", "floor", *commands)
    results, skipped = race("tiny", WORKLOADS["tiny"], SIZES, names, rounds=5, turns=2, commands=commands)
    by_name = {result.name: result for result in results}
    assert set(by_name) == {"lur", "floor", "honest", "lazy"}
    assert list(skipped) == ["dead"]
    assert "this peer cannot do it" in skipped["dead"]
    assert by_name["floor"].difference is None
    assert by_name["honest"].difference is not None
    assert 0 < by_name["honest"].difference < 1e-5
    assert by_name["honest"].seconds == pytest.approx(1e-3)
    assert by_name["lur"].memory is None or by_name["lur"].memory > 2**20
    assert {name: does_same_work(result, SIZES, 1e-5) for name, result in by_name.items()} == {
        "lur": True, "floor": True, "honest": True, "lazy": False,
    }  # fmt: skip
    assert "not the same work: lazy" in table(results, skipped, SIZES, 1e-5)


def test_a_race_without_its_reference_fails(tmp_path):
    file = tmp_path / "dead.py"
    file.write_text("raise SystemExit('no')")
    with pytest.raises(ValueError, match="the reference lur must run, but it was skipped: `setup` failed: no"):
        race(
            "tiny", WORKLOADS["tiny"], SIZES, ("lur",), rounds=1, turns=1, commands={"lur": [sys.executable, str(file)]}
        )


@pytest.mark.parametrize(
    ("script", "limit", "message"),
    [
        ("echo a; echo b; echo the index has no such package >&2; exit 1", 10.0, "b | the index has no such package"),
        ("echo WARNING: /some/folder; echo ERROR: No matching distribution found for x==1; exit 1", 10.0,
         "failed: no matching distribution found for x==1"),
        ("sleep 5", 0.2, "took more than"),
    ],
)  # fmt: skip
def test_an_environment_that_cannot_be_created_gives_the_reason(tmp_path, monkeypatch, script, limit, message):
    uv = tmp_path / "uv"
    uv.write_text(f"#!/bin/sh\n{script}\n")
    uv.chmod(0o755)
    monkeypatch.setenv("LUR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(environments.shutil, "which", lambda name: str(uv) if name == "uv" else None)
    with pytest.raises(Unavailable) as error:
        python_of("peer", Environment(("nothing==0",)), limit)
    assert message in str(error.value)
    assert not list((tmp_path / "cache" / "peers").iterdir())


def test_an_environment_is_created_once(tmp_path, monkeypatch):
    uv = tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/calls\n[ "$1" = venv ] && mkdir -p "$5"\nexit 0\n')
    uv.chmod(0o755)
    monkeypatch.setenv("LUR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(environments.shutil, "which", lambda name: str(uv) if name == "uv" else None)
    first, again = (python_of("peer", Environment(("x==1",))) for _ in range(2))
    other = python_of("peer", Environment(("x==2",)))
    assert first == again != other
    assert (tmp_path / "calls").read_text().split() == ["venv", "pip"] * 2


def test_last_lines_are_short_and_without_escape_sequences():
    assert last_lines("a\n\n\x1b[31mb\x1b[0m\n" + "c" * 1000, 2) == f"b | {'c' * 150} ... {'c' * 150}"


def test_the_table_is_sorted_by_time_and_the_record_has_versions():
    results = [
        Result("lur", 0.5, 4, 3.0, 2**20, 24.0, 0.0, {"jax": "1"}),
        Result("torch", 1.0, 4, 1.0, None, 24.0, 1e-6, {}),
        Result("floor", 0.25, 4, 1.0, 2**21, 24.0, None, {}),
    ]
    lines = table(results, {"tff": "gone"}, SIZES, 1e-5).splitlines()
    assert [line.split()[0] for line in lines] == ["s/round", "floor", "lur", "torch", "skipped:"]
    assert lines[2].split() == ["lur", "0.5", "4", "3.0", "1", "1.00", "2.00", "0e+00"]
    assert lines[3].split() == ["torch", "1", "4", "1.0", "2.00", "4.00", "1e-06"]
    assert lines[4] == "skipped: tff: gone"
    kept = record("tiny", SIZES, 2, results, {"tff": "gone"}, {"cores": 2})
    assert kept["K"] == 4
    assert kept["results"][0]["versions"] == {"jax": "1"}
    assert kept["skipped"] == {"tff": "gone"}


def test_the_difference_is_relative_to_the_distance_moved():
    a, b, c = ({"x": np.full(2, value, np.float32)} for value in (1.0, 2.0, 3.0))
    assert relative_difference(b, c, a) == 0.5
    assert relative_difference({}, c, a) == float("inf")
    assert relative_difference({"x": np.ones(3)}, c, a) == float("inf")


def test_the_memory_of_an_ended_process_is_unknown():
    assert peak_memory(2**22 + 1) is None


@pytest.mark.parametrize("task", list(WORKLOADS))
def test_the_models_of_the_peers_equal_lurs(task):
    workload = WORKLOADS[task]
    init, loss = workload.model("plain")
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(init, jax.random.key(0))
    params = jax.tree.map(lambda leaf: 0.1 * rng.standard_normal(leaf.shape, np.float32), shapes)
    both = jax.jit(lambda params, names, batch: (loss(params, batch), jax_models.LOSSES[task](names, batch)))
    ours, theirs = both(params, case.named_parameters(params), workload.examples(rng, 1))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_the_schedule_of_a_client_has_only_its_own_rows():
    data = WORKLOADS["tiny"].examples(np.random.default_rng(0), 2 * SIZES.examples)
    rows = case.schedule(case.store_of(data, SIZES), SIZES, 3)
    assert rows.shape == (3, *SIZES)
    owners = rows // (SIZES.K * SIZES.B)
    assert (owners == owners[:, :, :1, :1]).all()
    assert all(len(set(owner)) == SIZES.M for owner in owners[:, :, 0, 0])
    assert owners.max() < 2 * SIZES.M


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"peers": "torch,tochr"}, f"--peers must be among {', '.join(PEERS)}, got 'tochr'"),
        ({"peers": "", "steps": 0}, "--steps must be >= 1, got 0"),
        ({"peers": "", "forms": "lur-fast"}, "--forms must be among lur, lur-plain-vmap, floor, got 'lur-fast'"),
    ],
)
def test_invalid_options_are_refused_before_anything_runs(options, message):
    with pytest.raises(ValueError, match=message):
        comparison.measure("tiny", **options)


def test_the_floor_of_a_linear_model_is_its_gradient():
    workload = WORKLOADS["stackoverflow_tp"]
    init, loss = workload.model("plain")
    params, batch = init(jax.random.key(0)), workload.examples(np.random.default_rng(0), 12)
    params = jax.tree.map(
        lambda leaf: leaf + 0.1 * np.cos(np.arange(leaf.size, dtype=np.float32)).reshape(leaf.shape), params
    )
    gradient = linear_gradient(workload.linear, params, jax.tree.map(jnp.asarray, batch))
    for name, expected in jax.grad(loss)(params, batch)["params"].items():
        np.testing.assert_allclose(gradient[name], expected, rtol=1e-4, atol=1e-9)
