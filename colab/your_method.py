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
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/LUR_OWNER/lur/blob/main/colab/your_method.ipynb)
#
# # Your method: what does it optimise, how well, and with which rates?
#
# Write a client in five lines. On quadratics, the update of a first-order client is affine in the server's model, so
# automatic differentiation finds *exactly* which loss the method descends, where it converges, how large its error is
# in every round, and which rates are best. No training run is needed; we do one anyway, as a check.

# %%
# This cell installs lur where it is missing, as on Colab; in a checkout it needs no network.
import importlib.util
import os
import sys
from pathlib import Path

SCALE = float(os.environ.get("LUR_SCALE", 1))  # more rates, longer simulations

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

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import lur
import theory
from lur import plots

plots.use()

rng = np.random.default_rng(0)
n, d, K = 8, 4, 5
bases, _ = np.linalg.qr(rng.normal(size=(n, d, d)))
A = np.einsum("nij,nj,nkj->nik", bases, rng.uniform(0.05, 1, size=(n, d)), bases)
problem = theory.Problem((A + A.swapaxes(1, 2)) / 2, rng.normal(size=(n, d)), np.full(n, 1 / n))
L = float(theory.constants(problem).L)
print(f"{n} clients, d = {d}, L = {L:.2f}, x* = {theory.minimizer(problem)}")

# %% [markdown]
# ## Five lines
#
# A client gets its mini-batches and the model `x` and returns an update. This one uses momentum, pulls back towards
# `x`, and returns the distance it moved. Change it.


# %%
def my_client(gamma, beta=0.5, rho=0.1):
    def client(batches, x):
        y, v = x, jnp.zeros_like(x)
        for A, c in zip(*batches, strict=True):  # mini-batches of shapes (B, d, d) and (B, d)
            v = beta * v + (A @ (y - c)[..., None])[..., 0].mean(0) + rho * (y - x)
            y = y - gamma * v
        return (x - y) / gamma

    return client


gamma = 0.4
mine = theory.surrogate_of(my_client(gamma), problem, steps=K)
print(mine)

# %% [markdown]
# ## Its surrogate, compared with others
#
# Is the mean update the gradient of any loss? Where does it vanish, and how well conditioned is it? `theory.clients`
# contains common clients to compare yours with.

# %%
from theory import clients

others = {
    "FedAvg": lambda g: clients.sgd(g, lur.theta.fedavg(K)),
    "FOMAML": lambda g: clients.sgd(g, lur.theta.fomaml(K)),
    "FedProx, rho = 0.1": lambda g: clients.sgd(g, lur.theta.fedavg(K), rho=0.1),
    "yours": my_client,
}
star = theory.minimizer(problem)
rates = np.linspace(0.05, 0.9 / L, max(2, round(7 * SCALE)))
surrogates = {name: [theory.surrogate_of(make(g), problem, steps=K) for g in rates] for name, make in others.items()}
for (name, rows), mark in zip(surrogates.items(), "os^*", strict=True):
    distance = [float(jnp.linalg.norm(row.minimizer - star)) for row in rows]
    plt.plot(distance, [float(row.condition_number) for row in rows], f"{mark}-", ms=5, label=name)
plt.xlabel(r"bias: distance of the surrogate's minimiser from $x^*$")
plt.ylabel("condition number of the surrogate")
plt.title(rf"$\gamma$ from {rates[0]:.2g} to {rates[-1]:.2g}")
plt.legend()
plt.show()

# %% [markdown]
# ## Its exact error
#
# With $M$ random clients per round, the model is random, but its mean and covariance obey a linear recursion, because
# client $i$ sends $J_i x + g_i$. So $E\|x_t - x^*\|^2$ is known for every round.

# %%
M, T = 2, max(5, round(60 * SCALE))


def exact_error(method, eta):
    """E||x_t - x*||^2 for t = 1 .. T + 1, from x_1 = (2, ..., 2), with M iid clients per round."""
    J, g = np.asarray(method.client_hessians), np.asarray(method.client_gradients_at_0) + method.client_hessians @ star
    mean, p = 2 - np.asarray(star), np.asarray(problem.p)
    second = np.outer(mean, mean)
    Jm, gm = np.einsum("n,nij->ij", p, J), p @ g
    errors = [np.trace(second)]
    for _ in range(T):
        separate = np.einsum("n,nij,jk,nlk->il", p, J, second, J) + np.einsum("n,ni,nj->ij", p, g, g)
        cross = np.einsum("n,nij,j,nk->ik", p, J, mean, g)
        joint = Jm @ second @ Jm.T + np.outer(gm, gm)
        joint_cross = np.outer(Jm @ mean, gm)
        square = (separate + cross + cross.T) / M + (1 - 1 / M) * (joint + joint_cross + joint_cross.T)
        step = (Jm @ second + np.outer(gm, mean)) * eta
        mean, second = mean - eta * (Jm @ mean + gm), second - step - step.T + eta**2 * square
        second = (second + second.T) / 2  # otherwise rounding errors in its skew part grow
        errors.append(np.trace(second))
        if not errors[-1] < 1e3 * errors[0]:
            return np.full(T + 1, np.inf)  # diverged
    return np.array(errors)


def simulated(gamma, eta, runs):
    """||x_t - x*||^2 in simulated runs, of shape (runs, T)."""
    client = my_client(gamma)

    def run(key):
        def round(x, key):
            cohort = jax.random.choice(key, n, (M,), p=problem.p)
            data = problem.A[cohort], problem.c[cohort]
            batches = tuple(jnp.broadcast_to(v[:, None, None], (M, K, 1, *v.shape[1:])) for v in data)
            x = x - eta * jax.vmap(client, (0, None))(batches, x).mean(0)
            return x, jnp.sum((x - star) ** 2)

        return jax.lax.scan(round, jnp.full(d, 2.0), jax.random.split(key, T))[1]

    return np.asarray(jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), runs)))


eta, runs = 0.03, max(50, round(2000 * SCALE))
exact, simulations = exact_error(mine, eta), simulated(gamma, eta, runs)
spread = 2.58 * simulations.std(0) / np.sqrt(runs)
t = np.arange(2, T + 2)
plt.fill_between(
    t,
    simulations.mean(0) - spread,
    simulations.mean(0) + spread,
    color=plots.COLOURS[1],
    alpha=0.4,
    label=f"{runs:,} runs, 99%",
)
plt.plot(np.arange(1, T + 2), exact, label="exact")
plt.axhline(float(jnp.sum((mine.minimizer - star) ** 2)), color="black", ls=":", label="bias alone")
plt.xlabel("round $t$")
plt.ylabel(r"$E\|x_t - x^*\|^2$")
plt.yscale("log")
plt.legend()
plt.show()
print(f"outside of the 99% interval: {np.mean(np.abs(simulations.mean(0) - exact[1:]) > spread):.0%} of the rounds")

# %% [markdown]
# ## Its best rates
#
# The exact error after $T$ rounds over a grid of rates has no noise, so nothing needs to be repeated. For comparison,
# `theory.optimal_rates` finds the best rates of FedAvg by differentiating the exact error. White cells diverge.

# %%
etas = np.geomspace(0.01, 1, max(3, round(25 * SCALE)))
table = np.array([[exact_error(row, e)[-1] for e in etas] for row in surrogates["yours"]])
assert (table > 0).all()
i, j = np.unravel_index(table.argmin(), table.shape)
print(f"yours:               gamma {rates[i]:.3g}, eta {etas[j]:.3g}: error {table[i, j]:.5f}")
best = theory.optimal_rates(
    problem, T, M, x=np.full(d, 2.0), theta=lur.theta.fedavg(K), largest_gamma=1 / L, starts=1 if SCALE < 1 else 3
)
print(f"FedAvg, best rates:  gamma {best.gamma:.3g}, eta {best.eta:.3g}: error {best.error:.5f}")

image = plt.pcolormesh(
    etas, rates, np.log10(np.where(np.isinf(table), np.nan, table)), cmap="viridis_r", shading="nearest"
)
plt.plot(etas[j], rates[i], "r*", ms=12)
plt.xscale("log")
plt.xlabel(r"server rate $\eta$")
plt.ylabel(r"client rate $\gamma$")
plt.title(f"your method: error after {T} rounds")
plt.grid(False)
plt.colorbar(image, label=r"$\log_{10} E\|x_{T+1} - x^*\|^2$")
plt.show()

# %% [markdown]
# More: [What does my method optimise?](../docs/surrogate.md) lists twenty clients with closed forms;
# [How large will the error be?](../docs/predict.md) adds mini-batches and noise;
# [Does the quadratic theory apply to networks?](../docs/diagnose.md) measures it.
