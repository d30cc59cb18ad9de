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
# In a round clients do not see each other, so they can be dealt to devices, and devices to processes on many machines.
# One reduction of the model per round is all they have to say to each other. Here a run goes three ways and must give
# the same losses. The devices are virtual, parts of this machine's CPU: that shows *what* is computed, not how fast a
# cluster is.

# %%
# In a checkout, or where lur is installed, this needs no network. Elsewhere, as on Colab, it installs lur.
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
# Each way is a process of its own, since the number of devices is settled before JAX starts. `--layout sharded` deals
# the clients to all devices; `lur launch` starts several processes, which find each other over the network.


# %%
def lur(*arguments, **environment):
    """What the command tells as JSON, with its own environment."""
    paths = [str(checkout), os.environ.get("PYTHONPATH", "")] if checkout else [os.environ.get("PYTHONPATH", "")]
    known = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **environment}
    done = subprocess.run([sys.executable, "-m", "lur", *arguments], env=known, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def losses(name):
    """The loss of every round, from the log in the run folder."""
    return np.array([json.loads(line)["loss"] for line in (folder / name / "log.jsonl").read_text().splitlines()])


ways = {
    "1 device": (("--layout", "vmap"), {"JAX_NUM_CPU_DEVICES": "1"}),
    "8 devices": (("--layout", "sharded"), {"JAX_NUM_CPU_DEVICES": "8"}),
}
ends = {}
for name, (layout, environment) in ways.items():
    ends[name] = lur(*run, *layout, "--run-dir", str(folder / name), "--json", **environment)
    print(f"{name:24} loss f(x) = {ends[name]['evaluation']['loss']:.6f}, {ends[name]['seconds']:.1f} s")

# %% [markdown]
# Two processes with two devices each. Each has only its own clients' data; process 0 keeps the run folder.

# %%
name = "2 processes, 2 devices"
launch = ("launch", "--processes", "2", "--devices", "2", "--heartbeat", "120", "--")
ends[name] = lur(*launch, *run, "--layout", "sharded", "--run-dir", str(folder / name), "--json")
print(f"{name:24} loss f(x) = {ends[name]['evaluation']['loss']:.6f}, {ends[name]['seconds']:.1f} s")

# %% [markdown]
# ## The same losses
#
# Sums in another order differ in the last digits of float32, many not even there. Anything larger would be a bug: a
# client counted twice, or one lost in the padding when 16 do not divide by the devices.

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
right.set(xlabel="round", ylabel="relative difference from 1 device", title="what is left is rounding")
left.legend(fontsize=7)
right.set_ylim(top=1.5 * max(right.get_ylim()[1], np.finfo(np.float32).eps))
right.legend(fontsize=7, loc="upper left")
plt.show()

# %% [markdown]
# A run folder does not care how many processes made it: killed here, it goes on elsewhere, with any number of them.
#
# On a cluster the launcher is the cluster's own: `srun lur launch -- train femnist --run-dir DIR`, and the same on a
# TPU pod; on one machine with several GPUs `lur train` takes all of them by itself. `lur doctor` says which devices
# are seen.
