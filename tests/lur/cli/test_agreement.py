"""Processes of one run that were started with different commands: all end, and each names the difference."""

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from lur.cli.launch import _free_port
from lur.data.writer import write_store
from tests.lur.cli.launched import LIMIT, LUR, ROOT

RUN = ["--clients", "8", "--clients-per-round", "4", "--rounds", "4", "--theta", "1:2"]
pytestmark = pytest.mark.promote


@pytest.fixture(scope="module")
def environ(tmp_path_factory):
    return {**os.environ, "LUR_CACHE": str(tmp_path_factory.mktemp("cache")), "JAX_NUM_CPU_DEVICES": "1"}


def finished(environ, commands, changes=({}, {}), patience=60):
    """Statuses and standard errors of two processes that a cluster would start, and the seconds they took."""
    slurm = {"SLURM_JOB_ID": "1", "SLURM_STEP_NODELIST": "127.0.0.1", "SLURM_NTASKS": "2"}
    slurm["JAX_COORDINATOR_PORT"] = str(_free_port())
    since = time.monotonic()
    tasks = [
        subprocess.Popen(
            [*LUR, "launch", "--patience", str(patience), "--", "train", *command], cwd=ROOT, text=True,
            env={**environ, **slurm, "SLURM_PROCID": str(k), "SLURM_LOCALID": str(k), **change},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for k, (command, change) in enumerate(zip(commands, changes, strict=True))
    ]  # fmt: skip
    try:
        errors = [task.communicate(timeout=LIMIT)[1] for task in tasks]
    finally:
        for task in tasks:
            task.kill()
    return [task.returncode for task in tasks], errors, time.monotonic() - since


def assert_ended_with(result, *sentences, status=2):
    statuses, errors, seconds = result
    print(f"{statuses} after {seconds:.1f} s: {errors[0].strip()}", flush=True)
    for code, error in zip(statuses, errors, strict=True):
        assert code == status, errors
        for sentence in sentences:
            assert sentence in error, error
        assert "Traceback" not in error
        assert "stack trace" not in error


def test_processes_with_different_settings_all_end_and_name_each_difference(environ, tmp_path):
    other = ["--seed", "3", "--batch-size", "2", "--rounds", "5", "--theta", "1:3", "--weighting", "examples"]
    result = finished(environ, [["digits", *RUN], ["digits", *RUN, *other, "--run-dir", str(tmp_path / "run")]])
    assert_ended_with(
        result,
        "lur: processes must run the same, got ",
        "seed 0 in process 0 and 3 in process 1",
        "rounds 4 in process 0 and 5 in process 1",
        "theta 1:2 in process 0 and 1:3 in process 1",
        "weighting uniform in process 0 and examples in process 1",
        f"run folder none in process 0 and {tmp_path / 'run'} in process 1",
    )
    assert not (tmp_path / "run").exists()


PROGRAM = """
import sys
import jax, jax.numpy as jnp, numpy as np
import lur
from lur.data.writer import in_memory

coordinator, process, seed, start = sys.argv[1], *map(int, sys.argv[2:])
jax.distributed.initialize(coordinator, 2, process, cluster_detection_method="deactivate")
store = in_memory(((f"{k}", {"x": np.full(3, k, np.float32)}) for k in range(4)), {})
method = lur.local_update(lambda x, batch: ((x - batch["x"]) ** 2).mean(), (1.0, 1.0))
state = method.init(jnp.float32(start), 0.1, 1.0)
try:
    state, _ = lur.run(method, state, store, rounds=2, clients_per_round=2, batch_size=1, seed=seed, layout="sharded")
    print("trained", state.params)
except ValueError as error:
    print(error)
"""


def test_lur_run_compares_what_python_programs_run(environ):
    def said(*arguments):
        coordinator = f"127.0.0.1:{_free_port()}"
        tasks = [
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM, coordinator, str(k), *map(str, each)], cwd=ROOT, text=True, env=environ,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
            for k, each in enumerate(arguments)
        ]  # fmt: skip
        try:
            outputs = [task.communicate(timeout=LIMIT) for task in tasks]
        finally:
            for task in tasks:
                task.kill()
        assert [task.returncode for task in tasks] == [0, 0], outputs
        return [out.splitlines()[-1] for out, _ in outputs]

    first, second = said((5, 0), (5, 0))
    assert first.startswith("trained ")
    assert first == second
    for line in said((5, 0), (6, 1)):
        assert line.startswith("processes must run the same, got seed 5 in process 0 and 6 in process 1; state.params ")


DIFFERENT = {
    "seed": ["--seed", "1"],
    "data_seed": ["--data-seed", "1"],
    "batch_size": ["--batch-size", "3"],
    "theta": ["--theta", "K=2"],
    "weighting": ["--weighting", "examples"],
    "rounds": ["--rounds", "5"],
    "client_lr": ["--client-lr", "0.0625"],
    "server_lr": ["--server-lr", "0.0625"],
    "server": ["--server", "adam"],
    "clients": ["--clients", "9"],
    "clients_per_round": ["--clients-per-round", "3"],
    "heterogeneity": ["--heterogeneity", "0.5"],
    "layout": ["--layout", "sharded:chunked:1"],
    "evaluate_every": ["--evaluate-every", "2"],
    "checkpoint_every": ["--checkpoint-every", "2"],
    "loss_limit": ["--loss-limit", "7"],
    "decay": ["--decay", "paper"],
}


@pytest.mark.faults
@pytest.mark.parametrize("in_folder", [False, True])
@pytest.mark.parametrize("field", DIFFERENT)
def test_one_different_setting(environ, tmp_path, field, in_folder):
    common = ["digits", *RUN, *(["--run-dir", str(tmp_path / "run")] if in_folder else [])]
    assert_ended_with(finished(environ, [common, [*common, *DIFFERENT[field]]]), f"{field} ", "process 0 and ")
    assert not (tmp_path / "run").exists()


@pytest.mark.faults
def test_different_tasks(environ):
    assert_ended_with(finished(environ, [["digits", *RUN], ["quadratic", *RUN]]), "task digits in process 0 and quad")


@pytest.mark.faults
def test_different_run_folders(environ, tmp_path):
    commands = [["digits", *RUN, "--run-dir", str(tmp_path / name)] for name in "ab"]
    assert_ended_with(finished(environ, commands), f"run folder {tmp_path / 'a'} in process 0 and {tmp_path / 'b'}")


@pytest.mark.faults
def test_stores_with_different_bytes_under_one_name(environ, tmp_path):
    commands = []
    for label in (1, 2):
        store = tmp_path / str(label) / "store"
        store.parent.mkdir()
        examples = {"pixels": np.zeros((10, 64), np.float32), "label": np.full(10, label, np.int32)}
        write_store(store, ((f"{k}", examples) for k in range(2)), {"source": "test"})
        commands.append(["digits", "--rounds", "2", "--clients-per-round", "2", "--store", str(store)])
    assert_ended_with(finished(environ, commands), "store label.bin ", "in process 0 and ")


@pytest.mark.faults
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (({}, {"JAX_NUM_CPU_DEVICES": "2"}), "processes must have equal numbers of devices, got 1, 2"),
        (({}, {"SLURM_NTASKS": "3"}), "got 2 in process 0 and 3 in process 1"),
        (({"SLURM_NTASKS": "3"}, {"SLURM_NTASKS": "3"}), "process 2 did not connect"),
        (({}, {"SLURM_PROCID": "0"}), "process 1 did not connect"),
        (({"SLURM_PROCID": "1"}, {}), "cannot connect to process 0"),
    ],
)
def test_processes_that_do_not_fit_together(environ, changes, says):
    statuses, errors, seconds = finished(environ, [["digits", *RUN]] * 2, changes, patience=20)
    print(statuses, f"{seconds:.1f} s", json.dumps([error.strip() for error in errors]), flush=True)
    assert 0 not in statuses
    assert any(says in error for error in errors), errors
    assert all(error.startswith("lur: ") and len(error.splitlines()) == 1 for error in errors), errors
