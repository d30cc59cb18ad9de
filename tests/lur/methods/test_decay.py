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


def test_each_rate_follows_its_own_rule_under_the_reference_semantics():
    """200 sequences for each of 24 pairs of (Delta, W, P, C), with patience 0 and factor 0 among them."""
    generator = np.random.default_rng(1)
    for setting in range(24):
        deltas = generator.choice([0.0, 1 / 64, 1 / 16], 2).tolist()
        windows = generator.choice([1, 2, 4, 8], 2).tolist()
        patiences, cooldowns = (generator.integers(0, 6, 2).tolist() for _ in range(2))
        factors = generator.choice([0.0, 0.1, 0.9, 1.0], 2).tolist()
        minimum = ((0.0, 0.0), (1e-3, 0.5))[setting % 2]
        if setting < 8:  # one of the four differs, or, in every second setting, none
            changed = (deltas, windows, patiences, cooldowns)[setting // 2]
            for pair in (deltas, windows, patiences, cooldowns):
                pair[1] = pair[0] + (1 if setting % 2 and pair is changed else 0) * (1 / 64 if pair is deltas else 1)
            windows[1] = 8 if windows[1] != windows[0] else windows[1]
        own = {
            "server_delta": deltas[1],
            "server_window": windows[1],
            "server_patience": patiences[1],
            "server_cooldown": cooldowns[1],
        }
        rule = plateau("reference", deltas[0], *factors, windows[0], patiences[0], cooldowns[0], *minimum, **own)
        losses = random_losses(200, 60, 100 + setting)

        def step(state, loss, rule=rule):
            state = rule.update(state, loss)
            return state, (state.client_lr, state.server_lr)

        found = jax.jit(jax.vmap(lambda row, rule=rule, step=step: jax.lax.scan(step, rule.init(0.4, 0.8), row)[1]))(
            losses
        )
        for which, rate in enumerate((0.4, 0.8)):
            for i, sequence in enumerate(losses.tolist()):
                options = (deltas, factors, windows, patiences, cooldowns)
                expected = reference_rule_in_python(sequence, rate, *(pair[which] for pair in options), minimum[which])
                assert found[which][i].tolist() == expected, (setting, which, i)


def test_one_set_keeps_the_state_that_earlier_checkpoints_have():
    shapes = [leaf.shape for leaf in plateau("reference", window=3).init(1.0, 1.0)]
    assert shapes == [(), (), (3,), (), (), (), (2,), (2,)]
    own = plateau("reference", window=3, server_window=5).init(1.0, 1.0)
    assert (own.window.shape, own.best.shape) == ((5,), (2,))


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
        ({"server_window": 3}, "server_window must be left out under 'paper', where both rates decay together, got 3"),
        ({"semantics": "reference", "alpha": -0.1}, r"alpha must be in \[0, 1\], got -0.1"),
        ({"semantics": "reference", "patience": -1}, "patience must be an integer >= 0, got -1"),
        ({"semantics": "reference", "server_patience": -1}, "server_patience must be an integer >= 0, got -1"),
        ({"semantics": "reference", "server_window": 0}, "server_window must be an integer >= 1, got 0"),
        ({"semantics": "reference", "server_delta": -1.0}, "server_delta must be finite and >= 0, got -1.0"),
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
