"""What local update methods really optimise on quadratics: closed forms, from jax alone, in float64.

The independent witness of `lur`: nothing here imports it, but for `theory.trials`, which compares the two.
"""

from theory.examples import two_clients as two_clients
from theory.precision import float64 as float64
from theory.problems import Constants as Constants
from theory.problems import Problem as Problem
from theory.problems import StochasticProblem as StochasticProblem
from theory.problems import client_losses as client_losses
from theory.problems import constants as constants
from theory.problems import loss as loss
from theory.problems import loss_offset as loss_offset
from theory.problems import mean_problem as mean_problem
from theory.spectrum import chi as chi
from theory.spectrum import distortion_eigenvalue as distortion_eigenvalue
from theory.spectrum import phi as phi
from theory.surrogate import average_minimizer as average_minimizer
from theory.surrogate import client_hessians as client_hessians
from theory.surrogate import client_surrogate_losses as client_surrogate_losses
from theory.surrogate import distortion as distortion
from theory.surrogate import minimizer as minimizer
from theory.surrogate import surrogate_gradient as surrogate_gradient
from theory.surrogate import surrogate_hessian as surrogate_hessian
from theory.surrogate import surrogate_loss as surrogate_loss
from theory.surrogate import surrogate_minimizer as surrogate_minimizer
