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
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/LUR_OWNER/lur/blob/main/colab/learning_rates.ipynb)
#
# # Learning rates: fixed, tuned, decayed
#
# The paper's experiments at small scale, on real digits split among ten very different clients. Three questions:
#
# 1. With the server's $\eta$ **fixed**, what does a larger client rate $\gamma$ do?
# 2. With $\eta$ **tuned** for each $\gamma$, how much of that effect remains?
# 3. Can both rates **decay**, so that we need not choose $\gamma$?

# %%
# This cell installs lur where it is missing, as on Colab; in a checkout it needs no network.
import importlib.util
import os
import sys
from pathlib import Path

SCALE = float(os.environ.get("LUR_SCALE", 1))  # longer runs and a finer grid

checkout = next(
    (folder for folder in (Path.cwd(), *Path.cwd().parents) if (folder / "lur" / "theta.py").exists()), None
)
if importlib.util.find_spec("lur") is None and checkout is not None:
    sys.path.insert(0, str(checkout))
elif importlib.util.find_spec("lur") is None:
    # %pip install -q "lur-jax[all] @ git+https://github.com/LUR_OWNER/lur"
    pass

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import lur
from lur import plots, tasks
from lur.engine import grid
from lur.training.evaluation import evaluate_cells

plots.use()

digits = tasks.load("digits", clients=10, heterogeneity=10.0)
K, gammas = 20, [0.01, 0.1, 1.0]
etas = [float(eta) for eta in np.geomspace(0.1, 31.6, max(3, round(6 * SCALE)))]
marks = [1, 2, 4, 8, 16, 32, *range(64, max(64, round(512 * SCALE)) + 1, 64)]
if SCALE < 1:
    marks = marks[: max(3, round(len(marks) * SCALE))]
print(f"{digits.store.clients} clients, gamma in {gammas}, {len(etas)} values of eta, {marks[-1]} rounds")

# %% [markdown]
# All pairs of rates run in parallel in one program, which pauses after the rounds in `marks` to evaluate the true loss
# $f(x)$ over all data.


# %%
def curves(method, pairs):
    """f(x) after the rounds in `marks`, for every pair of rates: shape (marks, pairs)."""
    states = grid.init_cells(method, digits.init(jax.random.key(0)), pairs)
    losses, done = [], 0
    for mark in marks:
        states, _ = grid.advance_grid(
            method, states, digits.store, rounds=mark - done, capacity=64, clients_per_round=10, batch_size=10,
            view=digits.view,
        )  # fmt: skip
        done = mark
        losses.append([cell.loss for cell in evaluate_cells(digits, jax.tree.map(lambda leaf: leaf[0], states.params))])
    return np.array(losses)


fedavg = lur.local_update(digits.loss, lur.theta.fedavg(K))
losses = curves(fedavg, [(gamma, eta) for gamma in gammas for eta in etas]).reshape(len(marks), len(gammas), len(etas))

# %% [markdown]
# ## 1. Fixed: a larger gamma may lead early but ends behind
#
# Local steps with a large $\gamma$ damp the updates of the clients. With a small $\eta$ (left), this only shortens the
# steps, and the smallest $\gamma$ leads throughout. With a larger $\eta$ (right), damping stabilises the first rounds:
# the loss of $\gamma = 1$ falls from the start, while the others first overshoot to many times that loss. After about
# thirty rounds they overtake it, and it ends behind.

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True)
fixed = int(np.abs(np.log(etas)).argmin())  # eta = 1, or nearly
for axis, k in zip(axes, (0, fixed), strict=True):
    for i, gamma in enumerate(gammas):
        axis.plot(marks, losses[:, i, k], "o-", ms=3, label=rf"$\gamma = {gamma}$")
    axis.set(xlabel="round", xscale="log", yscale="log", title=rf"$\eta = {etas[k]:.3g}$, fixed")
axes[0].set_ylabel("$f(x)$")
axes[0].legend()
plt.show()

# %% [markdown]
# ## 2. Tuned: for each gamma its own eta
#
# The two rates interact: the best $\eta$ grows with $\gamma$, and tuning reverses the order. Now $\gamma = 1$ ends
# lowest, although it is behind for most of the run. Comparing values of $\gamma$ at one $\eta$, as is often done,
# mostly compares how well that $\eta$ suits each of them. Above, $\gamma = 1$ fell behind because its steps were short,
# not because its surrogate has another minimiser: that bias exists ([surrogate](surrogate.ipynb) computes it exactly),
# but these few rounds do not reach it.

# %%
last = np.where(np.isfinite(losses[-1]), losses[-1], np.inf)  # a cell may diverge
best = last.argmin(axis=1)
for gamma, k, row in zip(gammas, best, last, strict=True):
    print(f"gamma {gamma:5}: best eta {etas[k]:.3g}, f(x) = {row[k]:.4f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2))
for i, gamma in enumerate(gammas):
    left.plot(etas, last[i], "o-", ms=3, label=rf"$\gamma = {gamma}$")
    right.plot(marks, losses[:, i, best[i]], "o-", ms=3, label=rf"$\gamma = {gamma}$, $\eta = {etas[best[i]]:.2g}$")
left.set(xlabel=r"server rate $\eta$", ylabel="final $f(x)$", xscale="log", yscale="log", title="all cells")
right.set(xlabel="round", xscale="log", yscale="log", title=r"each $\gamma$ with its best $\eta$")
left.legend()
right.legend()
plt.show()

# %% [markdown]
# ## 3. Decayed: start large, end small
#
# LocalUpdateDecay starts with the largest $\gamma$ and multiplies both rates whenever the loss stops falling: $\gamma$
# by $\alpha = 0.1$, $\eta$ by $\beta$. The paper uses $\beta = 0.9$ over thousands of rounds; for our few rounds we
# keep $\eta$ constant with $\beta = 1$.

# %%
W = max(1, marks[-1] // 32)
rule = lur.decay.plateau("paper", delta=2e-3, beta=1.0, window=W, patience=W, cooldown=W)
decaying = curves(lur.local_update(digits.loss, lur.theta.fedavg(K), decay=rule), [(gammas[-1], etas[fixed])])[:, 0]

plt.figure(figsize=(6, 3.6))
for i, gamma in enumerate(gammas):
    plt.plot(marks, losses[:, i, fixed], "o-", ms=3, alpha=0.6, label=rf"$\gamma = {gamma}$, fixed")
plt.plot(marks, decaying, "k*-", label=rf"$\gamma$ decays from {gammas[-1]}")
plt.xlabel("round")
plt.ylabel("$f(x)$")
plt.xscale("log")
plt.yscale("log")
plt.title(rf"all start with $\eta = {etas[fixed]:.2g}$")
plt.legend(fontsize=8)
plt.show()
early = len(marks) // 3
for k in (early, -1):
    others = ", ".join(f"{value:.4f}" for value in losses[k, :, fixed])
    print(f"after round {marks[k]}: decayed {decaying[k]:.4f}, fixed {others}")
print(f"the best pair of section 2, after round {marks[-1]}: {last.min():.4f}")

# %% [markdown]
# It leads early like the large rate and ends about where the small rates do, far below the large rate it started with.
# The change has a cost: a smaller $\gamma$ damps less, so at the same $\eta$ the steps suddenly grow, and for a while
# the loss hardly falls. Nor does decay replace tuning: it removes the choice of $\gamma$, but the best pair of section
# 2, chosen in hindsight among all cells, ends lower.
#
# `lur reproduce all --scale small` makes the paper's figures, with verdicts computed from the curves. For your own
# sweeps there are `lur sweep TASK`, `lur tune TASK` and `lur decay TASK`.
