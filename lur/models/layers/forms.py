"""Which of two equal forms a layer takes: the fast one on CPU, the plain one elsewhere.

XLA's CPU compiler turns several gradients inside `lax.scan` (where all local steps live) into naive
loops. The fast forms write these gradients out, so that they compile to library calls. On GPU and TPU
the plain forms are at least as good.

The choice falls at trace time, from `jax.default_backend()`. `lax.platform_dependent` would decide at
lowering, but traces and differentiates both forms. The price: on a machine whose default backend is a
GPU, arrays committed to the CPU get the plain forms, right but slow; pass ``form="fast"`` there. Whoever lowers a
program for a platform that is not here says so: ``with lowering_for("tpu"): ...``.
"""

from typing import Literal

import jax

Form = Literal["auto", "fast", "plain"]
lowering_for = jax.make_user_context(None)
"""The platform that programs traced inside ``with lowering_for(platform):`` are for; None is the one that is here."""


def is_fast(form: Form) -> bool:
    """True where `form` asks for, or leaves us on CPU with, the fast form."""
    if form not in ("auto", "fast", "plain"):
        raise ValueError(f"form must be 'auto', 'fast' or 'plain', got {form!r}")
    return form == "fast" or (form == "auto" and (lowering_for.value or jax.default_backend()) == "cpu")
