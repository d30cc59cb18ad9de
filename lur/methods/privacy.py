r"""Differential privacy of rounds with clipped updates and Gaussian noise, by the accountant of `dp-accounting`.

The privacy is that of a whole client: of everything it ever sends. `dp_accounting.rdp.RdpAccountant` adds up the rounds
(Rényi differential privacy); this file says only which mechanism it accounts for. With M of N clients per round, clip C
and noise of standard deviation z C on the sum of the updates:

===========================  =======================================================================================
``without_replacement``      what `lur.run` draws: M distinct clients. Neighbouring populations differ in one client
                             *replaced* by another; N is public. A replaced update moves the sum by up to 2 C, so the
                             noise multiplier, as a multiple of that sensitivity, is z / 2. The bound on the
                             amplification by sampling is that of Wang, Balle and Kasiviswanathan, 2019, Theorem 27.
``poisson``                  each client takes part with probability q = M / N, independently of the others.
                             Neighbouring populations differ in one client *added or removed*, which moves the sum by
                             up to C (Mironov, Talwar and Zhang, 2019); it is divided by the mean cohort M. `lur.run`
                             does not sample so: this number is for comparison with papers that report it, and no
                             guarantee about a run of lur.
===========================  =======================================================================================

The two epsilons are about different neighbours, and not comparable. Either holds if the noisy mean is all that is
published of a round, see `with_noise`, and for real numbers: noise in floating point is not exactly Gaussian.
"""

from numbers import Real
from typing import Literal, get_args

from lur import _checks
from lur._extras import optional_imports

Sampling = Literal["without_replacement", "poisson"]


def privacy_epsilon(
    noise_multiplier: float,
    rounds: int,
    clients_per_round: int,
    clients: int,
    delta: float,
    *,
    sampling: Sampling = "without_replacement",
) -> float:
    """Return the epsilon of (epsilon, delta)-differential privacy of the rounds together, per client.

    Args:
      noise_multiplier: z > 0, as of `with_noise`.
      rounds: the number of rounds.
      clients_per_round: M; under ``poisson`` its mean.
      clients: N.
      delta: in (0, 1), usually below 1 / N.
      sampling: how the clients of a round are drawn, and which populations are neighbours; see above.
    """
    z = _checks.positive_number("noise_multiplier", noise_multiplier)
    T, M = _checks.positive_integer("rounds", rounds), _checks.positive_integer("clients_per_round", clients_per_round)
    N = _checks.positive_integer("clients", clients)
    if M > N:
        raise ValueError(f"clients_per_round must be at most the number of clients, {N}, got {M}")
    if isinstance(delta, bool) or not isinstance(delta, Real) or not 0 < delta < 1:
        raise ValueError(f"delta must be a number in (0, 1), got {delta!r}")
    if sampling not in get_args(Sampling):
        raise ValueError(f"sampling must be one of {', '.join(get_args(Sampling))}, got {sampling!r}")
    with optional_imports("privacy_epsilon"):
        import dp_accounting as dp  # pyright: ignore[reportMissingImports] # optional, not in the locks
        from dp_accounting.rdp import RdpAccountant  # pyright: ignore[reportMissingImports]
    if sampling == "poisson":
        neighbours = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
        one_round = dp.PoissonSampledDpEvent(M / N, dp.GaussianDpEvent(z))
    else:
        neighbours = dp.NeighboringRelation.REPLACE_ONE
        one_round = dp.SampledWithoutReplacementDpEvent(N, M, dp.GaussianDpEvent(z / 2))
    return float(RdpAccountant(neighboring_relation=neighbours).compose(one_round, T).get_epsilon(float(delta)))
