# pyright: reportMissingImports=false
"""FedJAX's federated averaging, with its default backend: a jitted local step, a Python loop over steps and clients.

Its FedAvg fails on current jax, so its environment pins an older one.
"""

import time

import fedjax
import jax
import numpy as np
from fedjax.algorithms import fed_avg
from jax_models import LOSSES
from protocol import Done, serve


def contender(case):
    loss = LOSSES[case.task]
    batches = fedjax.ShuffleRepeatBatchHParams(batch_size=case.rows.shape[-1], num_epochs=1, skip_shuffle=True)
    algorithm = fed_avg.federated_averaging(
        grad_fn=lambda params, batch, rng: jax.grad(loss)(params, batch),
        client_optimizer=fedjax.optimizers.sgd(case.client_lr),
        server_optimizer=fedjax.optimizers.sgd(1.0),
        client_batch_hparams=batches,
    )
    key = jax.random.PRNGKey(0)

    def client(rows):
        return fedjax.ClientDataset({name: array[rows.reshape(-1)] for name, array in case.data.items()})

    def run(rounds):
        state = algorithm.init(jax.device_put(case.params))
        examples = 0
        start = time.perf_counter()
        for t in range(rounds):
            clients = [(b"%d" % i, client(rows), key) for i, rows in enumerate(case.rows[t])]
            state, _ = algorithm.apply(state, clients)
            examples += sum(len(data) for _, data, _ in clients)
        jax.block_until_ready(state.params)
        return Done(time.perf_counter() - start, examples, {name: np.asarray(x) for name, x in state.params.items()})

    return run


if __name__ == "__main__":
    serve(contender, ("fedjax", "jax", "jaxlib", "numpy"))
