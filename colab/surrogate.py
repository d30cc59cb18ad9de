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
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/LUR_OWNER/lur/blob/main/colab/surrogate.ipynb)
#
# # What FedAvg, FOMAML and MAML really optimise
#
# They do not optimise the average of the clients' losses. On quadratics we know exactly what they optimise instead: a
# *surrogate* loss, whose minimiser and condition number depend on $\gamma$, $K$ and $\Theta$. This notebook runs
# Sections 3 and 4 of the paper (Charles and Konečný, 2020).

# %%
# This cell installs lur where it is missing, as on Colab; in a checkout it needs no network.
import importlib.util
import os
import sys
from pathlib import Path

SCALE = float(os.environ.get("LUR_SCALE", 1))  # more points per curve and longer runs

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

jax.config.update("jax_enable_x64", True)  # for small exact problems; training in float32 does not need this

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import lur
import theory
from lur import plots
from theory import examples

plots.use()
points = max(3, round(25 * SCALE))

# %% [markdown]
# ## Two clients
#
# Client 1 has the loss $\frac12 (x-1)^2$, client 2 has $(x - \frac12)^2$. Their average $f$ has its minimum at
# $x^* = 2/3$. FedAvg with $K$ local steps descends $\tilde f$, whose gradient is the mean of the clients' updates.

# %%
problem = theory.two_clients()
gamma, theta = 0.25, lur.theta.fedavg(2)
print("minimiser of f        ", theory.minimizer(problem))
print("minimiser of surrogate", theory.surrogate_minimizer(problem, gamma, theta), "= 13/19 =", 13 / 19)

xs = np.linspace(0.3, 1.1, 200)
clients = np.array([theory.client_losses(problem, [x]) for x in xs])
mean = clients @ np.asarray(problem.p)
surrogate = np.array([float(theory.surrogate_loss(problem, [x], gamma, theta)) for x in xs])
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3))
left.plot(xs, clients[:, 0], "--", label="client 1")
left.plot(xs, clients[:, 1], "--", label="client 2")
left.plot(xs, mean, label="$f$, their mean")
left.set(xlabel="$x$", ylabel="loss", title="the losses")
left.legend()
for curve, at, name in ((mean, 2 / 3, "$f$"), (surrogate / 2, 13 / 19, r"$\tilde f / K$")):
    (line,) = right.plot(xs, curve - curve.min(), label=f"{name}, minimum at {at:.4f}")
    right.axvline(at, ymax=0.7, color=line.get_color(), ls=":")
right.set(xlabel="$x$", xlim=(0.55, 0.8), ylim=(0, 0.013), title=rf"the surrogate: $\gamma = {gamma}$, $K = 2$")
right.legend(loc="upper center")
plt.show()

# %% [markdown]
# ## FedAvg converges to the predicted point
#
# A loss is a function of the model and a mini-batch. Here, an example is a pair $(A, c)$ with the loss
# $\frac12 (x-c)^\top A (x-c)$, and each client has one example. The cell below runs Algorithm 1 without any theory.


# %%
def loss_fn(x, batch):
    A, c = batch
    return 0.5 * jnp.mean(jnp.einsum("bi,bij,bj->b", x - c, A, x - c))


def batches(K):
    """Every client's example, repeated K times: leading axes (clients, steps, batch)."""
    return tuple(jnp.broadcast_to(v[:, None, None], (2, K, 1, *v.shape[1:])) for v in (problem.A, problem.c))


method = lur.local_update(loss_fn, theta)
state = method.init(jnp.array([3.0]), client_lr=gamma, server_lr=0.1)
for _ in range(200):
    state, info = method.round(state, batches(2))
print("FedAvg converged to", state.params)
np.testing.assert_allclose(state.params, theory.surrogate_minimizer(problem, gamma, theta), rtol=1e-9)

# %% [markdown]
# ## For every client learning rate
#
# Lines are the closed form, marks are runs. The rates are values in the state, so all runs of a curve are one `vmap`.
# For $\gamma = 0$ every method converges to $x^*$; as $\gamma$ grows, the limit moves away, faster for more local
# steps.

# %%
gammas = jnp.linspace(0.0, 0.49, points)
thetas = {
    "FedAvg, $K = 2$": lur.theta.fedavg(2),
    "FedAvg, $K = 10$": lur.theta.fedavg(10),
    "FOMAML, $K = 3$": lur.theta.fomaml(3),
    r"MAML, $K = 1$: $\Theta_3$": lur.theta.maml(1),
}


def limit(gamma, theta):
    """The model after 2,000 rounds with all clients."""
    method = lur.local_update(loss_fn, theta)
    state = method.init(jnp.array([3.0]), gamma, 0.1)
    return jax.lax.fori_loop(0, 2000, lambda _, s: method.round(s, batches(len(theta)))[0], state).params[0]


marks = iter((("o", 4), ("s", 4), ("^", 4), ("o", 7)))
for name, weights in thetas.items():
    (line,) = plt.plot(gammas, [theory.surrogate_minimizer(problem, g, weights)[0] for g in gammas], label=name)
    ends = jax.jit(jax.vmap(lambda g, weights=weights: limit(g, weights)))(gammas)
    mark, size = next(marks)
    plt.plot(gammas, ends, mark, ms=size, mfc="none", color=line.get_color())
plt.axhline(2 / 3, color="black", ls=":", label="$x^*$")
plt.xlabel(r"client learning rate $\gamma$")
plt.ylabel("limit")
plt.title("lines: theory, marks: LocalUpdate")
plt.legend(fontsize=7)
plt.show()

# %% [markdown]
# The third and fourth curves coincide: on quadratics, FOMAML with $K = 3$ *is* MAML with one step.
#
# ## MAML is a local update method: Theorem 2
#
# MAML with $K$ gradient steps has the same gradient as the method that sends its $(2K+1)$-th gradient. On the left, lur
# differentiates through the client's steps; on the right, it only takes steps.

# %%
x, K = jnp.array([3.0]), 3
client = tuple(v[0] for v in batches(2 * K + 1))
through_the_steps = lur.maml.maml_gradient(loss_fn, x, client, gamma, K)
update, _ = lur.inner_loop(loss_fn, x, client, gamma, lur.theta.maml(K))
print(through_the_steps, "=", update)
np.testing.assert_allclose(through_the_steps, update, rtol=1e-12)

# %% [markdown]
# ## Figure 1 of the paper
#
# Infinitely many clients have the losses $f_i(x) = \frac12 i x^2 - x$ with $i$ from $\frac12$ to 2. More or larger
# local steps pull the limit from the minimiser of $f$ towards the average of the clients' minimisers. At the far right,
# where $\gamma L = 2$, the steps of the steepest clients no longer contract, and the limit moves away again.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), sharey=True)
steps = np.unique(np.geomspace(1, 50, points).round().astype(int))
left.plot(steps, [examples.density_closed_form(0.5, int(K)).argmin for K in steps], "o-", ms=3)
left.set(xlabel="local steps $K$", ylabel="limit of FedAvg", title=r"$\gamma = 0.5$", xscale="log")
rates = np.linspace(0, 1, points)
right.plot(rates, [examples.density_quadrature(g, 20).argmin for g in rates], "o-", ms=3)
right.set(xlabel=r"client learning rate $\gamma$", title="$K = 20$")
for axis in (left, right):
    axis.axhline(examples.TRUE_MINIMIZER, color="black", ls=":", label="minimiser of $f$, 5/7")
    axis.axhline(examples.AVERAGE_MINIMIZER, color=plots.COLOURS[2], ls="--", label="average minimiser, 4/5")
left.legend(fontsize=7)
plt.show()

# %% [markdown]
# ## The benefit of the bias: a better conditioned problem
#
# In more dimensions, the surrogate can be better conditioned than $f$, as here, so the server converges faster. Each
# point is one $\gamma$. The lower left corner would be best, but every method trades bias for conditioning.

# %%
rng = np.random.default_rng(0)
n, d, K = 20, 5, 5
bases, _ = np.linalg.qr(rng.normal(size=(n, d, d)))
A = np.einsum("nij,nj,nkj->nik", bases, np.geomspace(0.05, 1, d) * np.ones((n, 1)), bases)
common = np.linalg.qr(rng.normal(size=(d, d)))[0]
A = 0.9 * (common * np.geomspace(0.02, 1, d)) @ common.T + 0.1 * (A + A.swapaxes(1, 2)) / 2
random = theory.Problem(A, rng.normal(size=(n, d)), np.full(n, 1 / n))
kappa = np.linalg.cond(theory.surrogate_hessian(random, 0.0, [1.0]))
for name, weights in {
    f"FedAvg, $K = {K}$": lur.theta.fedavg(K),
    f"FOMAML, $K = {K}$": lur.theta.fomaml(K),
    "MAML, $K = 5$": lur.theta.maml(5),
}.items():
    rates = np.linspace(0, 0.95 if weights[0] else 1 / len(weights), points)
    distance = [
        np.linalg.norm(theory.surrogate_minimizer(random, g, weights) - theory.minimizer(random)) for g in rates
    ]
    condition = [np.linalg.cond(theory.surrogate_hessian(random, g, weights)) for g in rates]
    plt.plot(distance, condition, "o-", ms=3, label=name)
plt.axhline(kappa, color="black", ls=":", label="$f$ itself")
plt.xlabel(r"distance of the minimisers $\|x^*(\gamma, \Theta) - x^*\|$")
plt.ylabel("condition number of the surrogate")
plt.legend(fontsize=7)
plt.show()

# %% [markdown]
# Next: [your_method](your_method.ipynb) does this for a client that you write, and [theorems](theorems.ipynb) puts the
# paper's statements on trial.
