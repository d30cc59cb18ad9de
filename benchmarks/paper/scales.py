"""Three scales of the paper's experiments.

``paper``: its sizes and grids, for an accelerator and the real files. The paper does not state its number of rounds;
here it is 10,000. ``small``: minutes on a laptop with built-in data: fewer clients, rounds and rates, smaller M and B,
and clients that differ enough to show the effect. ``smoke``: seconds, to check that everything runs; its verdicts
mean nothing.

The server optimiser is SGD for FEMNIST, CIFAR-100 and Shakespeare and Yogi for the two Stack Overflow tasks. Below the
paper's scale, digits replaces the tasks that a CPU cannot run.
"""

from typing import Literal, NamedTuple

from lur.training.configuration import RunConfig
from lur.training.sweep_plan import DECAY_GAMMAS, ETAS, GAMMAS

Scale = Literal["smoke", "small", "paper"]
ETA = 0.01
"""The constant server rate of the paper's figures."""


class Case(NamedTuple):
    """One task at one scale.

    Attributes:
        run: Configuration that all runs share.
        gammas: Client rates of the sweep.
        etas: Server rates of the sweep.
        first_gammas: First client rates that LocalUpdateDecay tries.
        decay_etas: Server rates of LocalUpdateDecay.
        wait: W = P = C of LocalUpdateDecay.
        block: Rounds in a block of Figure 3.
    """

    run: RunConfig
    gammas: tuple[float, ...] = GAMMAS
    etas: tuple[float, ...] = ETAS
    first_gammas: tuple[float, ...] = DECAY_GAMMAS
    decay_etas: tuple[float, ...] = ETAS
    wait: int = 100
    block: int = 1000


SGD = ("femnist", "cifar100", "shakespeare")
YOGI = ("stackoverflow_tp", "stackoverflow_nwp")
STAND_INS = {"smoke": (("femnist", "digits"), ("stackoverflow_tp",)), "small": (("femnist", "digits"), YOGI[:1])}

HALF = 10**-0.5
SMOKE_ETAS = (0.01, 0.1, 1.0)
SMALL_ETAS = (0.01, 10**-1.5, 0.1)

SMOKE = {
    "digits": Case(
        RunConfig("digits", 20, clients=10, evaluate_every=5), (0.0, 0.01, 0.1, 1.0), SMOKE_ETAS, (100.0, 1.0)
    ),
    "femnist": Case(
        RunConfig("femnist", 4, clients=2, clients_per_round=2, batch_size=2, theta="1:2", evaluate_every=2),
        (0.0, 0.01), (0.01, 0.1), (0.1,),
    ),
    "stackoverflow_tp": Case(
        RunConfig("stackoverflow_tp", 4, clients=6, clients_per_round=2, batch_size=2, theta="1:2", evaluate_every=2),
        (0.0, 10.0), (0.01, HALF), (100.0,),
    ),
}  # fmt: skip
SMALL = {
    "digits": Case(RunConfig("digits", 1000, clients=10, heterogeneity=10.0, evaluate_every=20)),
    "femnist": Case(
        RunConfig(
            "femnist", 600, clients=8, heterogeneity=2.0, clients_per_round=2, batch_size=5, evaluate_every=50,
            loss_limit=100.0,
        ),
        (0.0, 0.001, 0.01, 0.1, 1.0), SMALL_ETAS,
    ),
    "stackoverflow_tp": Case(
        RunConfig("stackoverflow_tp", 400, clients=60, heterogeneity=2.0, clients_per_round=10, evaluate_every=40),
        (0.0, 1.0, 10.0, 100.0), (0.01, 0.1, HALF, 1.0),
    ),
}  # fmt: skip


def case(task: str, scale: Scale) -> Case:
    """The sizes of a task at a scale. Tasks that no smaller scale lists run few rounds with very few clients."""
    if scale == "paper":
        return Case(RunConfig(task, 10_000, evaluate_every=None if task in YOGI else 100))
    known = (SMOKE if scale == "smoke" else SMALL).get(task)
    if known is None:
        rounds = 4 if scale == "smoke" else 100
        few = RunConfig(
            task, rounds, clients=4, clients_per_round=2, batch_size=2, theta="1:2", evaluate_every=rounds // 2
        )
        known = Case(few, (0.0, 0.01, 0.1), (0.01, 0.1), (0.1, 0.01))
    rounds = known.run.rounds
    etas = known.etas if known.decay_etas is ETAS else known.decay_etas
    return known._replace(decay_etas=etas, wait=max(1, rounds // 10), block=max(1, rounds // 10))


def tasks_of(group: Literal["sgd", "yogi"], scale: Scale) -> tuple[str, ...]:
    """The tasks of the figures with this server optimiser at a scale."""
    pair = STAND_INS.get(scale, (SGD, YOGI))
    return pair[0] if group == "sgd" else pair[1]


NAMES = {
    "femnist": "FEMNIST",
    "cifar100": "CIFAR-100",
    "shakespeare": "Shakespeare",
    "stackoverflow_tp": "Stack Overflow TP",
    "stackoverflow_nwp": "Stack Overflow NWP",
    "digits": "digits",
    "quadratic": "quadratic",
}
