# pyright: reportMissingImports=false
"""FedAvg as a hand-written PyTorch loop: one model, whose weights are reset for each client."""

import time

import torch
from protocol import Done, serve
from torch_models import LOSSES, from_lur, tensors, to_lur, with_best_threads


def contender(case):
    loss, data = LOSSES[case.task], tensors(case.task, case.data)
    schedule = torch.tensor(case.rows).long()
    names = list(case.params)

    def run(rounds):
        x = list(from_lur(case.params).values())
        y = [tensor.clone().requires_grad_() for tensor in x]
        examples = 0
        start = time.perf_counter()
        for clients in schedule[:rounds]:
            mean = [torch.zeros_like(tensor) for tensor in x]
            for batches in clients:
                with torch.no_grad():
                    torch._foreach_copy_(y, x)
                for rows in batches:
                    batch = [field[rows] for field in data]
                    gradient = torch.autograd.grad(loss(dict(zip(names, y, strict=True)), *batch), y)
                    with torch.no_grad():
                        torch._foreach_add_(y, gradient, alpha=-case.client_lr)
                    examples += len(rows)
                with torch.no_grad():
                    torch._foreach_sub_(y, x)
                    torch._foreach_add_(mean, y, alpha=1 / len(clients))
            torch._foreach_add_(x, mean)
        return Done(time.perf_counter() - start, examples, to_lur(dict(zip(names, x, strict=True))))

    return with_best_threads(run)


if __name__ == "__main__":
    serve(contender, ("torch", "numpy"))
