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
      defaults: values, on the command line, of its options and of fields of the configuration such as ``server_lr``:
        options that the factory requires, and the server rate of methods whose clients send x - y.
      full_participation: whether all clients take part in every round.
    """

    factory: str
    summary: str
    paper: str
    theta: Callable[[int], Theta] | None = None
    defaults: Mapping[str, Any] = MappingProxyType({})
    full_participation: bool = False


def _weights(summary: str, paper: str, theta: Callable[[int], Theta] | None = None) -> MethodEntry:
    """A method that is LocalUpdate with these weights."""
    return MethodEntry("lur.methods.local_update:local_update", summary, paper, theta)


def _defaults(**values: Any) -> Mapping[str, Any]:
    return MappingProxyType(values)


METHODS: Mapping[str, MethodEntry] = MappingProxyType(
    {
        "local_update": _weights("clients send the sum of theta_k g_k, for any Theta", "Charles and Konečný, 2020"),
        "fedavg": _weights("clients send the sum of their K local gradients", "McMahan et al., 2017", fedavg),
        "fomaml": _weights("first-order MAML: clients send the last of K gradients", "Finn et al., 2017", fomaml),
        "lookahead": _weights("the server steps towards the weights after K steps", "Zhang et al., 2019", fedavg),
        "minibatch_sgd": _weights(
            "clients send one gradient, at the broadcast model", "Robbins and Monro, 1951", lambda K: minibatch_sgd()
        ),
        "reptile": MethodEntry(
            "lur.methods.reptile:reptile",
            "the server steps towards weights that Adam has adapted",
            "Nichol et al., 2018",
            defaults=_defaults(server_lr=1.0),
        ),
        "maml": MethodEntry(
            "lur.methods.maml:maml", "clients differentiate through their K local steps", "Finn et al., 2017"
        ),
        "fedprox": MethodEntry(
            "lur.methods.fedprox:fedprox",
            "clients are pulled towards the broadcast model",
            "T. Li et al., 2020",
            defaults=_defaults(prox=0.1),
        ),
        "fednova": MethodEntry(
            "lur.methods.fednova:fednova", "clients of unequal work send mean gradients, not sums", "Wang et al., 2020"
        ),
        "scaffold": MethodEntry(
            "lur.methods.scaffold:scaffold",
            "control variates keep local steps from drifting apart",
            "Karimireddy et al., 2020",
            defaults=_defaults(server_lr=1.0),
        ),
        "feddyn": MethodEntry(
            "lur.methods.feddyn:feddyn",
            "each client's loss is regularised by a linear correction",
            "Acar et al., 2021",
            defaults=_defaults(server_lr=1.0, alpha=0.1),
        ),
        "proxskip": MethodEntry(
            "lur.methods.proxskip:proxskip",
            "local steps that communicate when a shared coin says so",
            "Mishchenko et al., 2022",
            defaults=_defaults(server_lr=1.0, probability=0.1),
            full_participation=True,
        ),
        "fedsplit": MethodEntry(
            "lur.methods.fedsplit:fedsplit",
            "operator splitting whose fixed points are minimisers",
            "Pathak and Wainwright, 2020",
            defaults=_defaults(server_lr=1.0, prox_step=1.0),
            full_participation=True,
        ),
        "fedlin": MethodEntry(
            "lur.methods.fedlin:fedlin",
            "local gradients corrected by the cohort's mean gradient",
            "Mitra et al., 2021",
            defaults=_defaults(server_lr=1.0),
        ),
        "mime": MethodEntry(
            "lur.methods.mime:mime",
            "clients take corrected steps of a centralised optimiser",
            "Karimireddy et al., 2020",
            defaults=_defaults(server_lr=1.0, optimizer="momentum"),
        ),
        "mimelite": MethodEntry(
            "lur.methods.mime:mimelite",
            "clients take steps of a centralised optimiser",
            "Karimireddy et al., 2020",
            defaults=_defaults(server_lr=1.0, optimizer="momentum"),
        ),
        "diloco": MethodEntry(
            "lur.methods.diloco:diloco",
            "AdamW at the clients, Nesterov momentum at the server",
            "Douillard et al., 2023",
            defaults=_defaults(server_lr=0.7),
        ),
        "fedexp": MethodEntry(
            "lur.methods.fedexp:fedexp",
            "the server steps further where clients disagree",
            "Jhunjhunwala et al., 2023",
            defaults=_defaults(server_lr=1.0),
        ),
        "extrapolation": MethodEntry(
            "lur.methods.extrapolation:extrapolated_update",
            "two client rates cancel the bias of local steps to first order",
            "Mangold et al., 2024",
        ),
    }
)
"""The methods by name."""
