"""lur: local update methods (FedAvg, Reptile, FOMAML, MAML, Lookahead, local SGD and relatives) in JAX."""

from lur import client as client
from lur import decay as decay
from lur import extrapolation as extrapolation
from lur import maml as maml
from lur import optimizers as optimizers
from lur import theta as theta
from lur.diagnose import Diagnosis as Diagnosis
from lur.diagnose import diagnose as diagnose
from lur.engine import run as run
from lur.grid import run_grid as run_grid
from lur.server import Info as Info
from lur.server import LocalUpdate as LocalUpdate
from lur.server import State as State
from lur.server import local_update as local_update

__version__ = "0.1.0"
