"""Converts the inputs of a published instance to arrays, problems and weights."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np

import lur
import theory
from tests.lur.problems import quadratic_loss
from theory.enumeration import batch_sequences


def number(text):
    """'3/4', '0.25', 2 or True as a float, correctly rounded."""
    return float(text) if isinstance(text, bool) else float(Fraction(str(text)))


def array(nested):
    """Nested lists of numbers as strings, as a float64 array."""
    return np.vectorize(number, otypes=[float])(np.asarray(nested, dtype=object))


def matrix(value):
    """A matrix from nested lists, from 'diag(1,2)' or from one number."""
    if isinstance(value, str) and value.startswith("diag("):
        return np.diag(array(value[5:-1].split(",")))
    entries = array(value)
    return entries.reshape(1, 1) if entries.ndim == 0 else entries


def problem_of(entry):
    return theory.Problem(array(entry["A"]), array(entry["c"]), array(entry["p"]))


def examples_of(client):
    """The examples of a client; scalars A_z, c_z mean d = 1, and '+-1' means 1 or -1, equally likely."""
    c_z = ["1", "-1"] if client["c_z"] == "+-1" else client["c_z"]
    A_z = client["A_z"] if "A_z" in client else [client["A"]] * len(c_z)
    p_z = client.get("p", [Fraction(1, len(c_z))] * len(c_z))
    c_z = array(c_z)
    c_z = c_z.reshape(len(c_z), -1)
    d = c_z.shape[1]
    return array(A_z).reshape(-1, d, d), c_z, array(p_z)


def stochastic_of(client):
    return theory.StochasticProblem(*(value[None] for value in examples_of(client)))


def theta_of(inputs):
    """Theta from a list, from a string such as '1:2', or Theta_{1:K}."""
    if "Theta" not in inputs:
        return lur.theta.fedavg(inputs["K"])
    given = inputs["Theta"]
    return lur.theta.parse(given) if isinstance(given, str) else tuple(array(given))


def all_messages(client, x, gamma, theta, B):
    """Every message an SGD client can send, with its probability: one row per sequence of len(theta) mini-batches."""
    A_z, c_z, p_z = examples_of(client)
    A_z, c_z = jnp.asarray(A_z), jnp.asarray(c_z)
    draws, probability = batch_sequences(p_z, len(theta), B)
    sent = jax.vmap(lambda d: lur.inner_loop(quadratic_loss, x, (A_z[d], c_z[d]), gamma, theta)[0])(draws)
    return np.asarray(sent), np.asarray(probability)


def messages_of(inputs, theta):
    return all_messages(inputs["client"], array(inputs["x"]), number(inputs["gamma"]), theta, inputs["B"])


def variance(sent, probability):
    """E||q - E q||^2 of listed messages."""
    return probability @ np.sum((sent - probability @ sent) ** 2, axis=1)
