"""Programs lower for machines that are not here, and their devices send each other one sum a round."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lur.training.programs import Collective, collectives

ROOT = Path(__file__).resolve().parents[3]
DEVICES = 8
PROGRAM = """
import json, sys
from dataclasses import replace
import jax
from lur import tasks
from lur.training import programs
from lur.training.configuration import RunConfig
from lur.training.experiment import num_parameters, resolve
found = {}
for name in sys.argv[1:]:
    task = tasks.load(name, clients=9)
    config = RunConfig(name, theta="1:2", clients_per_round=5, layout="sharded")
    size = num_parameters(jax.eval_shape(task.init, jax.random.key(0)))
    experiment = resolve(config, task)
    texts = {platform: programs.export_stablehlo(experiment, platform) for platform in ("tpu", "cuda")}
    found[name] = size, {platform: programs.collectives(text) for platform, text in texts.items()}
    if name == "digits":
        for make, M in ((programs.resident_program, 8), (programs.host_program, 5), (programs.host_program, 8)):
            program = make(resolve(replace(config, clients_per_round=M), task))
            found[name][1][f"{make.__name__} {M}"] = programs.compile_program(program)[0]
print(json.dumps(found))
"""
TASKS = ("digits", "femnist", "quadratic", "stackoverflow_tp", "shakespeare", "stackoverflow_nwp", "cifar100")


@pytest.mark.parametrize("tasks", [TASKS[:2], pytest.param(TASKS[2:], marks=pytest.mark.full)])
def test_one_all_reduce_per_round_and_no_other_collective(tasks):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *tasks],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "JAX_NUM_CPU_DEVICES": str(DEVICES)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert {*found} == {*tasks}
    metrics = 2 * DEVICES  # each client's loss and norm, of as many clients as devices divide
    for name, (size, programs) in found.items():
        assert len(programs) == (5 if name == "digits" else 2)
        for seen in programs.values():
            assert seen == [["all_reduce", size + metrics]]


def test_collectives_are_found_in_lowered_and_in_compiled_text():
    lowered = """
      %3 = "stablehlo.all_reduce"(%2) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
      ^bb0(%arg4: tensor<f32>, %arg5: tensor<f32>):
        stablehlo.return %9 : tensor<f32>
      }) : (tensor<4x3xf32>) -> tensor<4x3xf32>
      %4 = "stablehlo.all_gather"(%3) <{all_gather_dim = 0 : i64}> : (tensor<2xf32>) -> tensor<4xf32>
    """
    compiled = """
      %all-reduce.1 = (f32[4,3]{1,0}, f32[]) all-reduce(%a, %b), replica_groups={{0,1}}, to_apply=%add
      %r = (f32[1], f32[2], f32[3], f32[4], f32[5], /*index=5*/f32[6]) all-reduce(%a, /*index=5*/%b), to_apply=%add
      %g = f32[8]{0} all-gather-start(%c), dimensions={0}
      %d = f32[8]{0} all-gather-done(%g)
    """
    assert collectives(lowered) == [Collective("all_reduce", 12), Collective("all_gather", 4)]
    expected = [Collective("all_reduce", 13), Collective("all_reduce", 21), Collective("all_gather", 8)]
    assert collectives(compiled) == expected
