"""Trains in a run folder with clients that keep a state, which `on_disk` makes rows on disk.

``python -m tests.lur.runs.stateful_run FOLDER ROUNDS [LAYOUT [on_disk [PORT INDEX]]]``; with the last two arguments it
is one of two processes.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import optax

from lur.jax_setup import prepare
from lur.methods.method import ClientOutput, Method
from lur.methods.server import InitServer, ServerUpdate
from lur.parallel import client_states
from lur.runs.train_run import train_in_folder
from lur.training.configuration import RunConfig
from lur.training.experiment import load_task, resolve


def init_client(params):
    """A client keeps the number of its rounds and a vector."""
    return {"rounds": jnp.zeros((), jnp.int32), "vector": jnp.zeros_like(params)}


def experiment(rounds, layout="vmap"):
    """Clients that step along a running mean of their gradients, on the quadratic task."""
    config = RunConfig("quadratic", rounds=rounds, clients=8, clients_per_round=3, layout=layout, checkpoint_every=1)
    task = load_task(config)

    def client_update(broadcast, state, batches):
        loss, gradient = jax.value_and_grad(task.loss)(broadcast.params, batches.first())
        vector = (state["vector"] + gradient) / 2
        return ClientOutput(vector, {"rounds": state["rounds"] + 1, "vector": vector}, loss)

    resolved = resolve(config, task)
    K = resolved.method.local_steps
    method = Method(
        InitServer(optax.sgd, None, K), client_update, ServerUpdate(optax.sgd, None), K, init_client=init_client
    )
    on_host = not client_states.fits_device(
        jax.eval_shape(init_client, jax.eval_shape(task.init, jax.random.key(0))), 8
    )
    return resolved._replace(program=resolved.program._replace(method=method), data_on_host=on_host)


if __name__ == "__main__":
    prepare()
    folder, rounds, *more = sys.argv[1:]
    if len(more) == 4:
        jax.distributed.initialize(f"127.0.0.1:{more[2]}", 2, int(more[3]), cluster_detection_method="deactivate")
    if "on_disk" in more:
        client_states.DEVICE_BYTES = 0
    for _ in train_in_folder(Path(folder), experiment(int(rounds), *more[:1]), chunk=3):
        pass
