# pyright: reportMissingImports=false
"""The clients of `flower_peer`, in a separate module that Flower's processes import and that caches the examples."""

from functools import lru_cache

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from protocol import read_case
from torch_models import LOSSES, tensors

app = ClientApp()


@lru_cache(maxsize=1)
def prepared(file, task, client_lr, threads):
    """The examples and the schedule of mini-batches, read once per process."""
    torch.set_num_threads(threads)
    case = read_case(file, task, client_lr)
    return tensors(task, case.data), torch.tensor(case.rows).long()


@app.train()
def train(message, context):
    """The local steps of this node's client in the server's current round."""
    config = message.content["config"]
    data, schedule = prepared(config["file"], config["task"], config["client_lr"], config["threads"])
    loss = LOSSES[config["task"]]
    params = message.content["arrays"].to_torch_state_dict()
    y = [tensor.requires_grad_() for tensor in params.values()]
    batches = schedule[config["server-round"] - 1, context.node_config["partition-id"]]
    for rows in batches:
        gradient = torch.autograd.grad(loss(params, *(field[rows] for field in data)), y)
        with torch.no_grad():
            torch._foreach_add_(y, gradient, alpha=-config["client_lr"])
    metrics = MetricRecord({"num-examples": batches.numel()})
    params = {name: tensor.detach() for name, tensor in params.items()}
    return Message(RecordDict({"arrays": ArrayRecord(params), "metrics": metrics}), reply_to=message)
