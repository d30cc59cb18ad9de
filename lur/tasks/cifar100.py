"""`cifar100`: which of 100 classes? ResNet-18 with group normalisation; crops, flips, standardised images.

The paper crops to 24; the published code's default is 32 (`crop=32`).
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, UInt8

from lur.data import prepare
from lur.data.store import Store
from lur.tasks.built_in import generated, prepared
from lur.tasks.task import Outcomes, Settings, Task, classification

SETTINGS = Settings(10, 10, 20, 0.01, 10**-1.5)
CLIENTS = 100
SIDE = 32


def standardised(image: Float[Array, "h w c"]) -> Float[Array, "h w c"]:
    """(x - mean) / max(std, 1 / sqrt(pixels)) over all pixels and channels of one image."""
    return (image - image.mean()) / jnp.maximum(image.std(), 1 / image.size**0.5)


def random_crop(key: Key[Array, ""], image: UInt8[Array, "32 32 3"], crop: int) -> UInt8[Array, "crop crop 3"]:
    """A random window, mirrored or not."""
    place, mirror = jax.random.split(key)
    y, x = jax.random.randint(place, (2,), 0, SIDE - crop + 1, jnp.int32)
    window = jax.lax.dynamic_slice(image, (y, x, jnp.zeros_like(x)), (crop, crop, 3))
    return jnp.where(jax.random.bernoulli(mirror), window[:, ::-1], window)


def task(
    store: Store | None = None,
    *,
    clients: int | None = None,
    heterogeneity: float = 1.0,
    seed: int = 0,
    dtype: Any = jnp.float32,
    crop: int = 24,
) -> Task:
    """The task over a store with TFF's features image and label, or over generated images."""
    from lur.models.layers.losses import softmax_cross_entropy
    from lur.models.resnet import ResNet18

    if not 1 <= crop <= SIDE:
        raise ValueError(f"crop must be between 1 and {SIDE}, got {crop}")
    if store is None:
        store = generated("cifar100", CLIENTS if clients is None else clients, heterogeneity, seed)
    store = prepared("cifar100", store, prepare.cifar100)
    model = ResNet18(classes=100, dtype=dtype)

    def seen(images: Any, examples: Mapping[str, Any]) -> dict[str, Any]:
        return {"image": jax.vmap(standardised)(images.astype(dtype)), "label": examples["label"].astype(jnp.int32)}

    def view(key: Any, examples: Mapping[str, Any]) -> dict[str, Any]:
        images = examples["image"]
        keys = jax.random.split(key, images.shape[0])
        return seen(jax.vmap(lambda key, image: random_crop(key, image, crop))(keys, images), examples)

    def plain(examples: Mapping[str, Any]) -> dict[str, Any]:
        edge = (SIDE - crop) // 2
        return seen(examples["image"][:, edge : edge + crop, edge : edge + crop], examples)

    def outcomes(params: Any, batch: Mapping[str, Any]) -> Outcomes:
        logits: Any = model.apply(params, batch["image"])
        return classification(logits, softmax_cross_entropy(logits, batch["label"]), batch["label"])

    def init(key: Any) -> Any:
        return model.init(key, jnp.zeros((1, crop, crop, 3), dtype))

    return Task("cifar100", store, init, view, plain, outcomes, SETTINGS.fitting(store))
