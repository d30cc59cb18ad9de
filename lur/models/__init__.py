"""The models of the experiments, as flax modules: ``model.init(key, inputs)``, ``model.apply(params, inputs)``."""

from lur._extras import optional_imports

with optional_imports("lur.models"):
    from lur.models.cnn import CNN, DropoutCNN
    from lur.models.lstm_lm import LSTMLM, next_word, shakespeare
    from lur.models.mlp import MLP
    from lur.models.regression import LogisticRegression, TagRegression
    from lur.models.resnet import ResNet18

__all__ = [
    "CNN",
    "LSTMLM",
    "MLP",
    "DropoutCNN",
    "LogisticRegression",
    "ResNet18",
    "TagRegression",
    "next_word",
    "shakespeare",
]
