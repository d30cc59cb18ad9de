"""Theta: named weights, text forms, and invalid weights."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lur
from lur import theta


def test_named_weights():
    assert theta.minibatch_sgd() == (1.0,)
    assert theta.fedavg(3) == (1.0, 1.0, 1.0)
    assert theta.fomaml(3) == (0.0, 0.0, 1.0)
    assert theta.maml(2) == (0.0, 0.0, 0.0, 0.0, 1.0)
    assert theta.maml(0) == theta.minibatch_sgd()


@given(st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.0]), min_size=1, max_size=12))
def test_K_is_the_last_positive_weight(values):
    expected = max((k for k, value in enumerate(values, start=1) if value > 0), default=0)
    assert theta.K(values) == expected == len(theta.weights(values))
    assert theta.weights(values) == tuple(values[:expected])


@given(st.lists(st.floats(0, 1e6, allow_subnormal=False), min_size=1, max_size=6))
def test_parse_inverts_text(values):
    assert theta.parse(theta.text(values)) == theta.weights(values)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1:10", (1.0,) * 10),
        ("K=10", (0.0,) * 9 + (1.0,)),
        ("[1,0,2]", (1.0, 0.0, 2.0)),
        (" [ 1, 0.5 , 0 ] ", (1.0, 0.5)),
        ("k=1", (1.0,)),
    ],
)
def test_parse(text, expected):
    assert theta.parse(text) == expected


@pytest.mark.parametrize("text", ["", "2:10", "10", "K=", "K=0", "1:0", "[]", "[1,a]", "[-1]", "[nan]", "[[1]]", "[1"])
def test_parse_refuses_malformed_text(text):
    with pytest.raises(ValueError, match=r"theta|K must"):
        theta.parse(text)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "non-empty"),
        ([[1.0]], "non-empty sequence"),
        ([1.0, -0.5], r"theta_2 = -0\.5"),
        ([float("nan")], "finite"),
        ([float("inf")], "finite"),
        (["a"], "real numbers"),
        ("1:3", "use lur.theta.parse"),
    ],
)
def test_weights_refuses_invalid_weights(values, message):
    with pytest.raises(ValueError, match=message):
        theta.weights(values)


def test_arrays_and_lists_are_equivalent():
    assert theta.weights(np.array([1, 0, 2])) == theta.weights([1, 0, 2]) == (1.0, 0.0, 2.0)


@pytest.mark.parametrize("make", [theta.fedavg, theta.fomaml])
@pytest.mark.parametrize("K", [0, -1, 1.5, True])
def test_steps_must_be_positive_integers(make, K):
    with pytest.raises(ValueError, match="K must be an integer"):
        make(K)


def test_local_update_refuses_zero_weights():
    with pytest.raises(ValueError, match="Assumption 0"):
        lur.local_update(lambda x, b: x.sum(), [0, 0])
