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
# # Your method: what does it optimise, how well, with which rates?
#
# Write a client in five lines. On quadratics whatever a first-order client sends is affine in the model it was given,
# so automatic differentiation finds *exactly* which loss it descends, where that ends, how large the error is in every
# round, and which rates are best. No run is needed; we run one anyway, to see that it is so.

# %%
# In a checkout, or where lur is installed, this needs no network. Elsewhere, as on Colab, it installs lur.
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
# A client gets its mini-batches and the model `x`, and returns a message. This one keeps momentum, pulls back towards
# `x`, and sends how far it came. Change it.


# %%
def my_client(gamma, beta=0.5, rho=0.1):
    def client(batches, x):
        y, v = x, jnp.zeros_like(x)
        for A, c in zip(*batches, strict=True):  # one mini-batch after the other, of shapes (B, d, d) and (B, d)
            v = beta * v + (A @ (y - c)[..., None])[..., 0].mean(0) + rho * (y - x)
            y = y - gamma * v
        return (x - y) / gamma

    return client


gamma = 0.4
mine = theory.surrogate_of(my_client(gamma), problem, steps=K)
print(mine)

# %% [markdown]
# ## Its surrogate, beside those of others
#
# Is the mean message the gradient of any loss at all? Where does it vanish, and how well conditioned is it? The zoo in
# `theory.clients` has the usual suspects; compare yours with them.

# %%
from theory import clients as zoo

others = {
    "FedAvg": lambda g: zoo.sgd(g, lur.theta.fedavg(K)),
    "FOMAML": lambda g: zoo.sgd(g, lur.theta.fomaml(K)),
    "FedProx, rho = 0.1": lambda g: zoo.sgd(g, lur.theta.fedavg(K), rho=0.1),
    "yours": my_client,
}
star = theory.minimizer(problem)
rates = np.linspace(0.05, 0.9 / L, max(2, round(7 * SCALE)))
found = {name: [theory.surrogate_of(make(g), problem, steps=K) for g in rates] for name, make in others.items()}
for (name, rows), mark in zip(found.items(), "os^*", strict=True):
    distance = [float(jnp.linalg.norm(row.minimizer - star)) for row in rows]
    plt.plot(distance, [float(row.condition_number) for row in rows], f"{mark}-", ms=5, label=name)
plt.xlabel(r"bias: distance of its minimiser from $x^*$")
plt.ylabel("condition number of its surrogate")
plt.title(rf"$\gamma$ from {rates[0]:.2g} to {rates[-1]:.2g}")
plt.legend()
plt.show()

# %% [markdown]
# ## Its exact error
#
# With $M$ clients drawn in each round the model is random, but its mean and covariance obey a linear recursion, since
# client $i$ sends $J_i x + g_i$. So $E\|x_t - x^*\|^2$ is known for every round.

# %%
M, T = 2, max(5, round(60 * SCALE))


def exact_error(method, eta):
    """E||x_t - x*||^2 for t = 1 .. T + 1, from x_1 = (2, ..., 2), with M clients a round, drawn iid."""
    J, g = np.asarray(method.client_hessians), np.asarray(method.client_gradients_at_0) + method.client_hessians @ star
    mean, p = 2 - np.asarray(star), np.asarray(problem.p)
    second = np.outer(mean, mean)
    Jm, gm = np.einsum("n,nij->ij", p, J), p @ g
    errors = [np.trace(second)]
    for _ in range(T):
        alone = np.einsum("n,nij,jk,nlk->il", p, J, second, J) + np.einsum("n,ni,nj->ij", p, g, g)
        cross = np.einsum("n,nij,j,nk->ik", p, J, mean, g)
        together = Jm @ second @ Jm.T + np.outer(gm, gm)
        both = np.outer(Jm @ mean, gm)
        square = (alone + cross + cross.T) / M + (1 - 1 / M) * (together + both + both.T)
        step = (Jm @ second + np.outer(gm, mean)) * eta
        mean, second = mean - eta * (Jm @ mean + gm), second - step - step.T + eta**2 * square
        second = (second + second.T) / 2  # or rounding errors in its skew part grow
        errors.append(np.trace(second))
        if not errors[-1] < 1e3 * errors[0]:
            return np.full(T + 1, np.inf)  # it diverges
    return np.array(errors)


def simulated(gamma, eta, runs):
    """The same from runs."""
    client = my_client(gamma)

    def one(key):
        def round(x, key):
            chosen = jax.random.choice(key, n, (M,), p=problem.p)
            chosen_data = problem.A[chosen], problem.c[chosen]
            batches = tuple(jnp.broadcast_to(v[:, None, None], (M, K, 1, *v.shape[1:])) for v in chosen_data)
            x = x - eta * jax.vmap(client, (0, None))(batches, x).mean(0)
            return x, jnp.sum((x - star) ** 2)

        return jax.lax.scan(round, jnp.full(d, 2.0), jax.random.split(key, T))[1]

    return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), runs)))


eta, runs = 0.03, max(50, round(2000 * SCALE))
exact, seen = exact_error(mine, eta), simulated(gamma, eta, runs)
spread = 2.58 * seen.std(0) / np.sqrt(runs)
t = np.arange(2, T + 2)
plt.fill_between(
    t, seen.mean(0) - spread, seen.mean(0) + spread, color=plots.COLOURS[1], alpha=0.4, label=f"{runs:,} runs, 99%"
)
plt.plot(np.arange(1, T + 2), exact, label="exact")
plt.axhline(float(jnp.sum((mine.minimizer - star) ** 2)), color="black", ls=":", label="bias alone")
plt.xlabel("round $t$")
plt.ylabel(r"$E\|x_t - x^*\|^2$")
plt.yscale("log")
plt.legend()
plt.show()
print(f"outside of the 99% interval: {np.mean(np.abs(seen.mean(0) - exact[1:]) > spread):.0%} of the rounds")

# %% [markdown]
# ## Its best rates
#
# The exact error after $T$ rounds, over a grid of rates, without noise and so without repetition. Beside it the best
# that FedAvg can do, its rates found by `theory.optimal_rates`, which differentiates the exact error. White cells
# diverge.

# %%
etas = np.geomspace(0.01, 1, max(3, round(25 * SCALE)))
table = np.array([[exact_error(row, e)[-1] for e in etas] for row in found["yours"]])
assert (table > 0).all()
i, j = np.unravel_index(table.argmin(), table.shape)
print(f"yours:               gamma {rates[i]:.3g}, eta {etas[j]:.3g}: error {table[i, j]:.5f}")
kept = theory.optimal_rates(
    problem, T, M, x=np.full(d, 2.0), theta=lur.theta.fedavg(K), largest_gamma=1 / L, starts=1 if SCALE < 1 else 3
)
print(f"FedAvg, best rates:  gamma {kept.gamma:.3g}, eta {kept.eta:.3g}: error {kept.error:.5f}")

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
# [How large will the error be?](../docs/predict.md) has mini-batches and noise as well;
# [Does it apply to networks?](../docs/diagnose.md)
