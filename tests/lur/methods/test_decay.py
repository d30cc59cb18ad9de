"""Both semantics of the plateau rule, compared with state machines in Python round by round."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lur
from lur.methods.decay import plateau, rounds_to_see

pytestmark = pytest.mark.x64


def paper_rule_in_python(losses, gamma, eta, delta, alpha, beta, W, P, C, minimum):
    """The paper's rule: compares with the minimum of all earlier window means and counts bad rounds during cooldown."""
    best, bad, cooldown, history = math.inf, 0, C, []
    for t in range(len(losses)):
        window = losses[max(0, t - W + 1) : t + 1]
        mean = sum(reversed(window)) / len(window)
        bad = 0 if mean <= best - delta else bad + 1
        if not math.isnan(mean):
            best = min(best, mean)
        if cooldown > 0:
            cooldown -= 1
        elif bad >= P:
            gamma, eta = max(gamma * alpha, minimum[0]), max(eta * beta, minimum[1])
            bad, cooldown = 0, C
        history.append((gamma, eta))
    return history


def reference_rule_in_python(losses, rate, delta, factor, W, P, C, minimum):
    """The callback published with the paper, for one rate, with its `wait` and `cooldown` counters."""
    best, wait, cooldown, history = math.inf, 0, C, []
    window = [math.inf] * W
    for loss in losses:
        window = [*window[1:], loss]
        mean = sum(reversed(window)) / W
        if cooldown > 0:
            cooldown -= 1
            wait = 0
        if mean < best - delta:
            best, wait = mean, 0
        elif cooldown <= 0:
            wait += 1
            if wait >= P and rate > minimum:
                rate, cooldown, wait = max(rate * factor, minimum), C, 0
        history.append(rate)
    return history


def random_losses(count, length, seed, ties=True):
    """Losses that drift down with flat stretches and a few NaN and inf, as multiples of 1/64 if `ties`.

    Multiples of 1/64 tie with best - Delta. Their means over 1, 2, 4 or 8 losses are exact, so the expected rates are
    known to the last bit. The mean over another window is rounded, and a compiled division may round either way, so
    these windows are tested without ties.
    """
    generator = np.random.default_rng(seed)
    steps = generator.choice([-2, -1, -1, 0, 0, 0, 1, 2], (count, length))
    losses = (256 + np.cumsum(steps * generator.integers(1, 4, (count, 1)), axis=1)) / 64.0
    if not ties:
        losses += 0.02 * generator.standard_normal((count, length))
    rare = generator.random((count, length)) < 0.004
    losses[rare] = generator.choice([np.nan, np.inf], rare.sum())
    return losses


@pytest.mark.parametrize("semantics", ["paper", "reference"])
def test_rates_equal_those_of_the_python_rules(semantics):
    """500 sequences of 80 rounds for each of 20 settings, equal to the last bit."""
    generator = np.random.default_rng(0)
    for setting in range(20):
        ties = setting % 4 < 2
        W = int(generator.choice(([1, 2] if semantics == "paper" else [1, 2, 4, 8]) if ties else [3, 5, 6, 7, 9]))
        P, C = int(generator.integers(1, 7)), int(generator.integers(0, 8))
        if setting == 0:
            W, P, C = 1, 1, 0
        delta, minimum = generator.choice([0.0, 1 / 64, 1 / 16]), ((0.0, 0.0), (1e-3, 0.5))[setting % 2]
        rule = plateau(semantics, float(delta), 0.1, 0.9, W, P, C, *minimum)
        losses = random_losses(500, 80, setting, ties)

        def step(state, loss, rule=rule):
            state = rule.update(state, loss)
            return state, (state.client_lr, state.server_lr)

        def run(losses, rule=rule, step=step):
            return jax.lax.scan(step, rule.init(0.4, 0.8), losses)[1]

        gammas, etas = (np.asarray(v) for v in jax.jit(jax.vmap(run))(losses))
        for i, sequence in enumerate(losses.tolist()):
            if semantics == "paper":
                expected = paper_rule_in_python(sequence, 0.4, 0.8, delta, 0.1, 0.9, W, P, C, minimum)
                gamma, eta = (list(v) for v in zip(*expected, strict=True))
            else:
                gamma = reference_rule_in_python(sequence, 0.4, delta, 0.1, W, P, C, minimum[0])
                eta = reference_rule_in_python(sequence, 0.8, delta, 0.9, W, P, C, minimum[1])
            assert gammas[i].tolist() == gamma, (semantics, setting, i)
            assert etas[i].tolist() == eta, (semantics, setting, i)


def test_paper_and_reference_semantics_differ():
    losses = random_losses(50, 80, 7)
    rates = []
    for semantics in ("paper", "reference"):
        rule = plateau(semantics, 1 / 64, 0.1, 0.9, 3, 2, 4)
        run = jax.jit(
            jax.vmap(
                lambda row, rule=rule: jax.lax.scan(lambda s, x: (rule.update(s, x), None), rule.init(1.0, 1.0), row)[0]
            )
        )
        rates.append(np.asarray(run(losses).client_lr))
    assert (rates[0] != rates[1]).any()


def test_one_round_window_without_cooldown_is_algorithm_3():
    """W = P = 1, C = 0: the rates decay iff l_t > min_{j<t} l_j - Delta, and never in the first round."""
    rule = plateau("paper", 0.5, 0.1, 0.5, 1, 1, 0)
    state = rule.init(1.0, 1.0)
    rates = []
    for loss in (9.0, 8.0, 7.5, 7.25, 7.5, 6.0):  # 7.5 = 8 - Delta exactly: not a bad round
        state = rule.update(state, loss)
        rates.append(float(state.server_lr))
    assert rates == [1.0, 1.0, 1.0, 0.5, 0.25, 0.25]
    assert int(state.decays) == 2


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=60), st.integers(1, 5), st.integers(1, 4), st.integers(0, 4))
def test_consecutive_decays_are_separated_by_the_cooldown(values, W, P, C):
    rule = plateau("paper", 0.0, 0.5, 0.5, W, P, C)
    _, decays = jax.lax.scan(
        lambda s, x: (rule.update(s, x), rule.update(s, x).decays), rule.init(1.0, 1.0), jnp.asarray(values, float)
    )
    decay_rounds = np.flatnonzero(np.diff(np.asarray(decays), prepend=0))
    assert all(decay_rounds >= C)
    assert all(np.diff(decay_rounds) > max(C, P - 1))


def test_nan_is_not_an_improvement():
    rule = plateau("paper", 0.0, 0.5, 0.5, 1, 2, 0)
    state = rule.init(1.0, 1.0)
    for loss in (3.0, float("nan"), float("nan"), 2.0):
        state = rule.update(state, loss)
    assert int(state.decays) == 1
    assert float(state.best) == 2.0


def test_decay_scales_all_rates_of_a_client_alike():
    rule = plateau("paper", 0.0, 0.5, 1.0, 1, 1, 0)
    state = rule.init(np.array([0.4, 0.2]), 1.0)
    for loss in (1.0, 1.0, 2.0):
        state = rule.update(state, loss)
    np.testing.assert_allclose(state.client_lr, [0.2, 0.1])


def test_rounds_to_see_all_clients_once():
    assert rounds_to_see(1000, 10) == 100
    assert rounds_to_see(342_477, 50) == 6850
    assert rounds_to_see(1, 7) == 1
    with pytest.raises(ValueError, match="M must be"):
        rounds_to_see(10, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"semantics": "keras"}, "semantics must be 'paper' or 'reference', got 'keras'"),
        ({"delta": -1.0}, "delta must be"),
        ({"delta": float("nan")}, "delta must be"),
        ({"alpha": 0.0}, "alpha must be in"),
        ({"beta": 1.5}, "beta must be in"),
        ({"window": 0}, "window must be an integer >= 1"),
        ({"patience": 0}, "patience must be an integer >= 1"),
        ({"cooldown": -1}, "cooldown must be an integer >= 0"),
        ({"min_client_lr": float("nan")}, "min_client_lr must be"),
    ],
)
def test_invalid_options_are_rejected(options, message):
    with pytest.raises(ValueError, match=message):
        plateau(**options)


def test_decayed_rates_take_effect_in_the_next_round():
    """LocalUpdateDecay on a constant loss; `RoundInfo` reports the rates of the round and whether they decayed."""
    rule = plateau("paper", 0.5, 0.1, 0.5, 1, 1, 0)
    method = lur.local_update(lambda x, batch: 1.0 + 0.0 * jnp.sum(x * batch), [1.0], decay=rule)
    state = method.init(np.ones(1), 1.0, 1.0)
    history = []
    for _ in range(3):
        state, info = method.round(state, np.ones((1, 1, 1)))
        history.append((float(info.server_lr), bool(info.decayed), float(state.server_lr)))
    assert history == [(1.0, False, 1.0), (1.0, True, 0.5), (0.5, True, 0.25)]
    np.testing.assert_allclose(state.client_lr, 0.01)
