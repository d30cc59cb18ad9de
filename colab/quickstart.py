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
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/LUR_OWNER/lur/blob/main/colab/quickstart.ipynb)
#
# # Quickstart: FedAvg on digits
#
# 1,797 real handwritten digits are split among 50 clients that see different classes. In each round, a few clients
# train on their own data, and a server combines their updates. Five lines decide how; change them and run the notebook
# again.

# %%
# This cell installs lur where it is missing, as on Colab; in a checkout it needs no network.
import importlib.util
import os
import sys
from pathlib import Path

SCALE = float(os.environ.get("LUR_SCALE", 1))  # 3 or more for longer runs; on a GPU or TPU also more clients

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
import optax

import lur
from lur import plots, tasks
from lur.training.evaluation import evaluate

plots.use()
print(f"lur {lur.__version__}, jax {jax.__version__}, {jax.devices()}")

# %% [markdown]
# ## The clients
#
# `heterogeneity` sets how much clients differ: 0 gives every client a fair sample of all digits, 10 gives most clients
# only a few classes.

# %%
digits = tasks.load("digits", heterogeneity=10.0)
store = digits.store
print(f"{store.clients} clients, {store.examples:,} examples")

label, owner = np.asarray(store.features["label"]), np.repeat(np.arange(store.clients), store.sizes)
counts = np.zeros((store.clients, 10), int)
np.add.at(counts, (owner, label), 1)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), width_ratios=(1, 1.8))
tiles = np.pad(
    np.asarray(store.features["pixels"])[:: len(label) // 30][:30].reshape(30, 8, 8), ((0, 0), (1, 1), (1, 1))
)
left.imshow(tiles.reshape(5, 6, 10, 10).transpose(0, 2, 1, 3).reshape(50, 60), cmap="gray_r")
left.set(title="some of the digits")
left.axis("off")
image = right.imshow(counts.T, aspect="auto", cmap="Blues")
right.set(title="digits of each client", xlabel="client", ylabel="digit", yticks=range(10))
right.grid(False)
figure.colorbar(image, ax=right, label="examples")
plt.show()

# %% [markdown]
# ## Five lines to change
#
# In a round, each client takes $K$ steps of SGD with the client learning rate $\gamma$ and sends the sum of its
# gradients, weighted by $\Theta$. The server uses the mean of these sums like a gradient, with its own learning rate
# $\eta$.

# %%
gamma = 0.1  # the client learning rate; 0 is mini-batch SGD
eta = 0.1  # the server learning rate
theta = lur.theta.fedavg(10)  # FedAvg, K = 10; try lur.theta.fomaml(10) or any list of weights, [1, 0, 2]
server = optax.sgd  # any optax optimiser: optax.adam, lur.optimizers.yogi
clients_per_round, batch_size = 10, 10

# %% [markdown]
# All rounds run in one compiled program.

# %%
rounds = max(4, round(200 * SCALE))
sizes = dict(rounds=rounds, clients_per_round=clients_per_round, batch_size=batch_size, view=digits.view)


def train(gamma, eta, theta, server=optax.sgd):
    """The state after all rounds, and the losses and norms of each round."""
    method = lur.local_update(digits.loss, theta, server)
    params = digits.init(jax.random.key(0))
    return lur.run(method, method.init(params, gamma, eta), store, **sizes)


state, info = train(gamma, eta, theta, server)
evaluation = evaluate(digits, state.params)
print(f"after {rounds} rounds: loss {evaluation.loss:.4f}, accuracy {evaluation.accuracy:.1%} over all clients' data")

# %% [markdown]
# ## Theta defines the method
#
# FedAvg, Reptile and local SGD send the sum of all gradients, first-order MAML only the last one, mini-batch SGD the
# first.

# %%
methods = {
    r"FedAvg, $\Theta_{1:10}$": (lur.theta.fedavg(10), 0.1),
    r"FOMAML, $\Theta_{10}$": (lur.theta.fomaml(10), 1.0),
    r"mini-batch SGD, $\Theta_1$": (lur.theta.minibatch_sgd(), 1.0),
}
window = max(1, rounds // 20)


def smooth(loss):
    """Moving average over a few rounds."""
    return np.convolve(loss, np.ones(window) / window, mode="valid")


figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2))
for name, (weights, rate) in methods.items():
    end, infos = train(gamma, rate, weights)
    left.plot(smooth(infos.loss), label=f"{name}: {evaluate(digits, end.params).accuracy:.1%}")
left.set(xlabel="round", ylabel="loss of the round's clients", yscale="log", title="three methods")
left.legend(fontsize=7)

# A grid of rates runs in one program, too; every cell sees the same clients and mini-batches.
gammas, etas = [0.001, 0.01, 0.1, 1.0, 10.0], [0.001, 0.01, 0.1, 1.0]
method = lur.local_update(digits.loss, lur.theta.fedavg(10))
_, infos = lur.run_grid(method, digits.init(jax.random.key(0)), store, client_lr=gammas, server_lr=etas, **sizes)
last = np.asarray(infos.loss)[:, :, 0, -window:].mean(-1)
right.imshow(np.log10(last), cmap="viridis_r", origin="lower", aspect="auto")
right.set(xticks=range(len(etas)), xticklabels=etas, yticks=range(len(gammas)), yticklabels=gammas)
right.set(xlabel=r"server learning rate $\eta$", ylabel=r"client learning rate $\gamma$", title="FedAvg: final loss")
right.grid(False)
for (row, column), value in np.ndenumerate(last):
    colour = "white" if np.log10(value) > np.log10(last).mean() else "black"
    right.text(column, row, f"{value:.2g}", ha="center", va="center", fontsize=7, color=colour)
plt.show()

# %% [markdown]
# Both rates matter. Why a larger $\gamma$ can help early and hurt late is the subject of [surrogate](surrogate.ipynb),
# which shows what FedAvg really optimises, and of [learning_rates](learning_rates.ipynb), which runs the paper's
# experiments.
#
# On the command line, `lur train digits --client-lr 0.1 --server-lr 0.1` does the same; there are six more tasks.
