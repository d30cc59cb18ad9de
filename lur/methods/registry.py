"""The methods by name, for the command line, configurations and the documentation.

The table is text: a method's module is imported when the method is used. The options of a method are the arguments of
its factory (`lur.training.method_choice`), so a new method needs one entry here.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from lur.theta import Theta, fedavg, fomaml, minibatch_sgd


class MethodEntry(NamedTuple):
    """A method in the table.

    Attributes:
      factory: where its factory is, as ``module:function``.
      summary: what is special about it, in one line.
      paper: who described it.
      theta: its weights Theta as a function of K, for a method that is in Theta alone.
      defaults: values, on the command line, of options that the factory requires.
    """

    factory: str
    summary: str
    paper: str
    theta: Callable[[int], Theta] | None = None
    defaults: Mapping[str, Any] = MappingProxyType({})


LOCAL_UPDATE = "lur.methods.local_update:local_update"
METHODS: Mapping[str, MethodEntry] = MappingProxyType(
    {
        "local_update": MethodEntry(
            LOCAL_UPDATE, "clients send the sum of theta_k g_k, for any weights Theta", "Charles and Konečný, 2020"
        ),
        "fedavg": MethodEntry(
            LOCAL_UPDATE, "clients send the sum of their K local gradients", "McMahan et al., 2017", fedavg
        ),
        "fomaml": MethodEntry(
            LOCAL_UPDATE, "first-order MAML: clients send the last of K gradients", "Finn et al., 2017", fomaml
        ),
        "lookahead": MethodEntry(
            LOCAL_UPDATE, "the server steps towards the weights after K fast steps", "Zhang et al., 2019", fedavg
        ),
        "minibatch_sgd": MethodEntry(
            LOCAL_UPDATE,
            "clients send one gradient, at the broadcast model",
            "Robbins and Monro, 1951",
            lambda K: minibatch_sgd(),
        ),
        "reptile": MethodEntry(
            LOCAL_UPDATE,
            "meta-learning by the direction from the model to the adapted one",
            "Nichol et al., 2018",
            fedavg,
        ),
        "maml": MethodEntry(
            "lur.methods.maml:maml", "clients differentiate through their K local steps", "Finn et al., 2017"
        ),
        "extrapolation": MethodEntry(
            "lur.methods.extrapolation:extrapolated_update",
            "two client rates, gamma and 2 gamma, cancel the bias of local steps to first order",
            "Mangold et al., 2024",
        ),
    }
)
"""The methods by name."""
