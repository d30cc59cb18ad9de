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
# # lur in five minutes
#
# FedAvg on a small problem with two clients: how to run it, what it converges to (not what you may think), and a
# theorem checked on the spot.

# %%
# On Colab this installs lur; in a checkout or where lur is installed already it does nothing.
import importlib.util

if importlib.util.find_spec("lur") is None:
    # %pip install -q lur-jax
    pass

# %%
import jax

jax.config.update("jax_enable_x64", True)  # a small exact problem; training in float32 needs no such line

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import lur
import theory

# %% [markdown]
# ## Two clients
#
# Client 1 has the loss $\frac12 (x-1)^2$, client 2 has $(x - \frac12)^2$. Their average is least at $x^* = 2/3$.

# %%
problem = theory.two_clients()
print("true minimiser   ", theory.minimizer(problem))
print("average minimiser", theory.average_minimizer(problem))


# %% [markdown]
# A loss is a function of the model and a mini-batch. Here an example is a pair $(A, c)$ with loss
# $\frac12 (x-c)^\top A (x-c)$, and each client has just one.


# %%
def loss_fn(x, batch):
    A, c = batch
    return 0.5 * jnp.mean(jnp.einsum("bi,bij,bj->b", x - c, A, x - c))


def batches(K):
    """Every client's one example, K times: leading axes (clients, steps, batch)."""
    return tuple(jnp.broadcast_to(v[:, None, None], (2, K, 1, *v.shape[1:])) for v in (problem.A, problem.c))


# %% [markdown]
# ## FedAvg
#
# `Theta` says which of a client's gradients count: FedAvg sums all `K` of them. `client_lr` is the paper's $\gamma$,
# `server_lr` its $\eta$. The server may be any optax optimiser.

# %%
K, gamma, eta = 2, 0.25, 0.1
algorithm = lur.local_update(loss_fn, lur.theta.fedavg(K), server=optax.sgd)
state = algorithm.init(jnp.array([3.0]), client_lr=gamma, server_lr=eta)
for _ in range(200):
    state, info = algorithm.round(state, batches(K))
print("FedAvg converged to", state.params, "with loss", info.loss)

# %% [markdown]
# Not to $2/3$. FedAvg descends a *surrogate* loss, and `theory` knows its minimiser: $13/19$.

# %%
print("surrogate minimiser", theory.surrogate_minimizer(problem, gamma, lur.theta.fedavg(K)), "=", 13 / 19)
np.testing.assert_allclose(state.params, theory.surrogate_minimizer(problem, gamma, lur.theta.fedavg(K)), rtol=1e-9)

# %% [markdown]
# ## How far off, for every client learning rate
#
# The rates are values in the state, so a whole grid of them is one `vmap`.

# %%
gammas = jnp.linspace(0.0, 0.49, 25)


def limit(gamma, theta):
    state = algorithms[theta].init(jnp.array([3.0]), gamma, eta)
    rounds = jax.lax.scan(lambda s, _: (algorithms[theta].round(s, batches(len(theta)))[0], None), state, length=2000)
    return rounds[0].params[0]


thetas = {
    "FedAvg, K = 2": lur.theta.fedavg(2),
    "FedAvg, K = 10": lur.theta.fedavg(10),
    "FOMAML, K = 3": lur.theta.fomaml(3),
}
algorithms = {theta: lur.local_update(loss_fn, theta) for theta in thetas.values()}
for name, theta in thetas.items():
    (line,) = plt.plot(gammas, [float(theory.surrogate_minimizer(problem, g, theta)[0]) for g in gammas], label=name)
    plt.plot(gammas, jax.vmap(lambda g, theta=theta: limit(g, theta))(gammas), "o", ms=3, color=line.get_color())
plt.axhline(2 / 3, color="black", ls=":", label="true minimiser")
plt.xlabel(r"client learning rate $\gamma$")
plt.ylabel("where it converges")
plt.title("lines: theory, dots: LocalUpdate")
plt.legend()
plt.show()

# %% [markdown]
# ## A theorem, checked
#
# Theorem 2: MAML with $K$ gradient steps *is* the local update method that sends its $(2K+1)$-th gradient. On the left
# lur differentiates through the client's steps, on the right nobody does.

# %%
x, K = jnp.array([3.0]), 3
client = tuple(v[0] for v in batches(2 * K + 1))
through_the_steps = lur.maml.maml_gradient(loss_fn, x, client, gamma, K)
message, _ = lur.client.inner_loop(loss_fn, x, client, gamma, lur.theta.maml(K))
print(through_the_steps, "=", message)
np.testing.assert_allclose(through_the_steps, message, rtol=1e-12)

# %% [markdown]
# `lur verify` on the command line does this for every claim of the paper, and prints a counterexample in fractions for
# those that are false.
