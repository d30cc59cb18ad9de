"""The platform that programs are traced for: this machine's default backend, or one that is not here."""

import jax

lowering_for = jax.make_user_context(None)
"""``with lowering_for("tpu"):`` traces programs for that platform; the default None means this machine's backend."""


def target_platform() -> str:
    """Return the platform that programs traced now will run on: ``cpu``, ``gpu``, ``cuda``, ``tpu``, ..."""
    return lowering_for.value or jax.default_backend()


def targets_cpu() -> bool:
    """Return whether programs traced now will run on a CPU."""
    return target_platform() == "cpu"
