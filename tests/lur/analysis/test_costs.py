"""The formulas of `lur.analysis.costs` against the compiler's report on the programs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lur.analysis.costs import Cost, Machine, cost, ring_traffic, seconds

ROOT = Path(__file__).resolve().parents[3]
DEVICES = 2
PROGRAM = """
import json, sys
import jax, jax.numpy as jnp
import numpy as np
from lur import tasks
from lur.training import programs
from lur.training.configuration import RunConfig
from lur.training.experiment import num_parameters, resolve
from lur.data.gather import size_in_bytes
from lur.data.writer import in_memory
from lur.tasks.task import Outcomes, Settings, Task

def dense(width=96):
    rng = np.random.default_rng(0)
    rows = [{k: rng.normal(size=(2, width)).astype(np.float32) for k in "xy"} for _ in range(8)]
    store = in_memory((str(i), row) for i, row in enumerate(rows))
    init = lambda key: {"first": jnp.zeros((width, width)), "second": jnp.zeros((width, width))}
    def outcomes(params, z):
        error = jnp.square(jnp.tanh(z["x"] @ params["first"]) @ params["second"] - z["y"]).mean(-1)
        return Outcomes(error, error, error)
    return Task("dense", store, init, lambda key, z: dict(z), dict, outcomes, Settings(6, 3, 1, 0.1, 0.1))

found = []
for name, layout, server, M, theta in json.loads(sys.argv[1]):
    task = tasks.load("digits", clients=8) if name == "digits" else dense()
    config = RunConfig(name, theta=theta, clients_per_round=M, batch_size=2, server=server, layout=layout)
    sent, size = programs.compile_program(programs.resident_program(resolve(config, task)))
    P = num_parameters(jax.eval_shape(task.init, jax.random.key(0)))
    found.append([P, size_in_bytes(task.store), sent, size])
print(json.dumps(found))
"""
LAYOUTS = [
    ("dense", "sequential", "sgd", 6),
    ("dense", "sharded", "yogi", 5),
    ("dense", "sharded:vmap", "sgd", 6),
    ("dense", "sharded:chunked:2", "sgd", 7),
    ("digits", "sharded", "sgd", 5),
]
EQUAL_WEIGHTS = "1:3"
CASES = [(*case, theta) for case in LAYOUTS for theta in (EQUAL_WEIGHTS, "[1,2,1]")]
CHUNK_SIZES = {"sequential": 1, "sharded": 1, "sharded:vmap": None, "sharded:chunked:2": 2}


def test_formulas_agree_with_compiled_programs():
    """Communication is exact; memory is within 10 % if the model dominates it.

    The compiler may keep half a model more or less in its loops, and activations and random bits, which the formula
    leaves out here, are small compared with P. If all weights are equal, a client's model is recomputed in each step,
    so the compiler need not keep all of it next to the whole gradient.
    """
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(CASES)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "JAX_NUM_CPU_DEVICES": str(DEVICES)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert len(found) == len(CASES)
    for (name, layout, server, M, theta), (P, stored, sent, size) in zip(CASES, found, strict=True):
        devices = 1 if layout == "sequential" else DEVICES
        moments = 2 if server == "yogi" else 0
        machine = Machine(devices)
        expected = cost(P, M, machine, chunk_size=CHUNK_SIZES[layout], moments=moments, examples=stored)
        assert sent == ([["all_reduce", expected.numbers]] if devices > 1 else [])
        arguments, outputs, between, _ = size
        used = arguments + outputs + between
        if name == "dense" and theta == EQUAL_WEIGHTS:
            running = min(CHUNK_SIZES[layout] or M, -(-M // devices))
            assert 0.9 * (expected.memory - 4 * running * P) < used < 1.1 * expected.memory, (layout, server)
        elif name == "dense":
            assert used == pytest.approx(expected.memory, rel=0.1), (layout, server)


def test_ring_traffic_by_hand():
    """Each device sends n - 1 of n parts to be summed, and n - 1 sums."""
    for n in (1, 2, 3, 256):
        parts = [1 / n] * n
        assert ring_traffic(n) == pytest.approx(2 * sum(parts[1:]))


def test_clients_that_run_together_need_no_running_sum():
    models = [cost(1, 4, Machine(2), chunk_size=chunk_size, width=1).memory for chunk_size in (1, 2, 3, None)]
    assert models == [2 + 3 + 1, 2 + 6, 2 + 6, 2 + 6]


def test_seconds():
    found = Cost(clients=4, numbers=10, device_bytes=80.0, host_bytes=60.0, memory=0.0)
    assert seconds(found, Machine(8, 2, flops=2.0, device_link=40.0, host_link=20.0), 3.0) == (6.0, 5.0)
    assert seconds(found, Machine(8, 2), 3.0) == (0.0, 0.0)


@pytest.mark.parametrize("bad", [(0, 1, Machine(1)), (1, 0, Machine(1)), (1, 1, Machine(0)), (1, 1, Machine(1, 0))])
def test_sizes_below_one_are_refused(bad):
    with pytest.raises(ValueError, match="must be >= 1, got 0"):
        cost(*bad)


def test_the_table_in_the_docs_follows_the_formulas():
    """Memory, bytes and milliseconds follow from the other columns."""
    text = (ROOT / "docs" / "machines.md").read_text()
    table = text[text.index("## 10,000 clients") :]
    rows = [[cell.strip().replace(",", "") for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    rows = [row for row in rows if row and row[0] in ("femnist", "stackoverflow_nwp", "cifar100")]
    assert len(rows) == 3
    machine = Machine(256, 32, host_link=12.5e9)
    for _, P, s, activations, examples, memory, sent, milliseconds in rows:
        sizes = {"activations": int(activations) * 10**6, "examples": int(examples) * 10**6}
        found = cost(int(P), 10_000, machine, moments=int(s) - 1, **sizes)
        assert f"{found.memory / 1e6:.0f}" == memory
        assert f"{found.host_bytes / 1e6:.1f}" == sent
        assert f"{1e3 * seconds(found, machine, 0.0)[1]:.1f}" == milliseconds
