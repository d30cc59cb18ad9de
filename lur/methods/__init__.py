"""Local update methods as pure functions: the contract (`method`), and one method per file."""

from lur.methods.aggregation import clipped as clipped
from lur.methods.aggregation import privacy_epsilon as privacy_epsilon
from lur.methods.aggregation import quantized as quantized
from lur.methods.aggregation import top_k as top_k
from lur.methods.aggregation import with_noise as with_noise
from lur.methods.diloco import diloco as diloco
from lur.methods.extrapolation import extrapolated_update as extrapolated_update
from lur.methods.feddyn import feddyn as feddyn
from lur.methods.fedexp import fedexp as fedexp
from lur.methods.fedlin import fedlin as fedlin
from lur.methods.fednova import fednova as fednova
from lur.methods.fedprox import fedprox as fedprox
from lur.methods.fedsplit import fedsplit as fedsplit
from lur.methods.inner_loop import inner_loop as inner_loop
from lur.methods.local_update import from_client as from_client
from lur.methods.local_update import local_update as local_update
from lur.methods.maml import maml as maml
from lur.methods.mime import mime as mime
from lur.methods.mime import mimelite as mimelite
from lur.methods.proxskip import proxskip as proxskip
from lur.methods.reptile import reptile as reptile
from lur.methods.scaffold import scaffold as scaffold
