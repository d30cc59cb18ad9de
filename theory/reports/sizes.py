"""The sizes that were tried, in words."""

from collections.abc import Mapping, Sequence
from typing import Any


def describe_sizes(sizes: Sequence[Mapping[str, Any]]) -> str:
    """Returns the range of every size, such as "d 1-3, n 2, K 2-400, kappa up to 1e12"."""
    parts = []
    for name in dict.fromkeys(name for one in sizes for name in one if name != "kappa"):
        values = sorted({int(one[name]) for one in sizes if name in one})
        parts.append(f"{name} {values[0]}" + (f"-{values[-1]}" if len(values) > 1 else ""))
    kappa = max((float(one.get("kappa", 0)) for one in sizes), default=0)
    return ", ".join([*parts, *([f"kappa up to {kappa:.0e}".replace("e+0", "e").replace("e+", "e")] if kappa else [])])
