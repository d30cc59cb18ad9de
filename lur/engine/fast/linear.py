r"""A linear model's round without a model per client.

For logits :math:`z = XW + b` and SGD, a client's weights are the broadcast ones and what its examples have added,
:math:`W_k = W - \sum_{j<k} \gamma_j X_j^\top R_j` with :math:`R_j = \tfrac1B \, \partial\ell/\partial z` at step j. So

.. math::
    z_k = X_k W + b - \sum_{j<k} \gamma_j (X_k X_j^\top + 1) R_j, \qquad
    q_W = \sum_i w_i \sum_k \theta_k X_{ik}^\top R_{ik}, \qquad q_b = \sum_i w_i \sum_k \theta_k 1^\top R_{ik}:

a Gram matrix of a client's KB examples, a forward substitution over its steps, and one product over the examples of all
clients at the end. The logits and residuals of the round are kept, M K B numbers per output; nothing has the size of W
but W and q. The numbers are `lur.local_update`'s up to rounding: the sums are taken in another order.

A grid of rates is one wider model: the columns of all cells side by side, with one Gram matrix for all.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from lur import _checks
from lur.engine.fast.bags import Features, checked_features, flat, gram, product, transposed_product
from lur.methods.method import BatchesOf, ClientMetrics, Method
from lur.parallel.clients import ClientResults, num_clients, shard_clients, uniform_weights
from lur.parallel.layouts import Layout
from lur.parallel.mesh import targets_cpu
from lur.theta import Theta, nonzero


class LinearModel(NamedTuple):
    """A linear model: where its parameters are, and what it makes of a batch with any leading axes.

    A mini-batch's loss is the mean, or the sum, over its examples, or over those in ``batch["mask"]``.

    Attributes:
      path: the keys that lead to ``kernel`` and, if there is one, ``bias`` in params, which hold nothing else.
      features: ``features(batch)``, dense of shape (..., d), or `lur.engine.fast.bags.Bags`.
      targets: ``targets(batch)``, a pytree with the same leading axes.
      losses: ``losses(logits, targets)``, one number per example from its logits (outputs,) and its targets; with a
        kernel of shape (d,) the logits are one number.
      over_batch: ``mean`` or ``sum``.
    """

    path: tuple[str, ...]
    features: Callable[[Any], Features]
    targets: Callable[[Any], PyTree]
    losses: Callable[[Float[Array, "..."], PyTree], Float[Array, ""]]
    over_batch: Literal["mean", "sum"] = "mean"


class LinearCohort(NamedTuple):
    """The mean over clients of a linear model with SGD clients; a `Method.cohort_update`.

    Attributes:
      model: the linear model and its loss.
      theta: the weights Theta.
      is_sparse: whether bags of words stay sparse; None decides by the platform.
    """

    model: LinearModel
    theta: Theta
    is_sparse: bool | None = None

    def __call__(
        self, shared: Any, inputs: Any, weights: Float[Array, "M"] | None, layout: Layout, batches_of: BatchesOf
    ) -> ClientResults:
        broadcast, source = shared
        params, gamma = jax.tree.map(lambda leaf: leaf[None], (broadcast.params, broadcast.client_lr))
        shared = (broadcast._replace(params=params, client_lr=gamma), source)
        update, _, metrics = self.over_cells(shared, inputs, weights, layout, batches_of)
        return ClientResults(
            jax.tree.map(lambda leaf: leaf[0], update), (), jax.tree.map(lambda leaf: leaf[:, 0], metrics)
        )

    def over_cells(
        self, shared: Any, inputs: Any, weights: Float[Array, "M"] | None, layout: Layout, batches_of: BatchesOf
    ) -> ClientResults:
        """Return the mean over clients of many cells, which `shared` has along a leading axis."""

        def cohort(shared: Any, inputs: Any, weights: Any) -> ClientResults:
            (broadcast, source), (_, own) = shared, inputs

            def arrays_of(client: Any) -> PyTree:
                batches = batches_of(source, client)
                if batches.is_step is not None and len(set(self.theta)) > 1:
                    raise ValueError("theta must have equal weights where clients take different numbers of steps")
                return batches.arrays(), batches.is_step

            batches, is_step = _map_chunks(arrays_of, own, layout.chunk_size)
            update, metrics = linear_round(
                self.model,
                broadcast.params,
                batches,
                broadcast.client_lr,
                self.theta,
                weights,
                layout.chunk_size,
                is_sparse=self.is_sparse,
                is_step=is_step,
            )
            return ClientResults(update, (), metrics)

        if weights is None:
            weights = uniform_weights(num_clients(inputs), shared[0].client_lr.dtype)
        return shard_clients(cohort, shared, inputs, weights, layout)


def linear_form(method: Method, model: LinearModel, *, is_sparse: bool | None = None) -> Method:
    """Return a `lur.local_update` with SGD clients, rewritten for the linear model that its loss is of."""
    client: Any = method.client_update
    return method._replace(cohort_update=LinearCohort(model, client.theta, is_sparse))


def linear_round(
    model: LinearModel,
    params: PyTree,
    batches: PyTree,
    gamma: Float[Array, "cells"] | Float[Array, "cells K"],
    theta: Theta,
    weights: Float[Array, "M"],
    chunk_size: int | None = None,
    *,
    is_sparse: bool | None = None,
    is_step: Bool[Array, "M K"] | None = None,
) -> tuple[PyTree, ClientMetrics]:
    """Return the mean update of InnerLoop over clients, from batches with leading axes (M, K, B).

    Args:
      model: the linear model and its loss.
      params, gamma: of all cells, along their first axis.
      batches: the mini-batches of all clients.
      theta: the weights Theta.
      weights: of the clients, summing to 1.
      chunk_size: how many clients substitute at a time; None for all.
      is_sparse: whether bags of words stay sparse; None decides by the platform.
      is_step: which of their steps the clients take; None if all of them.

    Returns:
      The mean updates, shaped like params, and the clients' metrics of shape (M, cells).
    """
    theta = nonzero(theta)
    kernel, bias = linear_params(model, params)
    dtype, (C, d, *outputs) = kernel.dtype, kernel.shape
    columns = jnp.moveaxis(kernel, 0, 1).reshape(d, -1)
    width = columns.shape[1]
    batches = _first_steps(batches, len(theta), params)
    features = checked_features(model.features(batches), d, targets_cpu() if is_sparse is None else is_sparse)
    M, K, B = jax.tree.leaves(features)[0].shape[:3]
    shares = example_shares(batches, (M, K, B), dtype, model.over_batch)
    if is_step is not None:
        shares = shares * is_step[:, :K, None].astype(dtype)
    logits = product(flat(features, M * K * B), columns)
    logits = (logits if bias is None else logits + bias.reshape(-1)).reshape(M, K, B, width)
    rates = jnp.repeat(gamma, width // C, axis=0).T.astype(dtype)  # of the columns, at all steps or at each
    thetas, is_constant = jnp.asarray(theta, dtype), gamma.ndim == 1 and len(set(theta)) == 1
    summed = slice(None) if all(theta) else np.flatnonzero(theta)  # the steps with a positive weight

    def by_cell(z: Array) -> Array:
        return z.reshape(*z.shape[:-1], C, *outputs)

    def losses(z: Array, targets: PyTree) -> Array:
        return jax.vmap(jax.vmap(model.losses, in_axes=(0, None)))(by_cell(z), targets)

    def gradients(z: Array, targets: PyTree) -> Array:
        return jax.vmap(jax.vmap(jax.grad(model.losses), in_axes=(0, None)))(by_cell(z), targets).reshape(z.shape)

    def substitute(client: Any) -> tuple[Array, ClientMetrics]:
        batch, own, share, logits, weight = client
        targets = model.targets(batch)
        G = gram(flat(own, K * B), d) + jnp.asarray(bias is not None, dtype)
        R, square = residuals(gradients, logits, targets, G, share, rates)
        before = losses(logits[0], jax.tree.map(lambda leaf: leaf[0], targets))
        S = (thetas[:, None, None] * R)[summed].reshape(-1, width)
        if is_constant:
            square = thetas[0] ** 2 * square
        else:
            square = ((G.reshape(K, B, K, B)[summed][:, :, summed].reshape(len(S), len(S)) @ S) * S).sum(0)
        norms = jnp.sqrt(jnp.maximum(square.reshape(C, -1).sum(1), 0))
        return weight * S, ClientMetrics((share[0][:, None] * before).sum(0), norms)

    clients = (batches, features, shares, logits, weights.astype(dtype))
    S, metrics = _map_chunks(substitute, clients, chunk_size)
    S = S.reshape(-1, width)
    used = flat(jax.tree.map(lambda leaf: leaf[:, summed], features), len(S))
    update = {"kernel": jnp.moveaxis(by_cell(transposed_product(used, S, d)), 1, 0)}
    if bias is not None:
        update["bias"] = by_cell(S.sum(0))
    return _nested(model.path, update), metrics


def residuals(
    gradients: Callable[..., Array],
    logits: Float[Array, "K B columns"],
    targets: PyTree,
    G: Float[Array, "KB KB"],
    share: Float[Array, "K B"],
    rates: Float[Array, "columns"] | Float[Array, "K columns"],
) -> tuple[Float[Array, "K B columns"], Float[Array, "columns"]]:
    r"""Return R_k of all steps by forward substitution, from the logits at the broadcast model.

    With one gamma for all steps, also return :math:`\sum_{jk} \langle R_k, G_{kj} R_j \rangle` by column, which gives
    the norm of an unweighted sum.
    """
    K, B, width = logits.shape
    at_all = rates if rates.ndim == 1 else jnp.ones_like(rates[0])
    steps = (logits, targets, G.reshape(K, B, K * B), share)

    def step(carry: tuple[Array, Array], k: Int[Array, ""]) -> tuple[tuple[Array, Array], None]:
        R, square = carry
        # indexed here: as inputs of the scan they would be copied, with the steps of all clients in front
        z, targets, G_k, share_k = jax.tree.map(partial(jax.lax.dynamic_index_in_dim, index=k, keepdims=False), steps)
        stepped = R if rates.ndim == 1 else rates[:, None] * R
        drift = G_k @ stepped.reshape(K * B, width)
        R_k = share_k[:, None] * gradients(z - at_all * drift, targets)
        own = jax.lax.dynamic_slice_in_dim(G_k, k * B, B, 1) @ R_k
        square = square + (R_k * (2 * drift + own)).sum(0)
        return (jax.lax.dynamic_update_index_in_dim(R, R_k, k, 0), square), None

    start = (jnp.zeros_like(logits), jnp.zeros_like(at_all))
    return jax.lax.scan(step, start, jnp.arange(K, dtype=jnp.int32))[0]


def linear_params(
    model: LinearModel, params: PyTree
) -> tuple[Float[Array, "cells d ..."], Float[Array, "cells ..."] | None]:
    """Return the kernels and the biases of all cells."""
    leaf = params
    for key in model.path:
        leaf = leaf[key] if isinstance(leaf, Mapping) and key in leaf else {}
    kernel, bias = (leaf.get(name) if isinstance(leaf, Mapping) else None for name in ("kernel", "bias"))
    expected = jax.tree.structure(_nested(model.path, {"kernel": 0} if bias is None else {"kernel": 0, "bias": 0}))
    if kernel is None or jax.tree.structure(params) != expected:
        raise ValueError(f"params must be {expected} as the linear model says, got {jax.tree.structure(params)}")
    _checks.floating_dtype(params)
    if kernel.ndim not in (2, 3) or (bias is not None and bias.shape[1:] != kernel.shape[2:]):
        given = f"{kernel.shape[1:]} and {None if bias is None else bias.shape[1:]}"
        raise ValueError(f"kernel and bias must be (d, outputs) and (outputs,), or (d,) and (), got {given}")
    return kernel, bias


def example_shares(
    batches: PyTree, shape: tuple[int, int, int], dtype: Any, over_batch: Literal["mean", "sum"]
) -> Float[Array, "M K B"]:
    """Return each example's share in its mini-batch's loss."""
    if not (isinstance(batches, Mapping) and "mask" in batches):
        return jnp.full(shape, 1 / shape[-1] if over_batch == "mean" else 1, dtype)
    mask = batches["mask"].astype(dtype)
    return mask if over_batch == "sum" else mask / jnp.maximum(mask.sum(-1, keepdims=True), 1)


def _nested(keys: tuple[str, ...], tree: PyTree) -> PyTree:
    for key in reversed(keys):
        tree = {key: tree}
    return tree


def _first_steps(batches: PyTree, K: int, params: PyTree) -> PyTree:
    """Return the first K mini-batches of every client."""
    _, supplied, _ = _checks.leading_axes(batches, ("M", "K", "B"), (1, 0, 1))
    if supplied < K:
        raise ValueError(f"theta needs K(theta) = {K} mini-batches, got batches with {supplied}")
    _checks.batch_dtypes(batches, params)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[:, :K], batches)


def _map_chunks(function: Callable[[Any], PyTree], inputs: PyTree, chunk_size: int | None) -> PyTree:
    """Map `function` over the leading axis of `inputs`, `chunk_size` entries at a time; None for all."""
    if chunk_size is None or 1 < chunk_size >= num_clients(inputs):
        return jax.vmap(function)(inputs)
    return jax.lax.map(function, inputs, batch_size=chunk_size if chunk_size > 1 else None)
