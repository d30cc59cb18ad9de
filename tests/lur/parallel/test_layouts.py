"""Layouts are parsed from text, printed, and chosen with a reason."""

import jax
import jax.numpy as jnp
import pytest

from lur.parallel.layouts import Layout, choose_layout, devices_needed, parse_layout


def params_of_shapes(*shapes):
    return [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]


SMALL, LARGE, WIDE = params_of_shapes((64, 10)), params_of_shapes((3136, 512), (512,)), params_of_shapes((96, 10_004))


@pytest.mark.parametrize("text", ["vmap", "sequential", "chunked:3"])
def test_parsing_inverts_printing(text):
    assert str(parse_layout(text)) == text
    assert parse_layout(parse_layout(text)) == parse_layout(text)


@pytest.mark.parametrize("text", ["", "auto", "chunked:-1", "chunked:1.5", "chunked:", "vmap:2", "sharded:x"])
def test_invalid_layouts_are_rejected(text):
    with pytest.raises(ValueError, match="layout must be one of vmap, sequential"):
        parse_layout(text)


@pytest.mark.parametrize(
    ("backend", "devices", "params", "linear", "expected"),
    [
        ("gpu", 1, LARGE, False, Layout(None)),
        ("tpu", 8, LARGE, False, Layout(None, 8)),
        ("cpu", 1, SMALL, False, Layout(None)),
        ("cpu", 2, SMALL, False, Layout(None)),
        ("cpu", 1, LARGE, False, Layout(1)),
        ("cpu", 2, LARGE, False, Layout(1, 2)),
        ("cpu", 2, WIDE, False, Layout(1)),
        ("cpu", 2, WIDE, True, Layout(1, 2)),
    ],
)
def test_the_chosen_layout_suits_backend_and_model(monkeypatch, backend, devices, params, linear, expected):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(jax, "device_count", lambda: devices)
    choice = choose_layout(params, 16, linear=linear)
    assert choice.layout == expected
    assert choice.reason
    assert choose_layout(params, 16, "sequential", linear=linear) == (Layout(1), "as requested")


@pytest.mark.parametrize(
    ("devices", "M", "expected"), [(2, 10, 2), (64, 10, 10), (4, 10, 4), (8, 10, 5), (3, 1, 1), (1, 7, 1)]
)
def test_devices_that_save_no_step_are_not_used(devices, M, expected):
    assert devices_needed(devices, M) == expected
    assert -(-M // expected) == -(-M // devices)
