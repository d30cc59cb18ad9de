r"""Layouts of the clients axis: how the M clients of a round are mapped to devices.

All layouts compute :math:`q = \sum_i w_i u_i` over the same clients' updates and mini-batches. They differ in time and
memory, and in the last bits of the sum.

=====================  ===========================================================================================
``vmap``               All clients at once, with M models in memory. For accelerators and small models.
``sequential``         One client after another with a running sum, with one client's model in memory.
``chunked:n``          n clients at a time with a running sum over the chunks.
``sharded``            The clients are sharded over the devices of all processes (`lur.parallel.processes`). Each
                       device runs its clients sequentially; one all-reduce adds up their updates.
                       ``sharded:vmap`` and ``sharded:chunked:n`` change how each device runs its clients.
``sharded,model:n``    n devices hold each model together, with every large array split among them, and the clients
                       are sharded over groups of n devices. For models too large for one device.
=====================  ===========================================================================================

M need not be a multiple of the chunk size or of the number of devices: the last chunk or device is padded with clients
of weight 0.
"""

import math
from typing import NamedTuple

import jax
from jaxtyping import PyTree

SHARDED_FORMS = "sharded, sharded:vmap or sharded:chunked:n"
LAYOUT_FORMS = f"vmap, sequential, chunked:n, {SHARDED_FORMS}, or one of these three with ,model:n"
SMALL_MODEL = 100_000
"""Models with fewer parameters run faster with all clients at once, also on a CPU."""
WIDE_MATRIX = 4096
"""A product with a matrix of this many columns keeps all CPU cores busy."""


class Layout(NamedTuple):
    """How the clients of a round are laid out.

    Attributes:
      chunk_size: number of clients that run at once on a device; None runs all of the device's clients at once.
      devices: number of devices (or groups of devices) that the clients are sharded over.
      model: number of devices that hold each model together.
      inside_mesh: whether the round already runs inside a `shard_map` that has the clients axis (`lur.engine.grid`).
    """

    chunk_size: int | None
    devices: int = 1
    model: int = 1
    inside_mesh: bool = False

    def __str__(self) -> str:
        inner = {None: "vmap", 1: "sequential"}.get(self.chunk_size, f"chunked:{self.chunk_size}")
        if self.model > 1:
            return f"sharded:{inner},model:{self.model}"
        return inner if self.devices == 1 else f"sharded:{inner}"


class LayoutChoice(NamedTuple):
    """A layout and the reason for it.

    Attributes:
      layout: the layout.
      reason: why it was chosen, in a few words for the user.
    """

    layout: Layout
    reason: str


def parse_layout(text: str | Layout) -> Layout:
    """Parse a layout such as ``chunked:4``. ``sharded`` takes the devices of all processes."""
    if isinstance(text, Layout):
        return text
    without_model, comma, model = str(text).partition(",model:")
    kind, _, rest = without_model.partition(":")
    if comma:
        if kind == "sharded" and model.isdecimal() and int(model) >= 1:
            return _with_model_axis(parse_layout(without_model), int(model))
    elif kind == "sharded":
        inner = parse_layout(rest or "sequential")
        if inner.devices == 1 and not rest.startswith("sharded"):
            return inner._replace(devices=jax.device_count())
    elif kind == "chunked" and rest.isdecimal() and int(rest) >= 1:
        return Layout(int(rest))
    elif not rest and kind in ("vmap", "sequential"):
        return Layout(None if kind == "vmap" else 1)
    raise ValueError(f"layout must be one of {LAYOUT_FORMS} with n >= 1, got {text!r}")


def _with_model_axis(layout: Layout, model: int) -> Layout:
    if jax.process_count() > 1:
        raise ValueError(f"layout must have no model axis with {jax.process_count()} processes, got model:{model}")
    if layout.devices % model:
        raise ValueError(f"layout's model must divide the {layout.devices} devices, got {model}")
    return layout._replace(devices=layout.devices // model, model=model)


def choose_layout(
    params: PyTree, num_clients: int, layout: str | Layout = "auto", *, linear: bool = False
) -> LayoutChoice:
    """Return the requested layout or, for ``auto``, one that suits the machine, the model and M clients.

    Accelerators run all clients at once. A CPU does so only for small models; otherwise each CPU device (there are as
    many as ``JAX_NUM_CPU_DEVICES`` says) runs one client after another, unless the model's matrices are so wide that
    the products of a single client keep all cores busy.

    Args:
      params: the model's parameters, or their shapes.
      num_clients: M, the clients of a round.
      layout: a layout, its text form, or ``auto``.
      linear: whether the clients of this linear model need no model of their own (`lur.engine.fast.linear`).
    """
    if layout != "auto":
        return LayoutChoice(parse_layout(layout), "as requested")
    leaves = jax.tree.leaves(params)
    devices = devices_needed(jax.device_count(), num_clients)
    size = sum(leaf.size for leaf in leaves)
    backend = jax.default_backend()
    if jax.process_count() > 1:
        chunk_size = None if backend != "cpu" or size < SMALL_MODEL else 1
        inner = "all clients at once" if chunk_size is None else "one client after another"
        machine = f"{jax.process_count()} processes with {jax.device_count()} devices"
        return LayoutChoice(Layout(chunk_size, jax.device_count()), f"{machine}: {inner} on each device")
    widest = max((leaf.shape[-1] for leaf in leaves if leaf.ndim >= 2), default=0)
    if backend != "cpu":
        machine = f"{devices} {backend} device{'s' if devices > 1 else ''}"
        return LayoutChoice(Layout(None, devices), f"{machine}: all clients at once")
    if size < SMALL_MODEL:
        return LayoutChoice(Layout(None), f"a small model ({size:,} parameters): all clients at once")
    if devices > 1 and (linear or widest < WIDE_MATRIX):
        return LayoutChoice(Layout(1, devices), f"{devices} CPU devices: one client after another on each")
    if devices > 1:
        return LayoutChoice(Layout(1), f"matrices of {widest:,} columns keep all cores busy: one client after another")
    return LayoutChoice(Layout(1), f"a CPU and {size:,} parameters: one client after another")


def devices_needed(devices: int, num_clients: int) -> int:
    """Return the smallest number of devices on which M clients take as many turns as on all devices."""
    return math.ceil(num_clients / math.ceil(num_clients / devices))
