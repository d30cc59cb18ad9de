"""“On the Outsized Importance of Learning Rates in Local Update Methods” (Charles and Konečný), one module per section."""

from theory.claims.claim import Claim, Paper
from theory.claims.outsized_importance import (
    conditioning,
    convergence,
    convergence_rates,
    decay,
    distance,
    distance_rates,
    examples,
    hessian,
    maml,
    preliminaries,
    properties,
    sgd,
)

CLAIMS: tuple[Claim, ...] = (
    *preliminaries.CLAIMS,
    *sgd.CLAIMS,
    *maml.CLAIMS,
    *examples.CLAIMS,
    *properties.CLAIMS,
    *hessian.CLAIMS,
    *conditioning.CLAIMS,
    *distance.CLAIMS,
    *distance_rates.CLAIMS,
    *convergence.CLAIMS,
    *convergence_rates.CLAIMS,
    *decay.CLAIMS,
)

PAPER = Paper(
    name="outsized_importance",
    title="On the Outsized Importance of Learning Rates in Local Update Methods",
    authors="Zachary Charles and Jakub Konečný",
    claims=CLAIMS,
)
