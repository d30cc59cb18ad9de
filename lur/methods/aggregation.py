r"""How the clients' updates become the mean that the server steps along: what wraps any method.

=====================  ================================================================================================
uniform mean           the default: :math:`q_t = \frac1M \sum_{i \in I_t} u_i`, the paper's.
example-weighted mean  ``lur.run(..., weighting="examples")``, or `weights` in `Method.round`:
                       :math:`q_t = \sum_i n_i u_i / \sum_i n_i`, as in FedAvg (McMahan et al., 2017).
`clipped`              every client scales its update to a norm of at most C.
`with_noise`           the server adds Gaussian noise to the mean of clipped updates (DP-FedAvg; McMahan et al.,
                       *Learning Differentially Private Recurrent Language Models*, 2018); `privacy_epsilon` says which
                       privacy this gives.
`quantized`            clients send unbiased, randomly rounded updates of few bits (QSGD).
`top_k`                clients send the largest entries only, and keep the rest for their next round (error feedback).
=====================  ================================================================================================

Each of the latter four is a function from `Method` to `Method`, as optax wraps transforms::

    method = with_noise(clipped(lur.local_update(loss_fn, theta), clip=0.1), noise_multiplier=1.0)

The innermost acts first. Clip and noise come last, so that nothing enlarges a clipped update. The update is what the
method's clients send: of SCAFFOLD's pair, both parts are one vector to `clipped` and `top_k`.
"""

from lur.methods.clipping import clipped as clipped
from lur.methods.clipping import with_noise as with_noise
from lur.methods.privacy import privacy_epsilon as privacy_epsilon
from lur.methods.quantization import quantized as quantized
from lur.methods.sparsification import top_k as top_k
