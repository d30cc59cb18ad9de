# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/LUR_OWNER/lur/blob/main/colab/scale.ipynb)
#
# # The same run on one device, on eight, and in several processes
#
# Within a round, clients do not communicate, so they can be sharded over devices, and devices can belong to processes
# on many machines. One reduction of the model per round is all the communication they need. Here, the same training
# runs in three ways and must give the same losses. The devices are virtual, parts of this machine's CPU: they show
# *what* is computed, not how fast a cluster is.

# %%
# This cell installs lur where it is missing, as on Colab; in a checkout it needs no network.
import importlib.util
import os
import sys
from pathlib import Path

SCALE = float(os.environ.get("LUR_SCALE", 1))  # longer runs

checkout = next(
    (folder for folder in (Path.cwd(), *Path.cwd().parents) if (folder / "lur" / "theta.py").exists()), None
)
if importlib.util.find_spec("lur") is None and checkout is not None:
    sys.path.insert(0, str(checkout))
elif importlib.util.find_spec("lur") is None:
    # %pip install -q "lur-jax[all] @ git+https://github.com/LUR_OWNER/lur"
    pass

# %%
import json
import subprocess
import tempfile

import matplotlib.pyplot as plt
import numpy as np

from lur import plots

plots.use()
folder = Path(tempfile.mkdtemp())
rounds = max(4, round(60 * SCALE))
run = ["train", "digits", "--rounds", str(rounds), "--clients-per-round", "16"]
print("lur", " ".join(run))


# %% [markdown]
# Each variant runs in a new process, because the number of devices is fixed when JAX starts. `--layout sharded` shards
# the clients over all devices; `lur launch` starts several processes, which connect over the network.


# %%
def lur(*arguments, **environment):
    """The JSON output of a command of lur, run with extra environment variables."""
    paths = [str(checkout), os.environ.get("PYTHONPATH", "")] if checkout else [os.environ.get("PYTHONPATH", "")]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **environment}
    done = subprocess.run([sys.executable, "-m", "lur", *arguments], env=variables, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def losses(name):
    """The loss of every round, from the log in a run folder."""
    return np.array([json.loads(line)["loss"] for line in (folder / name / "log.jsonl").read_text().splitlines()])


variants = {
    "1 device": (("--layout", "vmap"), {"JAX_NUM_CPU_DEVICES": "1"}),
    "8 devices": (("--layout", "sharded"), {"JAX_NUM_CPU_DEVICES": "8"}),
}
ends = {}
for name, (layout, environment) in variants.items():
    ends[name] = lur(*run, *layout, "--run-dir", str(folder / name), "--json", **environment)
    print(f"{name:24} loss f(x) = {ends[name]['evaluation']['loss']:.6f}, {ends[name]['seconds']:.1f} s")

# %% [markdown]
# Two processes with two devices each. Each process reads only its own clients' data; process 0 writes the run folder.

# %%
name = "2 processes, 2 devices"
launch = ("launch", "--processes", "2", "--devices", "2", "--heartbeat", "120", "--")
ends[name] = lur(*launch, *run, "--layout", "sharded", "--run-dir", str(folder / name), "--json")
print(f"{name:24} loss f(x) = {ends[name]['evaluation']['loss']:.6f}, {ends[name]['seconds']:.1f} s")

# %% [markdown]
# ## The same losses
#
# Sums in another order differ in the last digits of float32, and many do not differ at all. A larger difference would
# be a bug, such as a client counted twice or lost in padding.

# %%
base = losses("1 device")
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2))
for name, mark, width in zip(ends, ("-", "--", ":"), (4, 2.5, 1.5), strict=True):
    (line,) = left.plot(losses(name), mark, lw=width, label=name)
    if name != "1 device":
        difference = np.abs(losses(name) - base) / base
        print(f"{name}: the largest relative difference of a round's loss is {difference.max():.1e}")
        assert difference.max() < 1e-4
        right.plot(difference, "." if "8" in name else "x", ms=5, color=line.get_color(), label=name)
left.set(xlabel="round", ylabel="loss of the round's clients", yscale="log", title="three runs, one curve")
right.axhline(np.finfo(np.float32).eps, color="black", ls=":", label="one rounding in float32")
right.set(xlabel="round", ylabel="relative difference from 1 device", title="the difference is rounding")
left.legend(fontsize=7)
right.set_ylim(top=1.5 * max(right.get_ylim()[1], np.finfo(np.float32).eps))
right.legend(fontsize=7, loc="upper left")
plt.show()

# %% [markdown]
# A run folder does not depend on the number of processes: a run that is killed here can resume elsewhere with any
# number of them.
#
# On a cluster, use its own launcher: `srun lur launch -- train femnist --run-dir DIR`, and likewise on a TPU pod. On
# one machine with several GPUs, `lur train` uses all of them. `lur doctor` lists the devices.
