r"""`sinusoid`: few-shot regression of sine waves with a small network; a client is a wave (Finn et al., 2017).

Client i has an amplitude :math:`a_i \in [0.1, 5]` and a phase :math:`\phi_i \in [0, \pi]`, and its examples are points
:math:`(x, a_i \sin(x - \phi_i))` with x uniform on [-5, 5]. Training clients have many points, from which their
mini-batches are drawn. A held-out client has `shots` points to adapt to, 10 or 5 in the paper, and others to be tested
on. The loss is half the squared error; f(x) times 2 is the mean squared error that the paper plots.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from lur._checks import positive_integer
from lur.data.store import Store
from lur.data.writer import in_memory
from lur.models.mlp import MLP
from lur.tasks.task import Outcomes, Settings, Task

SETTINGS = Settings(clients_per_round=25, local_steps=1, batch_size=10, client_lr=0.01, server_lr=1e-3, server="adam")
"""As in the paper: meta-batches of 25 tasks, one step with rate 0.01, Adam with rate 0.001 at the server."""
CLIENTS, HELD_OUT = 1000, 200
"""The numbers of training clients and of held-out clients."""
POINTS, TEST_POINTS = 50, 50
"""The numbers of points of a training client, and of test points of every client."""


def waves(ids: range, points: int, test_points: int, seed: int, heterogeneity: float) -> tuple[Store, Store]:
    """Return the points of some waves, to train on and to be tested on. A wave depends on its id and the seed alone.

    Args:
      ids: the ids of the clients.
      points: the number of points of a client to train on.
      test_points: the number of its test points.
      seed: the seed of the waves.
      heterogeneity: 1 spreads amplitudes and phases over their whole ranges, 0 puts them in the middle.
    """
    train, test = {}, {}
    for i in ids:
        rng = np.random.default_rng([seed, 6, i])
        spread = min(heterogeneity, 1.0) * rng.uniform(-0.5, 0.5, 2)
        amplitude, phase = 2.55 + 4.9 * spread[0], np.pi * (0.5 + spread[1])
        x = rng.uniform(-5, 5, points + test_points)
        examples = {"x": x.astype(np.float32), "y": (amplitude * np.sin(x - phase)).astype(np.float32)}
        train[i] = {name: values[:points] for name, values in examples.items()}
        test[i] = {name: values[points:] for name, values in examples.items()}
    about = {"dataset": "sinusoid", "generated": True, "source": "lur.tasks.sinusoid", "seed": seed}
    return in_memory(train, about), in_memory(test, about)


def task(
    *,
    clients: int | None = None,
    heterogeneity: float = 1.0,
    seed: int = 0,
    shots: int = 10,
    held_out_clients: int = HELD_OUT,
    dtype: Any = jnp.float32,
) -> Task:
    """Return the task.

    Args:
      clients: the number of training clients.
      heterogeneity: how far amplitudes and phases spread, up to 1.
      seed: the seed of the waves.
      shots: the number of points that a held-out client adapts to.
      held_out_clients: the number of held-out clients.
      dtype: the dtype of the parameters.
    """
    N = CLIENTS if clients is None else positive_integer("clients", clients)
    shots, others = positive_integer("shots", shots), positive_integer("held_out_clients", held_out_clients)
    if not 0 <= heterogeneity < float("inf"):
        raise ValueError(f"heterogeneity must be finite and >= 0, got {heterogeneity}")
    store, test = waves(range(N), POINTS, TEST_POINTS, seed, heterogeneity)
    held_out, held_out_test = waves(range(10**6, 10**6 + others), shots, TEST_POINTS, seed, heterogeneity)
    model = MLP(dtype=dtype)

    def eval_view(examples: Mapping[str, Any]) -> dict[str, Any]:
        return {name: examples[name].astype(dtype) for name in ("x", "y")}

    def outcomes(params: Any, batch: Mapping[str, Any]) -> Outcomes:
        predicted: Any = model.apply(params, batch["x"][..., None])
        loss = (predicted - batch["y"]) ** 2 / 2
        return Outcomes(loss, loss * 0, loss * 0)

    return Task(
        "sinusoid",
        store,
        lambda key: model.init(key, jnp.zeros((1, 1), dtype)),
        view=lambda key, examples: eval_view(examples),
        eval_view=eval_view,
        outcomes=outcomes,
        settings=SETTINGS.for_store(store),
        test=test,
        held_out=held_out,
        held_out_test=held_out_test,
    )
