# pyright: reportMissingImports=false
"""Flower's federated averaging in its ray simulation: one node per client of a round, one core per process.

The simulation starts once and serves all turns: its server waits for the next run.
"""

import os
import threading
import time
from pathlib import Path
from queue import Queue

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["PYTHONPATH"] = str(Path(__file__).parent)

from flower_client import app as client_app
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from protocol import Done, serve
from torch_models import from_lur, to_lur

THREADS = 1
"""Cores per client, as Flower recommends: as many clients as there are cores run in parallel."""


def count_examples(replies, key):
    """The number of examples that the clients of a round trained on."""
    return MetricRecord({"examples": sum(int(reply["metrics"][key]) for reply in replies)})


def contender(case):
    M = case.rows.shape[1]
    runs, answers = Queue(), Queue()
    server_app = ServerApp()
    config = {"file": case.file, "task": case.task, "client_lr": case.client_lr, "threads": THREADS}

    @server_app.main()
    def main(grid, context):
        for rounds in iter(runs.get, None):
            strategy = FedAvg(
                fraction_evaluate=0.0, min_train_nodes=M, min_available_nodes=M, train_metrics_aggr_fn=count_examples
            )
            arrays = ArrayRecord(from_lur(case.params))
            start = time.perf_counter()
            result = strategy.start(grid, arrays, num_rounds=rounds, train_config=ConfigRecord(config))
            seconds = time.perf_counter() - start
            examples = sum(int(record["examples"]) for record in result.train_metrics_clientapp.values())
            answers.put(Done(seconds, examples, to_lur(result.arrays.to_torch_state_dict())))

    def simulate():
        try:
            resources = {"client_resources": {"num_cpus": THREADS, "num_gpus": 0.0}}
            run_simulation(server_app, client_app, num_supernodes=M, backend_config=resources)
        finally:
            answers.put(None)

    threading.Thread(target=simulate, daemon=True).start()

    def run(rounds):
        runs.put(rounds)
        done = answers.get()
        if done is None:
            raise RuntimeError("the simulation ended")
        return done

    return run


if __name__ == "__main__":
    serve(contender, ("flwr", "ray", "torch", "numpy"))
