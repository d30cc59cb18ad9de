"""Options that a method cannot have are refused before anything is compiled."""

from functools import partial
from typing import Any

import jax
import numpy as np
import optax
import pytest

import lur
from lur import methods
from tests.lur.problems import quadratic_loss as loss

FACTORIES: dict[str, Any] = {
    "fednova": partial(methods.fednova, loss),
    "fedprox": partial(methods.fedprox, loss, prox=0.1),
    "mime": partial(methods.mime, loss, optimizer=optax.sgd),
    "mimelite": partial(methods.mimelite, loss, optimizer=optax.sgd),
    "diloco": partial(methods.diloco, loss),
    "reptile": partial(methods.reptile, loss),
    "fedexp": partial(methods.fedexp, loss),
    "fedlin": partial(methods.fedlin, loss),
}


@pytest.fixture(autouse=True)
def compiles_nothing(monkeypatch):
    """Fails if jax lowers a program, which is the first stage of a compilation, other than that of a checked scalar."""
    lower = jax._src.interpreters.mlir.lower_jaxpr_to_module

    def lower_scalar(*args, **kwargs):
        name = kwargs.get("name") or args[0]
        assert name == "jit(convert_element_type)", name
        return lower(*args, **kwargs)

    monkeypatch.setattr(jax._src.interpreters.mlir, "lower_jaxpr_to_module", lower_scalar)


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "3", (1.0, 1.0), None])
@pytest.mark.parametrize("name", FACTORIES)
def test_local_steps(name, bad):
    with pytest.raises(ValueError, match="local_steps must be an integer >= 1, got"):
        FACTORIES[name](local_steps=bad)


@pytest.mark.parametrize("bad", [3, None, "adam", sum, optax.apply_updates])
@pytest.mark.parametrize("name", FACTORIES)
def test_optimizers(name, bad):
    options = ["server", *(["client"] if name in ("fedprox", "diloco", "reptile", "fedexp") else [])]
    options += ["optimizer"] if name in ("mime", "mimelite") else []
    for option in options:
        with pytest.raises(ValueError, match=f"{option} must be an optax optimiser"):
            FACTORIES[name](local_steps=2, **{option: bad})


@pytest.mark.parametrize("option", ["server", "client"])
def test_optimizers_of_local_update_and_maml(option):
    with pytest.raises(ValueError, match=f"{option} must be an optax optimiser"):
        lur.local_update(loss, (1.0,), **{option: "adam"})  # pyright: ignore
    with pytest.raises(ValueError, match="server must be an optax optimiser"):
        methods.maml(loss, 1, "adam")  # pyright: ignore
    with pytest.raises(ValueError, match=f"{option} must be an optax optimiser"):
        methods.extrapolated_update(loss, (1.0,), **{option: 1.0})  # pyright: ignore


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: methods.fedprox(loss, 2, -0.1), r"prox must be finite and >= 0, got -0\.1"),
        (lambda: methods.fedprox(loss, 2, float("nan")), "prox must be finite and >= 0, got nan"),
        (lambda: methods.fedprox(loss, 2, "weak"), "prox must be a number"),  # pyright: ignore
        (lambda: methods.fednova(loss, 2, prox=-1.0), r"prox must be finite and >= 0, got -1\.0"),
        (lambda: methods.fednova(loss, 2, momentum=-0.5), r"momentum must be finite and >= 0, got -0\.5"),
        (lambda: methods.fednova(loss, 2, momentum=1.0), r"momentum must be in \[0, 1\), got 1\.0"),
        (lambda: methods.fedexp(loss, 2, -1e-3), r"epsilon must be finite and >= 0, got -0\.001"),
        (lambda: methods.diloco(loss, 2, inner_state="kept"), "inner_state must be 'keep' or 'reset', got 'kept'"),
        (lambda: methods.diloco(loss, 2, inner_state=True), "inner_state must be 'keep' or 'reset', got True"),
        (lambda: methods.maml(loss, 2, query="last"), "query must be 'separate' or 'reuse', got 'last'"),
        (lambda: methods.maml(loss, 2, order=3), "order must be 1 or 2, got 3"),
        (lambda: methods.maml(loss, 2, order=True), "order must be 1 or 2, got True"),
        (lambda: methods.fedprox(loss, 2, 0.1, send="both"), "send must be one of"),
    ],
)  # fmt: skip
def test_options(make, says):
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.parametrize("theta", [(0.0, 1.0), (1.0, 0.5), (2.0,)])
def test_weights_that_a_method_cannot_have(theta):
    """Methods that send x - y have Theta_{1:K} only."""
    with pytest.raises(ValueError, match=r"theta must be Theta_\{1:K\} with send='delta'"):
        methods.extrapolated_update(loss, theta, send="delta")
    with pytest.raises(ValueError, match=r"theta must be Theta_\{1:K\} with send='delta'"):
        lur.local_update(loss, theta, client=partial(optax.adam, b1=0.0))


def test_fednova_has_one_client_rate():
    with pytest.raises(ValueError, match=r"client_lr must have shape \(\), got \(2,\)"):
        methods.fednova(loss, 2).init(np.zeros(2, np.float32), np.array([0.1, 0.2]), 0.1)
