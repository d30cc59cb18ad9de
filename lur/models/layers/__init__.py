"""Layers that are fast inside `lax.scan` on CPU, each equal to a standard one.

Most layers take ``form="auto" | "fast" | "plain"``, see `lur.models.layers.forms`.
"""

from lur.models.layers.conv import Conv, conv2d
from lur.models.layers.dense import Dense, dense, inner
from lur.models.layers.forms import Form
from lur.models.layers.losses import sigmoid_cross_entropy, softmax_cross_entropy
from lur.models.layers.lstm import LSTM, lstm
from lur.models.layers.norm import GroupNorm, group_norm
from lur.models.layers.pool import max_pool
from lur.models.layers.sparse import bag_of_words

__all__ = [
    "LSTM",
    "Conv",
    "Dense",
    "Form",
    "GroupNorm",
    "bag_of_words",
    "conv2d",
    "dense",
    "group_norm",
    "inner",
    "lstm",
    "max_pool",
    "sigmoid_cross_entropy",
    "softmax_cross_entropy",
]
