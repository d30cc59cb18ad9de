# pyright: reportMissingImports=false
"""The models of the benchmark as jax functions of named parameters, for peers that need an older jax.

Parameters have lur's names and layouts. ``LOSSES[task](params, batch)`` is the mean loss of a mini-batch.
"""

import jax
import jax.numpy as jnp
from jax import lax


def dense(p, name, x):
    return x @ p[f"{name}/kernel"] + p[f"{name}/bias"]


def conv(x, kernel, stride=1):
    return lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def max_pool(x, window, padding):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, window, window, 1), (1, 2, 2, 1), padding)


def norm(p, name, x):
    """Group norm with two groups."""
    groups = x.reshape(*x.shape[:-1], 2, -1)
    mean = groups.mean((1, 2, 4), keepdims=True)
    variance = groups.var((1, 2, 4), keepdims=True)
    x = ((groups - mean) * lax.rsqrt(variance + 1e-3)).reshape(x.shape)
    return x * p[f"{name}/scale"] + p[f"{name}/bias"]


def cross_entropy(logits, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1).mean()


def logistic(p, batch):
    logits = batch["x"] @ p["kernel"]
    return (jax.nn.softplus(logits) - logits * batch["y"]).mean()


def cnn(p, batch):
    x = batch["x"]
    for name in ("conv1", "conv2"):
        x = jax.nn.relu(max_pool(conv(x, p[f"{name}/kernel"]) + p[f"{name}/bias"], 2, "VALID"))
    x = jax.nn.relu(dense(p, "hidden", x.reshape(len(x), -1)))
    return cross_entropy(dense(p, "logits", x), batch["y"])


def block(p, name, x, normed):
    y = jax.nn.relu(norm(p, f"{name}/norm1", x)) if normed else x
    y = conv(y, p[f"{name}/conv1/kernel"])
    y = conv(jax.nn.relu(norm(p, f"{name}/norm2", y)), p[f"{name}/conv2/kernel"])
    if f"{name}/shortcut/kernel" in p:
        x = norm(p, f"{name}/shortcut_norm", conv(x, p[f"{name}/shortcut/kernel"]))
    return x + y


def resnet(p, batch):
    x = jax.nn.relu(norm(p, "stem_norm", conv(batch["x"], p["stem/kernel"], 2)))
    x = max_pool(x, 3, "SAME")
    for stage in range(1, 5):
        for i in (1, 2):
            x = block(p, f"stage{stage}_block{i}", x, (stage, i) != (1, 1))
    x = jax.nn.relu(norm(p, "norm", x)).mean((1, 2))
    return cross_entropy(dense(p, "logits", x), batch["y"])


def lstm(p, name, x):
    recurrent = p[f"{name}/recurrent"]

    def step(carry, inputs):
        h, c = carry
        i, f, g, o = jnp.split(inputs + h @ recurrent, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((len(x), len(recurrent)), x.dtype)
    _, outputs = lax.scan(step, (zero, zero), dense(p, name, x).swapaxes(0, 1))
    return outputs.swapaxes(0, 1)


def language(p, batch):
    x, y = p["embedding"][batch["tokens"][:, :-1]], batch["tokens"][:, 1:]
    for name in ("lstm1", "lstm2"):
        x = lstm(p, name, x) if f"{name}/kernel" in p else x
    x = dense(p, "projection", x) if "projection/kernel" in p else x
    return cross_entropy(dense(p, "logits", x), y)


def tags(p, batch):
    logits = jnp.einsum("bw,bwo->bo", batch["weights"], p["kernel"][batch["words"]]) + p["bias"]
    positive = jnp.take_along_axis(logits, batch["tags"], -1).sum(-1)
    return (jax.nn.softplus(logits).sum(-1) - positive).mean() / logits.shape[-1]


LOSSES = {
    "tiny": logistic,
    "femnist": cnn,
    "cifar100": resnet,
    "shakespeare": language,
    "stackoverflow_nwp": language,
    "stackoverflow_tp": tags,
}
