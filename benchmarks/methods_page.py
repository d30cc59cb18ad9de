"""docs/methods.md: what each method costs, and where it converges.

    python -m benchmarks.methods_page docs/methods.md

The seconds are those that `lur bench methods` has recorded in benchmarks/results/methods.json.
"""

import inspect
import io
import json
import sys
import tokenize
from collections.abc import Mapping, Sequence
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from benchmarks.method_cases import CASES, MethodCase
from benchmarks.method_limits import GAMMA, Bias, bias_of, fixed_point, quadratic_loss
from lur.methods.method import Batches, Method
from lur.methods.registry import METHODS

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "benchmarks" / "results" / "methods.json"
EQUAL, UNEQUAL = (2, 2), (1, 3)
"""The numbers of local steps K_1 and K_2 of the fixed points."""


class Sizes(NamedTuple):
    """Numbers that a client keeps or that move in a round, as functions of the number of parameters d.

    Attributes:
      state: what a client keeps between rounds.
      up: what a client sends.
      down: what the server sends to a client, without gamma.
    """

    state: str
    up: str
    down: str


class Limits(NamedTuple):
    """Where a method converges.

    Attributes:
      equal: its fixed point with equal numbers of steps.
      unequal: that with unequal ones.
      equal_bias: the leading term of its bias with equal numbers of steps.
      unequal_bias: that with unequal ones.
    """

    equal: str
    unequal: str
    equal_bias: str = ""
    unequal_bias: str = ""


def lines_of_code(source: str) -> int:
    """Return the number of lines that are neither empty nor comment nor docstring."""
    kinds = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines: set[int] = set()
    starts_statement = True
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.STRING and starts_statement:
            continue  # a docstring
        if token.type not in kinds:
            lines |= {*range(token.start[0], token.end[0] + 1)}
            starts_statement = False
        elif token.type == tokenize.NEWLINE:
            starts_statement = True
    return len(lines)


def file_of(name: str) -> Path:
    """Return the file of a method's factory."""
    found = inspect.getsourcefile(import_module(METHODS[name].factory.partition(":")[0]))
    assert found is not None
    return Path(found)


def linear_text(at_10: int, at_20: int) -> str:
    """Return the text of a d + b from its values at d = 10 and d = 20."""
    slope = (at_20 - at_10) // 10
    constant = at_10 - 10 * slope
    parts = [] if not slope else [("" if slope == 1 else f"{slope} ") + "d"]
    return " + ".join(parts + [str(constant)] * bool(constant)) or "0"


def sizes_of(case: MethodCase) -> Sizes:
    """Return the sizes of a method's messages and client states."""
    K = 1 if case.one_step else 2
    found = [_counts(case.make(quadratic_loss, K), K, d) for d in (10, 20)]
    return Sizes(*(linear_text(*pair) for pair in zip(*found, strict=True)))


def _counts(method: Method, K: int, d: int) -> tuple[int, int, int]:
    """Return the numbers in a client's state, in what it sends, and in what it is sent."""

    def exchange() -> tuple[PyTree, PyTree, PyTree]:
        state = method.init(jnp.zeros(d), 0.25, 1.0, clients=2)
        own = jax.tree.map(lambda leaf: leaf[0], state.clients)
        batches = Batches((jnp.zeros((K, 1, d, d)), jnp.zeros((K, 1, d))))
        broadcast, sent = method.broadcast(state), ()
        if method.prepare is not None:
            sent = method.prepare(broadcast, own, batches)
            broadcast = broadcast._replace(prepared=sent)
        output = method.client_update(broadcast, own, batches)
        return own, (sent, output.update), (broadcast.params, broadcast.extra, broadcast.prepared)

    own, up, down = (sum(leaf.size for leaf in jax.tree.leaves(tree)) for tree in jax.eval_shape(exchange))
    return own, up, down


def limits_of(name: str) -> Limits:
    """Return where a method converges on the two clients."""
    case = CASES[name]
    if case.one_step:
        return Limits(point(fixed_point(name, GAMMA, (1, 1))), "", bias_text(bias_of(name, (1, 1), 1)))
    longest = max(UNEQUAL) if case.unequal_steps else max(EQUAL)
    cases = (EQUAL, UNEQUAL) if case.unequal_steps else (EQUAL,)
    points = [point(fixed_point(name, GAMMA, steps, longest)) for steps in cases]
    biases = [bias_text(bias_of(name, steps, longest)) for steps in cases]
    missing = [""] * (2 - len(cases))
    return Limits(*points, *missing, *biases, *missing)


def point(value: Fraction | float | None) -> str:
    """Return the text of a fixed point."""
    if value is None:
        return "does not settle"
    return str(value) if isinstance(value, Fraction) else f"≈ {value:.4f}"


def bias_text(bias: Bias | None) -> str:
    """Return the text of the leading term of a bias."""
    if bias is None:
        return ""
    if bias.order is None:
        return "0"
    power = {0: "", 1: " γ"}.get(bias.order, f" γ^{bias.order}")
    return f"{bias.coefficient:.3f}{power}".replace("-", "−")


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Return a Markdown table; all but the first columns are aligned to the right."""
    rule = ["---" if column < left else "---:" for column in range(len(header))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, rule, *rows))


def ratios(record: Mapping[str, Any], task: str, name: str) -> str:
    """Return the seconds of a round relative to FedAvg's, if they are recorded."""
    seconds = record.get("tasks", {}).get(task, {}).get("seconds", {})
    return f"{seconds[name] / seconds['fedavg']:.2f}" if name in seconds and "fedavg" in seconds else ""


def cost_row(name: str, record: Mapping[str, Any]) -> list[str]:
    """Return a method's row in the table of costs."""
    path, sizes = file_of(name), sizes_of(CASES[name])
    link = f"[{lines_of_code(path.read_text())}](../{path.relative_to(ROOT)})"
    return [
        f"`{name}`",
        METHODS[name].paper,
        link,
        *sizes,
        *(ratios(record, task, name) for task in ("femnist", "digits")),
    ]


def limit_row(name: str) -> list[str]:
    """Return a method's row in the table of fixed points."""
    return [f"`{name}`", CASES[name].settings, *limits_of(name)]


HEAD = """# The methods compared

Generated by `python -m benchmarks.methods_page docs/methods.md` from the methods' own functions.
`lur methods` lists the methods with one line each; [the algorithms](algorithms.md) shows the code that they share.

## What a method costs

With $d$ parameters: the numbers that each client keeps between rounds, sends, and is sent per round (besides
$\\gamma$). *Lines* counts the lines of code of the method's file, without comments and docstrings; `fedavg`,
`minibatch_sgd` and `fomaml` share `lur/methods/inner_loop.py` as well. *femnist* and *digits* are the seconds of a
round relative to those of `fedavg`, """
MEASURED = "as `lur bench methods` measured them on {machine[processor]}: the fastest of {turns} interleaved turns."
UNMEASURED = "which `lur bench methods` measures; they are not recorded yet."
COST_NOTES = """ProxSkip communicates only if its coin says so; the numbers are those of such a round. Methods that need
all clients in every round are not timed on tasks that sample clients.

## Where a method converges

On the two clients of the paper's Section 4, $f_1(x) = \\frac12 (x - 1)^2$ and $f_2(x) = (x - \\frac12)^2$ with
$x^* = 2/3$, with full gradients, both clients in every round and $\\gamma = 1/4$: the fixed point that a method
reaches, for local steps $K = (K_1, K_2)$, computed by `theory.limit_of` from the method's round, with all that its
server and clients keep. The bias is its distance from $x^*$ for small $\\gamma$, the leading term only. Fixed points
are exact fractions; ≈ marks methods whose round is not affine, which were run for 50,000 rounds. *Does not settle*
means that the round's spectral radius is at least 1 or, of the latter, that the model still moves.
"""
LIMIT_NOTES = """`lookahead` and Reptile with SGD inside are `fedavg`. Single steps (`minibatch_sgd`, `proxskip`) have
$K = (1, 1)$. With $K = (2, 8)$, `fedavg` converges to {fedavg} and `fednova` to {fednova}. The model of `fedexp` is the
mean of its last two iterates, which may alternate.
"""


def page() -> str:
    """Return the whole page."""
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    measured = MEASURED.format(**record) if record else UNMEASURED
    costs = ("method", "paper", "lines", "client keeps", "sends", "is sent", "femnist", "digits")
    ends = ("method", "settings", "K = (2, 2)", "K = (1, 3)", "bias, K = (2, 2)", "bias, K = (1, 3)")
    longer = {name: point(fixed_point(name, GAMMA, (2, 8))) for name in ("fedavg", "fednova")}
    parts = [
        HEAD + measured,
        table(costs, [cost_row(name, record) for name in CASES], left=2),
        COST_NOTES.rstrip(),
        table(ends, [limit_row(name) for name in CASES], left=2),
        LIMIT_NOTES.format(**longer).rstrip(),
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
