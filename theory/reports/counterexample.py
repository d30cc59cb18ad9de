"""A counterexample in exact numbers, as LaTeX equations and as text."""

from collections.abc import Iterable, Mapping
from typing import Any

from theory.reports.typeset import number, symbol


def equations(instance: Mapping[str, Any]) -> list[str]:
    """Returns the sizes and fields of an instance as equations in LaTeX."""
    return [equation for name, value in instance.items() for equation in _equations(name, value)]


def side_entries(found: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the left and the right side of a counterexample in LaTeX, each a number or a tuple."""
    left, right = (_tuple(_entries(found[side])) for side in ("left", "right"))
    return left, right


def as_text(found: Mapping[str, Any]) -> str:
    """Returns a counterexample as one line of text."""
    inputs = ", ".join(f"{name} = {_bracketed(value)}" for name, value in found["instance"].items())
    return f"{inputs}: {found['left']} against {found['right']}"


def _bracketed(value: Any) -> str:
    return f"[{', '.join(_bracketed(v) for v in value)}]" if isinstance(value, list) else str(value)


def _entries(side: str) -> list[str]:
    """The numbers of one side of a counterexample."""
    return [part.strip() for part in side.strip("[]").split(",")]


def _tuple(values: Iterable[Any]) -> str:
    """Numbers as one number or a tuple, in LaTeX."""
    numbers = [number(value) for value in values]
    return numbers[0] if len(numbers) == 1 else r"\left(" + r",\; ".join(numbers) + r"\right)"


def _equations(name: str, value: Any) -> list[str]:
    """A field of an instance as equations: A as one matrix A_1, A_2, ... for each client, p as a tuple."""
    if not isinstance(value, list):
        return [f"{symbol(name)} = {number(value)}"]
    if not isinstance(value[0], list):
        return [f"{symbol(name)} = {_tuple(value)}"]
    base, _, suffix = name.partition("_")
    return [
        f"{symbol(f'{base}_{suffix}_{index}' if suffix else f'{base}_{index}')} = {_array(item)}"
        for index, item in enumerate(value, start=1)
    ]


def _array(value: list[Any]) -> str:
    if isinstance(value[0], list):
        if len(value) == 1 and len(value[0]) == 1:
            return number(value[0][0])
        rows = r" \\ ".join(" & ".join(number(v) for v in row) for row in value)
        return rf"\begin{{pmatrix}} {rows} \end{{pmatrix}}"
    if len(value) == 1:
        return number(value[0])
    return r"\begin{pmatrix} " + r" \\ ".join(number(v) for v in value) + r" \end{pmatrix}"
