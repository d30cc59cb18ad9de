"""The epsilon of clipped, noisy rounds is that of dp-accounting, for the mechanism that the docstring names."""

import pytest

from lur._extras import MissingExtraError
from lur.methods import privacy_epsilon

CASES = [(1.1, 100, 10, 1000, 1e-5), (0.6, 1, 5, 50, 1e-3), (3.0, 40, 7, 7, 1e-6)]


@pytest.fixture
def accounting():
    return pytest.importorskip("dp_accounting", reason="the extra `privacy` is not installed")


@pytest.mark.parametrize(("z", "rounds", "M", "N", "delta"), CASES)
def test_epsilon_is_that_of_dp_accounting(accounting, z, rounds, M, N, delta):
    dp = accounting
    poisson = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(M / N, dp.GaussianDpEvent(z)), rounds)
    expected = dp.rdp.RdpAccountant().compose(poisson).get_epsilon(delta)
    assert privacy_epsilon(z, rounds, M, N, delta, sampling="poisson") == pytest.approx(expected, rel=1e-12)
    replaced = dp.SampledWithoutReplacementDpEvent(N, M, dp.GaussianDpEvent(z / 2))  # of a sensitivity of 2 C
    accountant = dp.rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    expected = accountant.compose(dp.SelfComposedDpEvent(replaced, rounds)).get_epsilon(delta)
    assert privacy_epsilon(z, rounds, M, N, delta) == pytest.approx(expected, rel=1e-12)


def test_full_participation_is_the_gaussian_mechanism(accounting):
    """Of sensitivity C, or 2 C where a client is replaced; an exact bound for one round from the Gaussian's tails."""
    z, delta = 4.0, 1e-5
    for sampling, sensitivity in (("poisson", 1), ("without_replacement", 2)):
        exact = accounting.get_epsilon_gaussian(z / sensitivity, delta)
        assert exact <= privacy_epsilon(z, 1, 9, 9, delta, sampling=sampling) <= 1.3 * exact


def test_without_the_extra_one_sentence_names_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "dp_accounting", None)
    with pytest.raises(
        MissingExtraError, match=r'privacy_epsilon needs dp-accounting: pip install "lur-jax\[privacy\]"'
    ):
        privacy_epsilon(*CASES[0])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"noise_multiplier": 0.0}, "noise_multiplier must be a number > 0, got 0"),
        ({"rounds": 0}, "rounds must be an integer >= 1, got 0"),
        ({"clients_per_round": 11}, "clients_per_round must be at most the number of clients, 10, got 11"),
        ({"delta": 0.0}, r"delta must be a number in \(0, 1\), got 0.0"),
        ({"delta": 1}, r"delta must be a number in \(0, 1\), got 1"),
        ({"sampling": "shuffled"}, "sampling must be one of without_replacement, poisson, got 'shuffled'"),
    ],
)
def test_bad_input(change, says):
    good = {"noise_multiplier": 1.0, "rounds": 5, "clients_per_round": 2, "clients": 10, "delta": 1e-5}
    with pytest.raises(ValueError, match=says):
        privacy_epsilon(**(good | change))
