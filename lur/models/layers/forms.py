"""Which of two equal forms a layer takes: the fast one on CPU, the plain one elsewhere.

XLA's CPU compiler turns several gradients inside `lax.scan` (where all local steps live) into naive
loops. The fast forms write these gradients out, so that they compile to library calls. On GPU and TPU
the plain forms are at least as good.

The choice falls at trace time, from `jax.default_backend()`. `lax.platform_dependent` would decide at
lowering, but traces and differentiates both forms. The price: on a machine whose default backend is a
GPU, arrays committed to the CPU get the plain forms, right but slow; pass ``form="fast"`` there. To lower
a program for a platform that is not here, use ``with lur.parallel.mesh.lowering_for("tpu"): ...``.
"""

from typing import Literal

from lur.parallel.mesh import targets_cpu

Form = Literal["auto", "fast", "plain"]


def is_fast(form: Form) -> bool:
    """Return whether to use the fast form: if `form` asks for it or, for ``auto``, on a CPU."""
    if form not in ("auto", "fast", "plain"):
        raise ValueError(f"form must be 'auto', 'fast' or 'plain', got {form!r}")
    return form == "fast" or (form == "auto" and targets_cpu())
