"""Clients sharded over devices give the same numbers, whether or not the number of devices divides M.

The programs run in subprocesses because jax fixes the number of devices when it starts.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
EQUALITY_PROGRAM = """
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
from lur.data.writer import in_memory
from tests.lur.engine import test_run
store = in_memory(test_run.clients())
for M, weighting, layout, data in (
    (2, "uniform", "sharded", None),
    (5, "examples", "sharded:vmap", None),
    (7, "uniform", "sharded:chunked:2", None),
    (5, "uniform", "sharded", "host"),
):
    test_run.M = M
    expected, losses = test_run.numpy_run(store, weighting=weighting)
    state, infos = test_run.run_rounds(store, layout=layout, weighting=weighting, data=data)
    np.testing.assert_allclose(state.params, expected, rtol=1e-12)
    np.testing.assert_allclose(infos.loss, losses, rtol=1e-12)
    assert infos.client_norms.shape == (test_run.R, M)
import lur, optax
method = lur.local_update(test_run.loss, lur.theta.fedavg(test_run.K), optax.sgd)
options = {"rounds": 4, "clients_per_round": 3, "batch_size": 2}
rates = {"client_lr": (0.0, 0.1), "server_lr": (0.1, 1.0)}  # four cells on three devices
for placement in ({"devices": 2}, {"devices": 3}, {"layout": "sharded"}, {"layout": "sharded:vmap", "devices": 1}):
    states, infos = lur.run_grid(method, np.ones(3), store, **rates, **placement, **options)
    for i, gamma in enumerate(rates["client_lr"]):
        for j, eta in enumerate(rates["server_lr"]):
            state, info = lur.run(method, method.init(np.ones(3), gamma, eta), store, **options)
            np.testing.assert_allclose(states.params[i, j, 0], state.params, rtol=1e-12)
            np.testing.assert_allclose(infos.loss[i, j, 0], info.loss, rtol=1e-12)
print("agreed on", jax.device_count(), "devices")
"""


def output_on_devices(program, devices):
    """Standard output of a program with this number of CPU devices."""
    flags = os.environ.get("XLA_FLAGS", "") + f" --xla_force_host_platform_device_count={devices}"
    process = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
    )
    assert process.returncode == 0, process.stderr[-2000:]
    return process.stdout


def test_any_number_of_clients_on_three_devices_equals_the_numpy_loop():
    assert output_on_devices(EQUALITY_PROGRAM, 3) == "agreed on 3 devices\n"


READINESS_PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
import lur
from lur.engine import grid
from lur.data.writer import in_memory
from tests.lur.engine.test_run import clients

def loss(x, batch):  # takes about 0.1 s
    A = jnp.eye(300, dtype=x.dtype) + batch["y"][0]
    return jnp.sum(jax.lax.fori_loop(0, 40, lambda k, A: jnp.tanh(A @ A), A)) * x.sum()

store = in_memory(clients(dtype=np.float32))
method = lur.local_update(loss, lur.theta.fedavg(1))
start = method.init(jnp.ones(3), 0.1, 0.1)
cells = grid.init_grid(method, jnp.ones(3), [0.1, 0.2], [0.1])
batches = {"x": jnp.ones((4, 1, 2, 3)), "y": jnp.ones((4, 1, 2))}
options = {"rounds": 3, "clients_per_round": 4, "batch_size": 2, "capacity": 3}
for name, run in {
    "run": lambda: lur.run(method, start, store, layout="sharded", **options),
    "grid": lambda: grid.advance_grid(method, cells, store, devices=2, **options),
    "round": lambda: method.round(start, batches, layout="sharded"),
}.items():
    run()
    state, _ = run()
    assert len(state.params.sharding.device_set) == 2, name
    print(name, state.params.is_ready())
"""


def test_programs_on_several_cpu_devices_finish_before_returning():
    """A program launched next could take the thread that one device needs, and XLA's all-reduce would deadlock."""
    assert output_on_devices(READINESS_PROGRAM, 2) == "run True\ngrid True\nround True\n"
