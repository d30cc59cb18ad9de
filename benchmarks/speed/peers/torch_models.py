# pyright: reportMissingImports=false
"""The models of the benchmark in PyTorch, as functions of named parameters; shared by the peers that use it.

Parameters have lur's names, in PyTorch's layouts: `from_lur` and `to_lur` convert. ``LOSSES[task](params, *batch)``
is the mean loss of a mini-batch, its fields in the order that `tensors` gives the examples.
"""

import os

import torch
import torch.nn.functional as F


def with_best_threads(run):
    """A run on one core or on all, whichever is faster: small steps and busy machines favour one core."""

    def seconds(threads):
        torch.set_num_threads(threads)
        return run(1).seconds

    run(1)
    torch.set_num_threads(min((1, os.cpu_count()), key=seconds))
    return run


def is_transposed(name, array):
    """Whether a parameter is a dense or LSTM kernel: (in, out) in lur and (out, in) in PyTorch."""
    return array.ndim == 2 and name != "kernel" and name.endswith(("kernel", "recurrent"))


def from_lur(params):
    """lur's parameters as tensors."""

    def convert(name, array):
        tensor = torch.tensor(array)
        if array.ndim == 4:
            return tensor.permute(3, 2, 0, 1).contiguous()
        return tensor.T.contiguous() if is_transposed(name, array) else tensor

    return {name: convert(name, array) for name, array in params.items()}


def to_lur(params):
    """Tensors as lur's parameters."""

    def convert(name, tensor):
        array = tensor.detach().numpy()
        if array.ndim == 4:
            return array.transpose(2, 3, 1, 0)
        return array.T if is_transposed(name, array) else array.copy()

    return {name: convert(name, tensor) for name, tensor in params.items()}


def tensors(task, data):
    """The examples in PyTorch's conventions: images with channels first, tags as a 0/1 matrix."""
    if task == "tiny":
        return [torch.tensor(data["x"]), torch.tensor(data["y"])]
    if task in ("femnist", "cifar100"):
        return [torch.tensor(data["x"]).permute(0, 3, 1, 2).contiguous(), torch.tensor(data["y"]).long()]
    if task == "stackoverflow_tp":
        tags = torch.tensor(data["tags"]).long()
        hot = torch.zeros(len(tags), 500).scatter_(1, tags, 1.0)
        return [torch.tensor(data["words"]).long(), torch.tensor(data["weights"]), hot]
    return [torch.tensor(data["tokens"]).long()]


def dense(p, name, x):
    return F.linear(x, p[f"{name}/kernel"], p[f"{name}/bias"])


def norm(p, name, x):
    return F.group_norm(x, 2, p[f"{name}/scale"], p[f"{name}/bias"], eps=1e-3)


def logistic(p, x, y):
    return F.binary_cross_entropy_with_logits(x @ p["kernel"], y)


def cnn(p, x, y):
    for name in ("conv1", "conv2"):
        x = F.relu(F.max_pool2d(F.conv2d(x, p[f"{name}/kernel"], p[f"{name}/bias"], padding=2), 2))
    x = F.relu(dense(p, "hidden", x.permute(0, 2, 3, 1).flatten(1)))  # lur flattens with channels last
    return F.cross_entropy(dense(p, "logits", x), y)


def block(p, name, x, normed=True):
    y = F.relu(norm(p, f"{name}/norm1", x)) if normed else x
    y = F.conv2d(y, p[f"{name}/conv1/kernel"], padding=1)
    y = F.conv2d(F.relu(norm(p, f"{name}/norm2", y)), p[f"{name}/conv2/kernel"], padding=1)
    if f"{name}/shortcut/kernel" in p:
        x = norm(p, f"{name}/shortcut_norm", F.conv2d(x, p[f"{name}/shortcut/kernel"]))
    return x + y


def resnet(p, x, y):
    x = F.conv2d(F.pad(x, (2, 3, 2, 3)), p["stem/kernel"], stride=2)  # "SAME": one more below and to the right
    x = F.relu(norm(p, "stem_norm", x))
    x = F.max_pool2d(F.pad(x, (0, 1, 0, 1)), 3, 2)  # padding with 0 after relu is padding with -inf
    for stage in range(1, 5):
        for i in (1, 2):
            x = block(p, f"stage{stage}_block{i}", x, normed=(stage, i) != (1, 1))
    x = F.relu(norm(p, "norm", x)).mean((2, 3))
    return F.cross_entropy(dense(p, "logits", x), y)


def language(p, tokens):
    x, y = F.embedding(tokens[:, :-1], p["embedding"]), tokens[:, 1:]
    for name in [name for name in ("lstm1", "lstm2") if f"{name}/kernel" in p]:
        bias = p[f"{name}/bias"]
        state = x.new_zeros(1, len(x), p[f"{name}/recurrent"].shape[1])
        weights = [p[f"{name}/kernel"], p[f"{name}/recurrent"], bias, torch.zeros_like(bias)]
        x, _, _ = torch.lstm(x, (state, state), weights, True, 1, 0.0, True, False, True)
    if "projection/kernel" in p:
        x = dense(p, "projection", x)
    return F.cross_entropy(dense(p, "logits", x).flatten(0, 1), y.flatten())


def tags(p, words, weights, hot):
    logits = F.embedding_bag(words, p["kernel"], per_sample_weights=weights, mode="sum") + p["bias"]
    return F.binary_cross_entropy_with_logits(logits, hot)


LOSSES = {
    "tiny": logistic,
    "femnist": cnn,
    "cifar100": resnet,
    "shakespeare": language,
    "stackoverflow_nwp": language,
    "stackoverflow_tp": tags,
}
