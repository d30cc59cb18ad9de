"""Section 8: LocalUpdateDecay."""

import math

import numpy as np

import lur
import theory
from tests.lur.problems import descent_batches, quadratic_loss
from tests.theory.evaluate.inputs import array, number, problem_of


def decay(inputs, problems):
    """A run; with W = P = 1 and C = 0 the server's steps must sum to no more than Delta and beta allow."""
    problem = problem_of(problems[inputs["problem"]])
    delta, beta = number(inputs["Delta"]), number(inputs["be"])
    window, patience, cooldown = inputs.get("W", 1), inputs.get("Pat", 1), inputs.get("C", 0)
    rule = lur.decay.plateau("paper", delta, number(inputs["al"]), beta, window, patience, cooldown)
    algorithm = lur.local_update(quadratic_loss, lur.theta.fedavg(inputs["K"]), decay=rule)
    state = algorithm.init(array(inputs["x1"]), number(inputs["g"]), number(inputs["eta"]))
    batches = descent_batches(np.asarray(problem.A), np.asarray(problem.c), inputs["K"])
    etas, losses = [], []
    for _ in range(inputs["Tm"]):
        etas.append(float(state.server_lr))
        state, info = algorithm.round(state, batches, problem.p)
        losses.append(float(info.loss))
    if (window, patience, cooldown) == (1, 1, 0):
        improvements = math.floor((losses[0] - float(theory.loss(problem, theory.minimizer(problem)))) / delta)
        assert sum(etas) <= etas[0] * (1 / (1 - beta) + improvements + 1)
    return {
        "x_final": state.params,
        "gamma": state.client_lr,
        "eta": state.server_lr,
        "n_decays": state.decay_state.decays,
        "loss_T": losses[-1],
    }


EVALUATE = {
    "D7f": decay,
    "D7g": decay,
    "D7h": lambda inputs, problems: lur.decay.rounds_to_see(inputs["N"], inputs["M"]),
}
