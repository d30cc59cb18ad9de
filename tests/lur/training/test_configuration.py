"""A run's configuration: file, flags and arguments are one thing; what is wrong is named."""

import contextlib
import io
import tomllib
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import tyro
from hypothesis import given
from hypothesis import strategies as st

from lur import tasks
from lur.cli import arguments
from lur.training import configuration as config
from lur.training import experiment
from lur.training.configuration import RunConfig

rate = st.floats(0, 1e300)
size = st.integers(1, 2**31 - 1)
runs = st.builds(
    RunConfig,
    task=st.text(),
    rounds=size,
    client_lr=st.none() | rate,
    server=st.sampled_from([None, "sgd", "yogi", "adam"]),
    method=st.text(),
    client=st.sampled_from([None, "adamw", "optax:lion"]),
    prox=st.none() | rate,
    method_options=st.none() | st.text(),
    theta=st.none() | st.lists(st.floats(0.1, 9), min_size=1, max_size=4).map(tuple),
    batch_size=st.none() | size,
    seed=st.integers(0, 2**32 - 1),
    decay=st.sampled_from(["off", "paper", "reference"]),
    loss_limit=st.sampled_from([1.0, 1e6, float("inf")]),
    store=st.none() | st.text(min_size=1).map(Path),
    heterogeneity=rate,
)


@given(runs)
def test_toml_and_back(run):
    assert config.config_from_values(tomllib.loads(config.to_toml(run))) == run


def test_a_notebook_may_say_it_its_way(tmp_path):
    run = RunConfig("digits", theta=[1, 1, 1, 0], client_lr=1, rounds=np.int64(7), server_lr=np.float32(0.5), store="s")
    assert run == RunConfig("digits", theta="1:3", client_lr=1.0, rounds=7, server_lr=0.5, store=Path("s"))
    file = tmp_path / "run.toml"
    file.write_text(config.to_toml(run))
    assert config.read_config(file) == run


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"client_rl": 0.1}, "got client_rl = 0.1; did you mean client_lr"),
        ({"zzz": 1}, r"got zzz = 1$"),
        ({"rounds": 1.5}, "rounds must be an integer, got 1.5"),
        ({"rounds": 10**400}, "rounds must be an integer, got 1000"),
        ({"rounds": 2**31}, "rounds must be less than"),
        ({"seed": True}, "seed must be an integer, got True"),
        ({"seed": -1}, "seed must be an integer from 0"),
        ({"client_lr": "fast"}, "client_lr must be a number, got 'fast'"),
        ({"client_lr": float("nan")}, "client_lr must be finite and >= 0, got nan"),
        (
            {"server": "sdg"},
            "server must be one of sgd, momentum, nesterov, adagrad, adam, yogi, got 'sdg'; did you mean sgd",
        ),
        ({"server": ["sgd"]}, "server must be text, got"),
        ({"client": "adamv"}, "client must be one of sgd, .*rmsprop, got 'adamv'; did you mean adam"),
        ({"prox": -1}, "prox must be finite and >= 0, got -1"),
        ({"local_steps": 0}, "local_steps must be an integer >= 1, got 0"),
        ({"local_steps": 3, "theta": "1:3"}, "local_steps must be left out with theta, which has K weights, got 3"),
        ({"local_steps": 3, "epochs": 1}, "local_steps must be left out with epochs"),
        ({"send": "models"}, "send must be one of gradients, loss_gradients, delta, got 'models'"),
        ({"theta": "2:3"}, "theta must be"),
        ({"theta": 3}, "theta must be text, got 3"),
        ({"theta": "[0,0]"}, "theta must have a positive weight"),
        ({"store": 3}, "store must be a path, got 3"),
        ({"loss_limit": 0}, "loss_limit must be > 0, got 0"),
        ({"epochs": 1, "theta": "1:3"}, "theta must be left out with epochs"),
        ({"task": None}, "task must be text, got None"),
    ],
)
def test_what_is_wrong_is_named(values, says):
    with pytest.raises(ValueError, match=says):
        config.config_from_values({"task": "digits"} | values, "run.toml")


def test_files_that_are_none(tmp_path):
    with pytest.raises(ValueError, match="expected a task, got none"):
        config.config_from_values({"rounds": 3})
    file = tmp_path / "run.toml"
    with pytest.raises(ValueError, match=r"run.toml: expected a configuration, found no such file"):
        config.read_config(file)
    file.write_bytes(b"task = 'digits'\nrounds = ?\n")
    with pytest.raises(ValueError, match=r"run.toml: expected TOML, .*line 2"):
        config.read_config(file)
    file.write_bytes(b"\xff")
    with pytest.raises(ValueError, match="expected TOML"):
        config.read_config(file)
    file.write_bytes(b" " * (2**20 + 1))
    with pytest.raises(ValueError, match="expected at most 1,048,576 bytes"):
        config.read_config(file)


def test_settled_and_different():
    settings = tasks.Settings(10, 5, 20, 0.1, 0.2, "yogi")
    run = config.resolve_config(RunConfig("digits", batch_size=3), settings)
    assert (run.theta, run.batch_size, run.server, run.client_lr, run.server_lr) == ("1:5", 3, "yogi", 0.1, 0.2)
    assert config.resolve_config(RunConfig("digits", epochs=1), settings).theta is None
    assert config.resolve_config(run, settings) == run
    other = replace(run, client_lr=0.5, evaluate_every=3, checkpoint_every=1)
    assert config.config_changes(run, other) == ["client_lr 0.1 -> 0.5", "evaluate_every none -> 3"]


def parsed(*flags):
    return tyro.cli(arguments.RunFlagsArg, args=flags)


def test_every_field_has_its_flag(tmp_path):
    names = {field.name for field in fields(RunConfig)} - {"task"}
    assert {field.name for field in fields(arguments.RunFlags)} == names
    with contextlib.redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit):
        parsed("--help")
    assert all(f"--{name.replace('_', '-')}" in out.getvalue() for name in names)
    file = tmp_path / "run.toml"
    file.write_text(config.to_toml(RunConfig("digits", seed=5, client_lr=0.5, rounds=7)))
    run = arguments.requested_config(
        "", file, None, parsed("--seed", "0", "--client-lr", "0.25")
    )  # a flag goes before the file
    assert run == RunConfig("digits", seed=0, client_lr=0.25, rounds=7)
    assert arguments.requested_config("quadratic", None, None, parsed("--theta", "K=3")) == RunConfig(
        "quadratic", theta="K=3"
    )
    store = arguments.requested_config("femnist", None, None, parsed("--store", "s")).store
    assert store == Path.cwd() / "s"


@pytest.mark.parametrize(
    ("task", "option", "value", "default"),
    [
        ("cifar100", "crop", 32, 24),
        ("cifar100", "l2", 1e-4, 0.0),
        ("femnist", "model", "dropout_cnn", "default"),
        ("shakespeare", "positions", "all", "tokens"),
        ("stackoverflow_nwp", "positions", "inputs", "tokens"),
        ("stackoverflow_tp", "over_batch", "sum", "mean"),
        ("stackoverflow_tp", "init", "glorot_normal", "default"),
        ("stackoverflow_tp", "normalise", "mean", "sum"),
    ],
)
def test_an_option_of_a_task_is_recorded_and_reaches_its_task_only(monkeypatch, task, option, value, default):
    given = {}
    monkeypatch.setattr(experiment, "load", lambda name, **options: given.update(options, name=name))
    run = arguments.requested_config(task, None, None, parsed(f"--{option.replace('_', '-')}", str(value)))
    experiment.load_task(run)
    assert (given["name"], given[option]) == (task, value)
    settings = tasks.Settings(10, 5, 20, 0.1, 0.2)
    resolved, before = (config.resolve_config(each, settings) for each in (run, RunConfig(task)))
    assert tomllib.loads(config.to_toml(resolved))[option] == value
    assert config.config_changes(before, resolved) == [f"{option} {default} -> {value}"]
    with pytest.raises(ValueError, match=f"{option} is for .*{task}.*, got {value} for the task digits"):
        RunConfig("digits", **{option: value})
    given.clear()
    experiment.load_task(RunConfig("digits"))
    assert option not in given


def test_the_decay_of_each_rate_reaches_the_rule():
    own = {"decay_server_delta": 0.5, "decay_server_window": 7, "decay_server_patience": 0, "decay_server_cooldown": 3}
    run = RunConfig("digits", decay="reference", decay_alpha=0.0, decay_patience=0, clients_per_round=2, **own)
    rule = experiment.resolve(run, tasks.load("digits", clients=3)).method.server_update.decay
    assert (rule.delta, rule.window, rule.patience, rule.cooldown) == (1e-4, 100, 0, 100)
    assert (rule.server_delta, rule.server_window, rule.server_patience, rule.server_cooldown) == (0.5, 7, 0, 3)
    with pytest.raises(ValueError, match="server_delta must be left out under 'paper'"):
        experiment.resolve(replace(run, decay="paper"), tasks.load("digits", clients=3))
