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
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/LUR_OWNER/lur/blob/main/colab/theorems.ipynb)
#
# # Put a theorem on trial
#
# Every claim of the paper is a program here: a left side, a right side, and a space of instances. A trial samples
# instances and then *pursues* a violation by gradient ascent on left / right with respect to the instance. It rounds a
# violation to fractions and proves it in exact arithmetic. In this notebook you try a true theorem, plant an error in
# it, watch the pursuit find a counterexample, and read what the paper should have said.

# %%
# This cell installs lur where it is missing, as on Colab; in a checkout it needs no network.
import importlib.util
import os
import sys
from pathlib import Path

SCALE = float(os.environ.get("LUR_SCALE", 1))  # effort of the search: samples, restarts, steps

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

jax.config.update("jax_enable_x64", True)

import matplotlib.pyplot as plt
import numpy as np

from lur import plots
from theory.claims import CLAIMS, find
from theory.reports import errata
from theory.trials import QUICK, try_claim, try_trial
from theory.trials.search import ascend, sample, scaled
from theory.trials.verify import try_by_id

plots.use()
budget = scaled(QUICK, SCALE)


def show(text):
    """Renders Markdown in a notebook and prints it elsewhere."""
    if "get_ipython" in globals():
        from IPython.display import Markdown, display

        display(Markdown(text))
    else:
        print(text)


# %% [markdown]
# ## A claim
#
# Claims are data; `CLAIMS` has all of them. This one bounds the condition number of FedAvg's surrogate.

# %%
claim = find("C1")
show(f"**{claim.id}** ({claim.label}, line {claim.line} of the paper): {claim.statement}")
result = try_claim(claim, budget)
print(result.verdict, f"in {result.seconds:.1f} s; the largest left / right found: {result.evidence.ratio:.6f}")

# %% [markdown]
# The claim holds, and its bound is tight: the pursuit drives the ratio to 1 but not above. Sampling alone would hardly
# show this, because random instances lie anywhere below.
#
# ## Plant an error
#
# Suppose that a slip in the proof made the bound one percent too small. Does the trial notice? Few random instances
# violate the claim; after pursuit, nearly all do.

# %%
true = claim.trial[0]
spoilt = true._replace(right=lambda xp, I: 99 * true.right(xp, I) / 100)
dims = true.space.dims[0]
raws = true.space.draw(np.random.default_rng(0), dims, budget.samples)
sampled, _ = sample(spoilt, dims, raws)
starts = {name: raw[: budget.restarts] for name, raw in raws.items()}  # any of them, not the worst
climbed, _ = ascend(spoilt, dims, budget.steps, starts)

bins = np.linspace(0, 1.1, 56)
plt.figure(figsize=(6, 3.6))
plt.hist(sampled, bins, weights=np.full(len(sampled), 1 / len(sampled)), label=f"{len(sampled):,} random instances")
plt.hist(
    climbed, bins, weights=np.full(len(climbed), 1 / len(climbed)), alpha=0.7, label=f"{len(climbed)} after pursuit"
)
plt.axvline(1, color="black", ls=":", label="violated above this line")
plt.xlabel("left / right of the spoilt claim")
plt.ylabel("share of instances")
plt.legend(fontsize=7)
plt.title(f"{claim.id} with its bound times 0.99; " + ", ".join(f"${name} = {size}$" for name, size in dims.items()))
plt.show()
print(f"violated by {(sampled > 1).mean():.1%} of the random instances, by {(climbed > 1).mean():.0%} after pursuit")

# %% [markdown]
# ## A counterexample in fractions
#
# The trial rounds the violation to fractions with small denominators and computes both sides exactly. `FALSE` is a
# proof, not just a large number.

# %%
evidence = try_trial(spoilt, budget, np.random.default_rng(0))
print("the spoilt claim", evidence.outcome)
if evidence.counterexample:
    counterexample = evidence.counterexample
    for name, value in counterexample["instance"].items():
        print(f"  {name} = {value}")
    print(f"  left {counterexample['left']}, right {counterexample['right']}")

# %% [markdown]
# ## The errata
#
# The paper contains such errors. Here is one: it states that two limits of FedAvg are close if their rates are, but a
# step of its proof fails for every $K \ge 3$.

# %%
row = try_by_id("C5p", full=False, seed=0, budget=SCALE)
print("verdict:", row["verdict"])
show(errata.markdown([row], full=False, seed=0).partition("## Line by line")[2])

# %% [markdown]
# ## All of them
#
# `lur verify` tries all claims in a few minutes, and `lur verify --errata DIR` writes all errata. The recorded
# verdicts:

# %%
kinds = [claim.expected for claim in CLAIMS]
names = sorted(set(kinds), key=kinds.count)
plt.figure(figsize=(6, 2.8))
plt.barh(names, [kinds.count(name) for name in names], color=plots.COLOURS[0])
for k, name in enumerate(names):
    plt.text(kinds.count(name) + 0.5, k, str(kinds.count(name)), va="center")
plt.xlabel("claims")
plt.title(f"{len(CLAIMS)} claims of the paper")
plt.show()

# %% [markdown]
# Try your own claim: a `Trial` is a space of instances and two functions, `left` and `right`. `theory/claims/` has 93
# examples; `theory/trials/planted_errors.py` has sixteen planted errors, all of which the trials must find.
