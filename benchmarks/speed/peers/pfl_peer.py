# pyright: reportMissingImports=false
"""Apple's pfl: federated averaging on its simulated backend, with local SGD by its PyTorch bridge.

pfl always evaluates in the first round; the model has no metrics, so this costs nothing.
"""

import time

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm import FederatedAveraging, NNAlgorithmParams
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from protocol import Done, serve
from torch_models import LOSSES, from_lur, tensors, to_lur, with_best_threads


class Module(torch.nn.Module):
    """The model with the methods that pfl requires, `loss` and `metrics`."""

    def __init__(self, task, params):
        super().__init__()
        self.function = LOSSES[task]
        for name, tensor in from_lur(params).items():
            self.register_parameter(name, torch.nn.Parameter(tensor))

    def loss(self, *batch):
        return self.function(dict(self.named_parameters()), *batch)

    def metrics(self, *batch):
        return {}


def contender(case):
    data = tensors(case.task, case.data)
    _, M, K, B = case.rows.shape
    schedule = torch.tensor(case.rows).long().reshape(-1, K * B)
    local = NNTrainHyperParams(
        local_num_epochs=1, local_learning_rate=case.client_lr, local_batch_size=B, local_max_grad_norm=None
    )

    def run(rounds):
        module = Module(case.task, case.params)
        model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), 1.0))
        seen = [0]

        def user(i):
            seen[0] += K * B
            return Dataset([field[schedule[i]] for field in data], user_id=str(i))

        order = iter(range(len(schedule)))
        clients = FederatedDataset(user, lambda: next(order))
        algorithm = NNAlgorithmParams(
            central_num_iterations=rounds, evaluation_frequency=rounds, train_cohort_size=M, val_cohort_size=0
        )
        start = time.perf_counter()
        FederatedAveraging().run(algorithm, SimulatedBackend(clients, clients), model, local)
        return Done(time.perf_counter() - start, seen[0], to_lur(dict(module.named_parameters())))

    return with_best_threads(run)


if __name__ == "__main__":
    serve(contender, ("pfl", "torch", "numpy"))
