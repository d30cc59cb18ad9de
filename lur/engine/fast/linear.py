r"""A linear model's round without a model per client.

For logits :math:`z = XW + b` and SGD, a client's own weights are the broadcast ones and what its examples added,
:math:`W_k = W - \sum_{j<k} \gamma_j X_j^\top R_j` with :math:`R_j = \tfrac1B \, \partial\ell/\partial z` at step j. So

.. math::
    z_k = X_k W + b - \sum_{j<k} \gamma_j (X_k X_j^\top + 1) R_j, \qquad
    q_W = \sum_i w_i \sum_k \theta_k X_{ik}^\top R_{ik}, \qquad q_b = \sum_i w_i \sum_k \theta_k 1^\top R_{ik}:

a Gram matrix of a client's KB examples, a forward substitution over its steps, and one product over the examples of
all clients at the end. The logits and residuals of the round are kept, M K B numbers per output; nothing has the
size of W but W and q. The numbers are `lur.local_update`'s up to rounding: the sums are taken in another order.

A grid of rates is one wider model: the columns of all cells side by side, with one Gram matrix for all.

Bags of words stay sparse on a CPU, where XW and X^T R are products with a matrix of compressed rows. Elsewhere they
are written out, and all is matrix products.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.custom_batching import sequential_vmap
from jax.experimental.sparse import BCSR
from jaxtyping import Array, Float, Int, PyTree

from lur import _checks as checks
from lur.methods.client import Optimizer
from lur.methods.decay import Plateau
from lur.methods.server import GIVEN, At, Fetch, LocalUpdate, Told, from_messages
from lur.models.layers.forms import Form, is_fast
from lur.models.layers.sparse import dense_bags
from lur.parallel.layouts import Layout, Sum, leading, on_devices
from lur.theta import nonzero

FEW = 4
"""Sorting in more groups than this, each a pass over all of q, is slower than adding row by row."""


class Bags(NamedTuple):
    """Bags of words as features: see `lur.models.layers.sparse`."""

    ids: Int[Array, "*examples words"]
    values: Float[Array, "*examples words"]


Features = Array | Bags


class LinearModel(NamedTuple):
    """Where a linear model keeps its parameters and what it makes of a batch, whatever the batch's leading axes.

    ``at``: the keys that lead to the ``kernel`` and, if any, the ``bias`` in params, which have nothing else.
    ``features(batch)``: dense of shape (..., d), or `Bags`.
    ``targets(batch)``: a pytree with the same leading axes.
    ``losses(logits, targets)``: one number per example, from its logits (outputs,) and its targets; of a kernel of
    shape (d,) logits are one number.

    A mini-batch's loss is the mean over its examples, or over those in ``batch["mask"]``.
    """

    at: tuple[str, ...]
    features: Callable[[Any], Features]
    targets: Callable[[Any], PyTree]
    losses: Callable[[Float[Array, "..."], PyTree], Float[Array, ""]]


def linear_update(
    model: LinearModel,
    theta: Sequence[float],
    server: Optimizer = optax.sgd,
    *,
    decay: Plateau | None = None,
    form: Form = "auto",
) -> LocalUpdate:
    """`lur.local_update` of a linear model with SGD clients: same ``init`` and ``round``, same numbers.

    Args:
      model: the linear model and its loss.
      theta, server, decay: see `lur.methods.server.local_update`.
      form: whether bags of words stay sparse; by default on a CPU.

    A small model's round is quicker by `lur.local_update`. Those of many cells are not, where K B is below d: give it
    the ``cells`` of this.
    """
    theta = nonzero(theta)

    def of_cells(at: At, batches: PyTree, weights: Any, layout: Layout, fetch: Fetch) -> Sum:
        def run(at: At, inputs: PyTree, weights: Array) -> Sum:
            batches = inputs
            if fetch is not GIVEN:
                batches = over(partial(fetch.batches, at.shared), inputs, layout.at_once)
            return deferred_round(model, at.params, batches, at.client_lr, theta, weights, layout.at_once, form=form)

        M = leading(batches)
        weights = jnp.full((M,), 1 / M, at.client_lr.dtype) if weights is None else weights
        q, told = on_devices(run, at, batches, weights, layout)
        return q, jax.tree.map(lambda leaf: leaf.T, told)

    def messages(at: At, batches: PyTree, weights: Any, layout: Layout, fetch: Fetch) -> Sum:
        params, gamma = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], (at.params, at.client_lr))
        cell = of_cells(at._replace(params=params, client_lr=gamma), batches, weights, layout, fetch)
        return jax.tree.map(lambda leaf: leaf[0], cell)

    return from_messages(messages, server, steps=len(theta), decay=decay, of_cells=of_cells)


def deferred_round(
    model: LinearModel,
    params: PyTree,
    batches: PyTree,
    gamma: Float[Array, "cells"] | Float[Array, "cells K"],
    theta: Sequence[float],
    weights: Float[Array, "M"],
    at_once: int | None = None,
    *,
    form: Form = "auto",
) -> Sum:
    """What `lur.parallel.layouts.over_clients` makes of `lur.inner_loop`, of batches with leading axes (M, K, B).

    Args:
      params, gamma: of all cells, along their first axis.
      weights: of the clients; they sum to 1.
      at_once: how many clients substitute at a time (None: all).
      form: whether bags of words stay sparse.

    Returns:
      The mean messages, shaped like params, and the clients' losses before training and norms of messages, (M, cells).
    """
    theta = nonzero(theta)
    kernel, bias = parameters(model, params)
    dtype, (C, d, *outputs) = kernel.dtype, kernel.shape
    columns = jnp.moveaxis(kernel, 0, 1).reshape(d, -1)
    width = columns.shape[1]
    batches = first_steps(batches, len(theta), dtype)
    features = checked_features(model.features(batches), d, is_fast(form))
    M, K, B = jax.tree.leaves(features)[0].shape[:3]
    share = shares(batches, (M, K, B), dtype)
    logits = product(flat(features, M * K * B), columns)
    logits = (logits if bias is None else logits + bias.reshape(-1)).reshape(M, K, B, width)
    rates = jnp.repeat(gamma, width // C, axis=0).T  # of the columns, at all steps or at each
    thetas, is_even = jnp.asarray(theta, dtype), gamma.ndim == 1 and len(set(theta)) == 1
    sent = slice(None) if all(theta) else np.flatnonzero(theta)

    def in_cells(z: Array) -> Array:
        return z.reshape(*z.shape[:-1], C, *outputs)

    def losses(z: Array, targets: PyTree) -> Array:
        return jax.vmap(jax.vmap(model.losses, in_axes=(0, None)))(in_cells(z), targets)

    def gradients(z: Array, targets: PyTree) -> Array:
        return jax.vmap(jax.vmap(jax.grad(model.losses), in_axes=(0, None)))(in_cells(z), targets).reshape(z.shape)

    def run(client: Any) -> tuple[Array, Array, Array]:
        batch, own, share, logits, weight = client
        targets = model.targets(batch)
        G = gram(flat(own, K * B), d) + jnp.asarray(bias is not None, dtype)
        R, square = residuals(gradients, logits, targets, G, share, rates)
        before = losses(logits[0], jax.tree.map(lambda leaf: leaf[0], targets))
        S = (thetas[:, None, None] * R)[sent].reshape(-1, width)
        if is_even:
            square = thetas[0] ** 2 * square
        else:
            square = ((G.reshape(K, B, K, B)[sent][:, :, sent].reshape(len(S), len(S)) @ S) * S).sum(0)
        norms = jnp.sqrt(jnp.maximum(square.reshape(C, -1).sum(1), 0))
        return weight * S, (share[0][:, None] * before).sum(0), norms

    clients = (batches, features, share, logits, weights)
    S, before, norms = over(run, clients, at_once)
    S = S.reshape(-1, width)
    used = flat(jax.tree.map(lambda leaf: leaf[:, sent], features), len(S))
    q = {"kernel": jnp.moveaxis(in_cells(transposed_product(used, S, d)), 1, 0)}
    if bias is not None:
        q["bias"] = in_cells(S.sum(0))
    return nested(model.at, q), Told(before, norms)


def residuals(
    gradients: Callable[..., Array],
    logits: Float[Array, "K B columns"],
    targets: PyTree,
    G: Float[Array, "KB KB"],
    share: Float[Array, "K B"],
    rates: Float[Array, "columns"] | Float[Array, "K columns"],
) -> tuple[Float[Array, "K B columns"], Float[Array, "columns"]]:
    r"""R_k of all steps by forward substitution, from the logits at the broadcast model.

    With one gamma for all steps also :math:`\sum_{jk} \langle R_k, G_{kj} R_j \rangle` by columns: what the norm of an
    unweighted sum needs.
    """
    K, B, width = logits.shape
    at_all = rates if rates.ndim == 1 else jnp.ones_like(rates[0])
    steps = (logits, targets, G.reshape(K, B, K * B), share)

    def step(carry: tuple[Array, Array], k: Int[Array, ""]) -> tuple[tuple[Array, Array], None]:
        R, square = carry
        # indexed here: as inputs of the scan they would be written out anew, with the steps of all clients in front
        z, targets, G_k, share_k = jax.tree.map(partial(jax.lax.dynamic_index_in_dim, index=k, keepdims=False), steps)
        stepped = R if rates.ndim == 1 else rates[:, None] * R
        drift = G_k @ stepped.reshape(K * B, width)
        R_k = share_k[:, None] * gradients(z - at_all * drift, targets)
        own = jax.lax.dynamic_slice_in_dim(G_k, k * B, B, 1) @ R_k
        square = square + (R_k * (2 * drift + own)).sum(0)
        return (jax.lax.dynamic_update_index_in_dim(R, R_k, k, 0), square), None

    start = (jnp.zeros_like(logits), jnp.zeros_like(at_all))
    return jax.lax.scan(step, start, jnp.arange(K, dtype=jnp.int32))[0]


def product(features: Features, kernel: Float[Array, "d outputs"]) -> Float[Array, "n outputs"]:
    """X W."""
    return rows_product(*features, kernel) if isinstance(features, Bags) else features @ kernel


def gram(features: Features, d: int) -> Float[Array, "n n"]:
    """X X^T."""
    if not isinstance(features, Bags):
        return features @ features.T
    n = len(features.ids)
    columns = jnp.zeros((d, n), features.values.dtype)
    columns = columns.at[features.ids, jnp.arange(n, dtype=jnp.int32)[:, None]].add(features.values)
    return rows_product(*features, columns)


def transposed_product(features: Features, S: Float[Array, "n outputs"], d: int) -> Float[Array, "d outputs"]:
    """X^T S. Of bags: their words sorted make X^T a matrix of compressed rows, in which padding has no place.

    A word and a place in the list of all bags are sorted as one number of 32 bits, in as many groups as that takes.
    """
    if not isinstance(features, Bags):
        return features.T @ S
    n, W = features.ids.shape
    bits = 32 - d.bit_length()
    most = (1 << max(bits, 0)) // max(W, 1)
    if n > FEW * most:
        return added_rows(features, S, d)
    groups = -(-n // most)
    filled = jax.tree.map(lambda leaf: jnp.pad(leaf, ((0, -n % groups), (0, 0))), (features, S))
    parts = [jax.tree.map(lambda leaf, g=g: jnp.split(leaf, groups)[g], filled) for g in range(groups)]
    return reduce(jnp.add, [sorted_product(bags, S, d, bits) for bags, S in parts])


def sorted_product(bags: Bags, S: Float[Array, "n outputs"], d: int, bits: int) -> Float[Array, "d outputs"]:
    """X^T S of at most 2^bits words, sorted."""
    n, W = bags.ids.shape

    @sequential_vmap
    def multiplied(ids: Array, values: Array, S: Array) -> Array:
        words = jnp.where(values == 0, d, ids).reshape(-1).astype(jnp.uint32)
        keys = jax.lax.sort((words << bits) | jnp.arange(n * W, dtype=jnp.uint32), is_stable=False)
        ends = jnp.searchsorted(keys, jnp.arange(d + 1, dtype=jnp.uint32) << bits).astype(jnp.int32)
        place = (keys & np.uint32((1 << bits) - 1)).astype(jnp.int32)
        return BCSR((values.reshape(-1)[place], place // W, ends), shape=(d, n)) @ S

    return multiplied(*bags, S)


def added_rows(bags: Bags, S: Float[Array, "n outputs"], d: int) -> Float[Array, "d outputs"]:
    """X^T S, one example's rows after the other's."""

    def add(total: Array, example: Any) -> tuple[Array, None]:
        (ids, values), s = example
        return total.at[ids].add(values[:, None] * s), None

    return jax.lax.scan(add, jnp.zeros((d, S.shape[-1]), S.dtype), (bags, S))[0]


@sequential_vmap
def rows_product(ids: Array, values: Array, kernel: Array) -> Array:
    """X W with the bags as the compressed rows of X: on a CPU a library call, which has no batched form."""
    n, W = ids.shape
    ends = jnp.arange(n + 1, dtype=jnp.int32) * W
    return BCSR((values.reshape(-1), ids.reshape(-1), ends), shape=(n, len(kernel))) @ kernel


def over(run: Callable[[Any], PyTree], inputs: PyTree, at_once: int | None) -> PyTree:
    """`run` over the leading axis of `inputs`, `at_once` at a time (None: all)."""
    if at_once is None or 1 < at_once >= leading(inputs):
        return jax.vmap(run)(inputs)
    return jax.lax.map(run, inputs, batch_size=at_once if at_once > 1 else None)


def parameters(
    model: LinearModel, params: PyTree
) -> tuple[Float[Array, "cells d ..."], Float[Array, "cells ..."] | None]:
    """The kernels and the biases of all cells."""
    found = params
    for key in model.at:
        found = found[key] if isinstance(found, Mapping) and key in found else {}
    kernel, bias = (found.get(name) if isinstance(found, Mapping) else None for name in ("kernel", "bias"))
    expected = nested(model.at, {"kernel": 0} if bias is None else {"kernel": 0, "bias": 0})
    if kernel is None or jax.tree.structure(params) != jax.tree.structure(expected):
        raise ValueError(
            f"params must be {jax.tree.structure(expected)} as the model says, got {jax.tree.structure(params)}"
        )
    checks.floating_dtype(params)
    if kernel.ndim not in (2, 3) or (bias is not None and bias.shape[1:] != kernel.shape[2:]):
        got = f"{kernel.shape[1:]} and {None if bias is None else bias.shape[1:]}"
        raise ValueError(f"kernel and bias must be (d, outputs) and (outputs,), or (d,) and (), got {got}")
    return kernel, bias


def nested(keys: tuple[str, ...], tree: PyTree) -> PyTree:
    """`tree` under the given keys."""
    for key in reversed(keys):
        tree = {key: tree}
    return tree


def first_steps(batches: PyTree, K: int, dtype: Any) -> PyTree:
    """The first K mini-batches of every client."""
    _, supplied, _ = checks.leading_axes(batches, ("M", "K", "B"), (1, 0, 1))
    if supplied < K:
        raise ValueError(f"theta needs K(theta) = {K} mini-batches, got batches with {supplied}")
    checks.batch_dtypes(batches, dtype)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[:, :K], batches)


def shares(batches: PyTree, shape: tuple[int, int, int], dtype: Any) -> Float[Array, "M K B"]:
    """Each example's share in its mini-batch's loss."""
    if not (isinstance(batches, Mapping) and "mask" in batches):
        return jnp.full(shape, 1 / shape[-1], dtype)
    mask = batches["mask"].astype(dtype)
    return mask / jnp.maximum(mask.sum(-1, keepdims=True), 1)


def checked_features(features: Features, d: int, is_sparse: bool) -> Features:
    """Features of d dimensions; bags written out unless they may stay sparse. Ids outside 0, ..., d - 1 give nan."""
    if not isinstance(features, Bags):
        if features.ndim != 4 or features.shape[-1] != d:
            raise ValueError(f"features must have shape (M, K, B, {d}) as the kernel says, got {features.shape}")
        return features
    ids, values = features
    if ids.ndim != 4 or ids.shape != values.shape or not jnp.issubdtype(ids.dtype, jnp.integer):
        raise ValueError(
            f"ids must be integers of shape (M, K, B, words) as values {values.shape}, got {ids.dtype} of {ids.shape}"
        )
    inside = (ids >= 0) & (ids < d)
    ids = jnp.where(inside, ids, 0).astype(jnp.int32)
    values = jnp.where(inside, values, jnp.asarray(jnp.nan, values.dtype))
    return Bags(ids, values) if is_sparse else dense_bags(ids, values, d)


def flat(features: Features, n: int) -> Features:
    """Features of n examples along one axis."""
    return jax.tree.map(lambda leaf: leaf.reshape(n, leaf.shape[-1]), features)
