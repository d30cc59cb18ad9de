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
# # Your method, from scratch: it trains, and its error is known exactly
#
# A method in lur is a few pure functions. Here is SCAFFOLD (Karimireddy et al., 2020) in 25 lines, as a user would
# write it. It trains on real digits, and on quadratics the same functions tell where it converges and how large its
# error is in every round, without a single run. Change the 25 lines; everything below follows.

# %%
# This cell installs lur where it is missing, as on Colab; in a checkout it needs no network.
import importlib.util
import os
import sys
from pathlib import Path

SCALE = float(os.environ.get("LUR_SCALE", 1))  # more rounds, more runs

checkout = next(
    (folder for folder in (Path.cwd(), *Path.cwd().parents) if (folder / "lur" / "theta.py").exists()), None
)
if importlib.util.find_spec("lur") is None and checkout is not None:
    sys.path.insert(0, str(checkout))
elif importlib.util.find_spec("lur") is None:
    # %pip install -q "lur-jax[all] @ git+https://github.com/LUR_OWNER/lur"
    pass

# %%
import itertools

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

import lur
import theory
from lur import plots, tasks
from lur.methods.server import InitServer, ServerUpdate

plots.use()

# %% [markdown]
# ## Twenty-five lines
#
# A client corrects every local gradient by $c - c_i$, the difference of the server's control variate and its own. Then
# it sends how far it went and by how much $c_i$ changed. `share` is $M/N$, the share of the clients in a round.


# %%
def scaffold(loss_fn, K, share):
    def init_server(params, client_lr, server_lr):
        state = InitServer(optax.sgd, None, K)(params, client_lr, server_lr)
        return state._replace(method_state=optax.tree.zeros_like(state.params))  # c

    def broadcast(state):
        return lur.Broadcast(state.params, state.client_lr, extra=state.method_state)

    def client_update(sent, c_i, batches):
        x, gamma, c = sent.params, sent.client_lr, sent.extra

        def local_step(y, batch):
            loss, g = jax.value_and_grad(loss_fn)(y, batch)
            return jax.tree.map(lambda y, g, c, c_i: y - gamma * (g - c_i + c), y, g, c, c_i), loss

        y, losses = batches.scan(local_step, x)
        delta = optax.tree.sub(x, y)
        new_c_i = jax.tree.map(lambda c_i, c, delta: c_i - c + delta / (K * gamma), c_i, c, delta)
        return lur.ClientOutput((delta, optax.tree.sub(new_c_i, c_i)), new_c_i, losses[0])

    def server_update(state, mean_update, cohort):
        state, info = ServerUpdate(optax.sgd, None)(state, mean_update[0], cohort)
        return state._replace(method_state=optax.tree.add_scale(state.method_state, share, mean_update[1])), info

    zeros = optax.tree.zeros_like
    return lur.Method(init_server, client_update, server_update, K, init_client=zeros, broadcast=broadcast)


# %% [markdown]
# ## It trains
#
# On scikit-learn's digits, 50 clients with few classes each, $K = 20$ local steps, ten clients per round. The engine
# keeps one $c_i$ per client, on whatever device or disk it fits.

# %%
digits = tasks.load("digits", heterogeneity=10.0)
params = digits.init(jax.random.key(0))
N, M, K, rounds = digits.store.clients, 10, 20, max(20, round(300 * SCALE))
sizes = {"rounds": rounds, "clients_per_round": M, "batch_size": 10, "view": digits.view}
methods = {
    "FedAvg": lur.local_update(digits.loss, lur.theta.fedavg(K), send="delta"),
    "SCAFFOLD": scaffold(digits.loss, K, M / N),
}
for name, method in methods.items():
    state, infos = lur.run(method, method.init(params, 0.3, 1.0, clients=N), digits.store, **sizes)
    result = lur.evaluate(digits, state.params)
    smooth = np.convolve(infos.loss, np.ones(10) / 10, "valid")
    plt.plot(np.arange(10, rounds + 1), smooth, label=f"{name}: $f(x)$ = {result.loss:.3f}")
    print(f"{name}: f(x) = {result.loss:.4f} over all clients, training accuracy {result.accuracy:.1%}")
plt.xlabel("round $t$")
plt.ylabel("loss of the cohort, mean of ten rounds")
plt.yscale("log")
plt.legend()
plt.show()

# %% [markdown]
# ## Where does it converge?
#
# On quadratics a round is affine in what the method remembers, here $x$ and all $c_i$ ($c$ is always their mean).
# `theory.fixed_point_of` differentiates the round: its fixed point, and the factor by which the error shrinks.

# %%
rng = np.random.default_rng(0)
n, d, K, cohort_size = 4, 2, 5, 2
bases, _ = np.linalg.qr(rng.normal(size=(n, d, d)))
A = np.einsum("nij,nj,nkj->nik", bases, rng.uniform(0.1, 1, size=(n, d)), bases)
problem = theory.Problem((A + A.swapaxes(1, 2)) / 2, rng.normal(size=(n, d)), np.full(n, 1 / n))
star, start = theory.minimizer(problem), jnp.full(d, 2.0)
quadratic = tasks.load("quadratic", A=problem.A, c=problem.c, dtype=jnp.float64)
batches = {k: jnp.repeat(v[:, None, None], K, axis=1) for k, v in (("A", problem.A), ("c", problem.c))}
ours = {
    "FedAvg": lur.local_update(quadratic.loss, lur.theta.fedavg(K), send="delta"),
    "SCAFFOLD": scaffold(quadratic.loss, K, cohort_size / n),
}


everyone = jnp.arange(n)


def round_of(method, gamma, eta):
    """One round as a function of what the method remembers and of the cohort, and the memory at the start."""
    state = method.init(start, gamma, eta, clients=n)

    def one_round(memory, cohort=everyone):
        x, c_i = memory
        c = jax.tree.map(lambda leaf: leaf.mean(0), c_i)
        mine = {k: v[cohort] for k, v in batches.items()}
        after, _ = method.round(state._replace(params=x, method_state=c, clients=c_i), mine, clients=cohort)
        return after.params, after.clients

    return one_round, (state.params, state.clients)


gamma, eta = 0.4, 1.0
for name, method in ours.items():
    fixed = theory.fixed_point_of(*round_of(method, gamma, eta))
    gap = float(jnp.linalg.norm(fixed.state[0] - star))
    print(f"{name}: converges to a point {gap:.2g} away from x*; the error shrinks by {fixed.radius:.3f} per round")

# %% [markdown]
# ## How large is its error?
#
# With $M$ of $n$ clients at random, round $t$ applies one of the $\binom nM$ affine maps, one per cohort. The second
# moment of the memory therefore obeys a linear recursion, so $E\|x_t - x^*\|^2$ is known exactly for every round. Runs
# can check it in early rounds only: later the mean is due to rare, unlucky sequences of cohorts that few runs meet.

# %%
cohorts = jnp.array(list(itertools.combinations(range(n), cohort_size)))


def exact_error(method, gamma, eta, rounds):
    """E||x_t - x*||^2 for t = 1 .. rounds + 1, with the memory as (memory, 1) in homogeneous coordinates."""
    one_round, memory = round_of(method, gamma, eta)
    flat, unravel = ravel_pytree(memory)

    def affine_map(cohort):
        def flat_round(vector):
            return ravel_pytree(one_round(unravel(vector), cohort))[0]

        b, J = flat_round(jnp.zeros_like(flat)), jax.jacfwd(flat_round)(flat)
        return jnp.block([[J, b[:, None]], [jnp.zeros((1, flat.size)), jnp.ones((1, 1))]])

    maps = jax.vmap(affine_map)(cohorts)

    def step(second, _):
        error = (
            second[:d, :d] - jnp.outer(second[:d, -1], star) - jnp.outer(star, second[:d, -1]) + jnp.outer(star, star)
        )
        return jnp.einsum("sij,jk,slk->il", maps, second, maps) / len(maps), jnp.trace(error)

    first = jnp.append(flat, 1.0)
    return jax.lax.scan(step, jnp.outer(first, first), None, rounds + 1)[1]


T, runs = 40, max(50, round(2000 * SCALE))
for (name, method), color in zip(ours.items(), plots.COLOURS, strict=False):
    plt.plot(np.arange(T + 1), exact_error(method, gamma, eta, T), color=color, label=f"{name}, exact")
    times, far = range(2, 13, 2), 0
    for t in times:  # the same rounds, simulated many times in one program
        states, _ = lur.run_grid(
            method, start, quadratic.store, client_lr=[gamma], server_lr=[eta], seeds=range(runs), rounds=t,
            capacity=16, clients_per_round=cohort_size, batch_size=1, view=quadratic.view,
        )  # fmt: skip
        errors = np.sum((np.asarray(states.params)[0, 0] - np.asarray(star)) ** 2, axis=-1)
        interval = 2.58 * errors.std() / np.sqrt(runs)
        far += abs(errors.mean() - exact_error(method, gamma, eta, t)[-1]) > interval
        plt.errorbar(
            t, errors.mean(), interval, fmt="o", ms=4, color=color, label=f"{runs:,} runs, 99%" if t == 12 else None
        )
    print(f"{name}: {len(times) - far} of {len(times)} exact errors lie in the 99% intervals of {runs:,} runs")
plt.xlabel("round $t$")
plt.ylabel(r"$E\|x_t - x^*\|^2$")
plt.yscale("log")
plt.legend()
plt.show()

# %% [markdown]
# ## Which rates are best?
#
# The exact error has no noise, so a grid of rates needs no repetitions. White cells diverge.

# %%
cells = max(3, round(25 * SCALE))
gammas, etas = jnp.linspace(0.05, 1.5, cells), jnp.geomspace(0.1, 2, cells)
figure, axes = plt.subplots(1, 2, figsize=(7.5, 3), sharey=True)
for (name, method), ax in zip(ours.items(), axes, strict=True):

    def final_error(gamma, eta, method=method):
        return exact_error(method, gamma, eta, T)[-1]

    table = np.asarray(jax.jit(jax.vmap(jax.vmap(final_error, (None, 0)), (0, None)))(gammas, etas))
    table = np.where(np.isfinite(table) & (table < 10), table, np.nan)
    i, j = np.unravel_index(np.nanargmin(table), table.shape)
    print(f"{name}, best rates: gamma {gammas[i]:.3g}, eta {etas[j]:.3g}: error {table[i, j]:.3g} after {T} rounds")
    image = ax.pcolormesh(etas, gammas, np.log10(table), cmap="viridis_r", shading="nearest", vmin=-8, vmax=1)
    ax.plot(etas[j], gammas[i], "r*", ms=12)
    ax.set(xscale="log", xlabel=r"server rate $\eta$", title=name)
    ax.grid(False)
axes[0].set_ylabel(r"client rate $\gamma$")
figure.colorbar(image, ax=axes, label=rf"$\log_{{10}} E\|x_{{{T + 1}}} - x^*\|^2$")
plt.show()

# %% [markdown]
# More: [the algorithms and their code](../docs/algorithms.md) shows the round that ran here;
# [What does my method optimise?](../docs/surrogate.md) lists twenty clients with closed forms;
# [How large will the error be?](../docs/predict.md) adds mini-batches and noise;
# [Does the quadratic theory apply to networks?](../docs/diagnose.md) measures it.
