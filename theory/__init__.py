"""What local update methods really optimise on quadratics: closed forms, from jax alone, in float64.

An independent witness of `lur`: nothing here imports it, and `theory.trials` is given the implementation to compare.
A statement of your own is put on trial by `theory.trial` over a `theory.space` (see `theory.reports.statement`).
"""

import importlib
from typing import Any

from theory import maml as maml
from theory.affine import FixedPoint as FixedPoint
from theory.affine import Surrogate as Surrogate
from theory.affine import fixed_point_of as fixed_point_of
from theory.affine import surrogate_of as surrogate_of
from theory.conditioning import chord_condition_bound as chord_condition_bound
from theory.convergence import decaying_client_bound as decaying_client_bound
from theory.convergence import decaying_server_bound as decaying_server_bound
from theory.convergence import descent_bound as descent_bound
from theory.convergence import fixed_server_bound as fixed_server_bound
from theory.convergence import true_minimizer_bound as true_minimizer_bound
from theory.distance import fedavg_distance_bound as fedavg_distance_bound
from theory.distance import fedavg_eps_distance_bound as fedavg_eps_distance_bound
from theory.distance import fedavg_heterogeneity_bound as fedavg_heterogeneity_bound
from theory.distance import gamma_distance_bound as gamma_distance_bound
from theory.distance import gamma_distance_linear_bound as gamma_distance_linear_bound
from theory.distance import hessian_gaps as hessian_gaps
from theory.distance import instance_optimal_distance_bound as instance_optimal_distance_bound
from theory.distance import inverse_gap as inverse_gap
from theory.distance import limit_loss as limit_loss
from theory.distance import minimizer_distance as minimizer_distance
from theory.distance import minimizer_distance_bound as minimizer_distance_bound
from theory.distance import minimizer_shift as minimizer_shift
from theory.distance import one_shot_bound as one_shot_bound
from theory.distance import sharper_distance_bound as sharper_distance_bound
from theory.examples import two_clients as two_clients
from theory.extrapolation import extrapolated_minimizer as extrapolated_minimizer
from theory.extrapolation import minimizer_slope as minimizer_slope
from theory.limits import Limit as Limit
from theory.limits import limit_of as limit_of
from theory.maml import MamlEquivalence as MamlEquivalence
from theory.maml import check_maml_equivalence as check_maml_equivalence
from theory.moments import mean_square_error as mean_square_error
from theory.moments import stationary_mean_square_error as stationary_mean_square_error
from theory.optimal import optimal_theta as optimal_theta
from theory.optimal import optimal_theta_two as optimal_theta_two
from theory.precision import float64 as float64
from theory.problems import Constants as Constants
from theory.problems import Problem as Problem
from theory.problems import StochasticProblem as StochasticProblem
from theory.problems import client_losses as client_losses
from theory.problems import constants as constants
from theory.problems import loss as loss
from theory.problems import loss_offset as loss_offset
from theory.problems import mean_problem as mean_problem
from theory.rates import optimal_rates as optimal_rates
from theory.spectrum import chi as chi
from theory.spectrum import chi_mu as chi_mu
from theory.spectrum import client_hessian_bounds as client_hessian_bounds
from theory.spectrum import client_rate_limit as client_rate_limit
from theory.spectrum import distortion_eigenvalue as distortion_eigenvalue
from theory.spectrum import fedavg_condition_bound as fedavg_condition_bound
from theory.spectrum import fomaml_condition_bound as fomaml_condition_bound
from theory.spectrum import phi as phi
from theory.spectrum import phi_drop as phi_drop
from theory.surrogate import average_minimizer as average_minimizer
from theory.surrogate import client_hessians as client_hessians
from theory.surrogate import client_surrogate_losses as client_surrogate_losses
from theory.surrogate import distortion as distortion
from theory.surrogate import minimizer as minimizer
from theory.surrogate import surrogate_gradient as surrogate_gradient
from theory.surrogate import surrogate_hessian as surrogate_hessian
from theory.surrogate import surrogate_loss as surrogate_loss
from theory.surrogate import surrogate_minimizer as surrogate_minimizer

_ON_DEMAND = {name: "theory.reports.statement" for name in ("trial", "space")} | {
    name: "theory.claims.fields"
    for name in (
        "between", "function", "integer", "positive", "positive_definite", "rate", "simplex", "symmetric", "vector",
    )
}  # fmt: skip
"""Public names that need exact arithmetic or a room above this one; their modules are imported when they are used."""


def __getattr__(name: str) -> Any:
    if name in _ON_DEMAND:
        return getattr(importlib.import_module(_ON_DEMAND[name]), name)
    raise AttributeError(f"module 'theory' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_ON_DEMAND])
