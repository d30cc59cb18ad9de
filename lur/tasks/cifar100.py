"""`cifar100`: classify images (100 classes) with a ResNet-18 with group norm on random crops, flipped and standardised.

The paper crops to 24x24; the published code uses 32x32 by default (`crop=32`). Its network also has an L2 penalty on
the kernels of the convolutions and on the logits' kernel and bias, which the paper does not mention (`l2=1e-4`).
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, UInt8

import lur.data.prepare as prepare
from lur.data.store import Store
from lur.models.layers.losses import softmax_cross_entropy
from lur.models.resnet import ResNet18
from lur.tasks.built_in import generated_store, prepared_store
from lur.tasks.task import Outcomes, Settings, Task, classification_outcomes

PENALISED = ("kernel", "logits")
"""What the path of a penalised parameter contains: kernels, and both parameters of the logits."""
SETTINGS = Settings(clients_per_round=10, local_steps=10, batch_size=20, client_lr=0.01, server_lr=10**-1.5)
CLIENTS = 100
"""The number of generated clients by default."""
SIDE = 32


def standardised(image: Float[Array, "h w c"]) -> Float[Array, "h w c"]:
    """Return (x - mean) / max(std, 1 / sqrt(size)), over all pixels and channels of one image."""
    return (image - image.mean()) / jnp.maximum(image.std(), 1 / image.size**0.5)


def random_crop(key: Key[Array, ""], image: UInt8[Array, "32 32 3"], crop: int) -> UInt8[Array, "crop crop 3"]:
    """Return a random window of the image, mirrored with probability 1/2."""
    corner_key, mirror_key = jax.random.split(key)
    y, x = jax.random.randint(corner_key, (2,), 0, SIDE - crop + 1, jnp.int32)
    window = jax.lax.dynamic_slice(image, (y, x, jnp.zeros_like(x)), (crop, crop, 3))
    return jnp.where(jax.random.bernoulli(mirror_key), window[:, ::-1], window)


def built_in_store(clients: int | None = None, heterogeneity: float = 1.0, seed: int = 0) -> Store:
    """Return the built-in data; the arguments are those of `task`."""
    return generated_store("cifar100", CLIENTS if clients is None else clients, heterogeneity, seed)


def task(
    store: Store | None = None,
    *,
    clients: int | None = None,
    heterogeneity: float = 1.0,
    seed: int = 0,
    dtype: Any = jnp.float32,
    crop: int = 24,
    l2: float = 0.0,
) -> Task:
    """Return the task.

    Args:
      store: clients with TensorFlow Federated's features ``image`` and ``label``; by default generated images.
      clients: the number of clients to generate.
      heterogeneity: the heterogeneity of the generated clients.
      seed: the seed of the generated clients.
      dtype: the dtype of parameters and activations.
      crop: the side of the crops.
      l2: the penalty l2 * sum of squares of the network's kernels and of the logits' bias, without a factor 1/2;
        1e-4 in the published code.
    """
    if not 1 <= crop <= SIDE:
        raise ValueError(f"crop must be between 1 and {SIDE}, got {crop}")
    if not 0 <= l2 < float("inf"):
        raise ValueError(f"l2 must be finite and >= 0, got {l2}")
    if store is None:
        store = built_in_store(clients, heterogeneity, seed)
    store = prepared_store("cifar100", store, prepare.cifar100)
    model = ResNet18(classes=100, dtype=dtype)

    def batch_of(crops: UInt8[Array, "B crop crop 3"], examples: Mapping[str, Any]) -> dict[str, Any]:
        return {"image": jax.vmap(standardised)(crops.astype(dtype)), "label": examples["label"].astype(jnp.int32)}

    def view(key: Any, examples: Mapping[str, Any]) -> dict[str, Any]:
        images = examples["image"]
        keys = jax.random.split(key, images.shape[0])
        return batch_of(jax.vmap(lambda key, image: random_crop(key, image, crop))(keys, images), examples)

    def eval_view(examples: Mapping[str, Any]) -> dict[str, Any]:
        edge = (SIDE - crop) // 2
        return batch_of(examples["image"][:, edge : edge + crop, edge : edge + crop], examples)

    def outcomes(params: Any, batch: Mapping[str, Any]) -> Outcomes:
        logits: Any = model.apply(params, batch["image"])
        losses = softmax_cross_entropy(logits, batch["label"])
        return classification_outcomes(logits, losses, batch["label"])

    def init(key: Any) -> Any:
        return model.init(key, jnp.zeros((1, crop, crop, 3), dtype))

    def penalty(params: Any) -> Float[Array, ""]:
        leaves = jax.tree_util.tree_leaves_with_path(params)
        penalised = [leaf for path, leaf in leaves if any(entry.key in PENALISED for entry in path)]
        return l2 * jnp.stack([(leaf * leaf).sum() for leaf in penalised]).sum()

    settings = SETTINGS.for_store(store)
    return Task("cifar100", store, init, view, eval_view, outcomes, settings, penalty=penalty if l2 > 0 else None)
