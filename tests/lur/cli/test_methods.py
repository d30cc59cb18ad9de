"""Methods, optimisers and tasks from the command line: by name, or a user's own."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import jax.numpy as jnp
import optax
import pytest

import lur as library
from lur.methods.aggregation import clipped, quantized, top_k, with_noise
from lur.methods.by_value import by_value
from lur.methods.optimizers import CLIENT_OPTIMIZERS, SERVER_OPTIMIZERS, optimizer_init, optimizer_step
from lur.methods.registry import METHODS
from lur.runs.reader import read_run
from lur.training import configuration
from lur.training.configuration import RunConfig, resolve_config
from lur.training.experiment import load_task, resolve
from lur.training.loop import StopRequest, train
from lur.training.method_choice import make_method, method_named
from tests.lur.problems import quadratic_loss

SMALL = ["--rounds", "4", "--clients", "5", "--clients-per-round", "2"]
OWN = '''
import jax, jax.numpy as jnp, optax
import lur
from lur.methods.server import InitServer, ServerUpdate

def counting(loss_fn, local_steps, scale=1.0, server=optax.sgd):
    """One gradient step, by a client that counts its rounds and sends scale times its gradient."""
    def client_update(broadcast, count, batches):
        loss, gradient = jax.value_and_grad(loss_fn)(broadcast.params, batches.first())
        update = jax.tree.map(lambda leaf: scale * (1 + count).astype(leaf.dtype) * leaf, gradient)
        return lur.ClientOutput(update, count + 1, loss)

    return lur.Method(InitServer(server, None, local_steps), client_update, ServerUpdate(server, None), local_steps,
                      init_client=lambda params: jnp.zeros((), jnp.int32))

def no_method(loss_fn, local_steps):
    return 3

def fails(loss_fn, local_steps):
    return {}["missing"]

number = 7
'''


def settings():
    return library.tasks.Settings(2, 3, 1, 0.1, 0.1)


def made(**fields):
    return make_method(quadratic_loss, resolve_config(RunConfig("quadratic", **fields), settings()), None)


def test_methods_lists_every_method_in_one_line(lur):
    status, out, _ = lur("methods")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == [*METHODS]
    assert all(len(line) <= 120 for line in out.splitlines())
    listed = json.loads(lur("methods", "--json")[1])
    assert [*listed] == [*METHODS]
    for name, entry in listed.items():
        assert entry["summary"] == METHODS[name].summary
        assert entry["options"] == method_named(name).options


def test_a_name_makes_the_method_that_python_makes():
    theta = library.theta
    for name, weights in {
        "local_update": theta.fedavg(3),
        "fedavg": theta.fedavg(3),
        "lookahead": theta.fedavg(3),
        "fomaml": theta.fomaml(3),
        "minibatch_sgd": theta.minibatch_sgd(),
    }.items():
        assert made(method=name) == library.local_update(quadratic_loss, weights), name
    assert made(method="maml", local_steps=2) == library.methods.maml(quadratic_loss, 2)
    assert made(method="extrapolation", theta="1:2", extrapolate="updates") == library.methods.extrapolated_update(
        quadratic_loss, theta.fedavg(2), extrapolate="updates"
    )
    plain = library.local_update(quadratic_loss, theta.fedavg(3))
    methods, momentum = library.methods, SERVER_OPTIMIZERS["momentum"]
    for fields, method in (
        ({"method": "scaffold", "option": "I"}, methods.scaffold(quadratic_loss, 3, "I")),
        ({"method": "feddyn", "alpha": 0.5, "client": "adam"},
         methods.feddyn(quadratic_loss, 3, 0.5, client=optax.adam)),
        ({"method": "fedprox"}, methods.fedprox(quadratic_loss, 3, 0.1)),
        ({"method": "proxskip", "probability": 0.5, "seed": 4}, methods.proxskip(quadratic_loss, 0.5, seed=4)),
        ({"method": "mime"}, methods.mime(quadratic_loss, 3, momentum)),
        ({"method": "mimelite", "optimizer": "adam"}, methods.mimelite(quadratic_loss, 3, optax.adam)),
        ({"method": "diloco", "inner_state": "reset"}, methods.diloco(quadratic_loss, 3, inner_state="reset")),
        ({"method": "diloco", "server": "sgd"}, methods.diloco(quadratic_loss, 3, server=optax.sgd)),
        ({"method": "fedexp", "method_options": "epsilon=0.5"}, methods.fedexp(quadratic_loss, 3, 0.5)),
        ({"method": "maml", "query": "separate", "order": 1},
         methods.maml(quadratic_loss, 3, query="separate", order=1)),
        ({"top_k": 0.5, "quantize_bits": 3, "clip": 0.1, "noise": 2.0, "seed": 7},
         with_noise(clipped(quantized(top_k(plain, 0.5), 3), 0.1), 2.0, seed=7)),
    ):  # fmt: skip
        assert made(**fields) == method, fields
    assert made(theta="1:2", client="adamw", server="nesterov", prox=0.1, loss_on="all") == library.local_update(
        quadratic_loss, (1, 1), SERVER_OPTIMIZERS["nesterov"], client=optax.adamw, prox=0.1, loss_on="all"
    )
    assert made(client="optax:lion") == library.local_update(quadratic_loss, theta.fedavg(3), client=optax.lion)


def test_optimisers_of_the_tables_step_and_compare_by_value():
    momentum = SERVER_OPTIMIZERS["momentum"]
    assert by_value(momentum) == by_value(type(momentum)(optax.sgd, momentum=0.9))
    for table, field in ((SERVER_OPTIMIZERS, "server"), (CLIENT_OPTIMIZERS, "client")):
        described = configuration.FIELD_DESCRIPTIONS[field]
        for name, optimizer in table.items():
            assert made(**{field: name}) == made(**{field: name})
            assert f"{name}," in described
            x, rate = jnp.ones(2), jnp.float32(0.1)
            y, _ = optimizer_step(optimizer, rate, x, optimizer_init(optimizer, rate, x), x)
            assert (y < x).all(), name
        with pytest.raises(TypeError):
            table["sgd"] = optax.adam


def test_a_resolved_configuration_of_any_method_says_all_and_resolves_to_itself():
    for name, entry in METHODS.items():
        resolved = resolve_config(RunConfig("quadratic", method=name), settings(), clients=7)
        assert resolve_config(resolved, settings(), clients=7) == resolved
        assert configuration.config_from_values(tomllib.loads(configuration.to_toml(resolved))) == (
            configuration.with_changes(resolved)
        )
        assert all(getattr(resolved, option) == value for option, value in entry.defaults.items())
        assert resolved.clients_per_round == (7 if entry.full_participation else 2)
        assert made(method=name).full_participation == entry.full_participation
        required = {
            option
            for option, parameter in method_named(name).arguments.items()
            if parameter.default is parameter.empty and option not in ("loss_fn", "theta", "local_steps", "steps")
        }
        assert required <= {*entry.defaults}, name
        assert required <= {*configuration.METHOD_OPTIONS}, "an option that is required needs a flag"


@pytest.mark.full
@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_sweeps_and_resumes(lur, tmp_path, name):
    small = [*SMALL[:-2], "--method", name, "--checkpoint-every", "1"]
    assert lur("train", "quadratic", *small, "--run-dir", "whole")[0] == 0
    assert lur("train", "quadratic", *small, "--rounds", "2", "--run-dir", "part")[0] == 0
    assert lur("train", "--run-dir", "part", "--rounds", "4")[0] == 0
    assert (tmp_path / "whole" / "log.jsonl").read_bytes() == (tmp_path / "part" / "log.jsonl").read_bytes()
    eta = METHODS[name].defaults.get("server_lr", 0.1)
    status, *_ = lur("sweep", "quadratic", *small, "--client-lr", "0.1,0.2", "--server-lr", eta, "--json")
    assert status == 0
    one = json.loads(lur("train", "quadratic", *small, "--client-lr", "0.2", "--json")[1])
    swept = [json.loads(line) for line in (tmp_path / "runs/sweep-quadratic/evaluation.jsonl").read_text().splitlines()]
    assert swept[-1]["f"][1] == pytest.approx(one["evaluation"]["loss"], rel=1e-5)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--method", "fedavgg"], "got 'fedavgg'; did you mean fedavg?"),
        (["--method", "maml", "--prox", "0.1"], "prox is no option of the method maml, got 0.1; the nearest it has is"),
        (["--method", "maml", "--theta", "1:3"], "theta is no option of the method maml, got 1:3"),
        (["--method", "fedavg", "--extrapolate", "models"], "(of local_steps, theta, server, client, send, prox"),
        (["--method", "fedavg", "--theta", "K=3"], "theta must be 1:3 or left out with the method fedavg, got K=3"),
        (["--method", "minibatch_sgd", "--local-steps", "3"], "local_steps must be 1 with the method minibatch_sgd"),
        (["--client", "adm"], "did you mean adam?"),
        (["--server", "optax:lionn"], "optax:lionn: optax has no attribute lionn; did you mean lion"),
        (["--server", "optax:__version__"], "server must be an optax optimiser"),
        (["--method-options", "beta=1"], "beta is no option of the method local_update, got 1; the nearest it has is"),
        (["--method-options", "beta"], "method_options must be name=value,name=value, got 'beta'"),
        (["--noise", "1"], "noise must come with clip, the norm that it is a multiple of, got 1.0 without"),
        (["--clip", "-1"], "clip must be finite and > 0, got -1.0"),
        (["--top-k", "2"], "top_k must be in (0, 1], got 2.0"),
        (["--method", "scaffold", "--client", "adamw"], "client is no option of the method scaffold, got adamw; the"),
        (["--method", "scaffold", "--client-lr", "0"], "client_lr must be > 0"),
        (["--method", "proxskip"], "clients_per_round must be all 5 clients of the store"),
        (["--method", "none_such:factory"], "none_such:factory: expected a module none_such in the current folder"),
        (["--method", "own:countin"], "own:countin: own has no attribute countin; did you mean counting?"),
        (["--method", "own:number"], "own:number: expected a factory of a lur.Method, got int"),
        (["--method", "own:no_method"], "own:no_method: expected a factory that returns a lur.Method, got int"),
        (["--method", "own:fails"], "own:fails: calling it raised KeyError: 'missing'"),
        (["--method", "own:counting", "--prox", "1"], "prox is no option of the method own:counting, got 1.0"),
        (["--method", "own:counting", "--decay", "paper"], "decay is no option of the method own:counting, got paper"),
        (["--method", "broken:factory"], "broken:factory: importing broken raised ZeroDivisionError: division by zero"),
        (["--method", "needy:factory"], "needy:factory: importing needy raised ModuleNotFoundError: No module named"),
        (["--method", "ends:factory"], "ends:factory: importing ends raised SystemExit"),
        (["--method", "optax:sgd"], "optax:sgd: expected one module optax, found "),
        (["--method", "own:"], "own:: expected my_module:attribute"),
    ],
)
def test_mistakes_are_one_sentence(lur, tmp_path, monkeypatch, flags, says):
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "needy.py").write_text("import no_such_package\n")
    (tmp_path / "ends.py").write_text("raise SystemExit\n")
    if "found " in says:
        (tmp_path / "optax.py").write_text("")
    monkeypatch.delitem(sys.modules, "own", raising=False)
    before = [*sys.path]
    status, _, err = lur("train", "quadratic", *SMALL, *flags, "--run-dir", "run")
    assert status == 2
    assert says in err
    assert err.startswith("lur: ")
    assert err.count("\n") == 1
    assert not (tmp_path / "run" / "run.json").exists()
    assert sys.path == before


def test_a_method_of_your_own_resumes_with_its_client_states(lur, tmp_path, monkeypatch):
    (tmp_path / "counting_module.py").write_text(OWN)
    command = [
        "train",
        "--task",
        "quadratic",
        *SMALL,
        "--method",
        "counting_module:counting",
        "--checkpoint-every",
        "1",
    ]
    command += ["--method-options", "scale=0.5", "--server", "momentum", "--quiet", "--run-dir"]
    assert lur(*command, "whole") == (0, "", "")
    config = tomllib.loads((tmp_path / "whole" / "config.toml").read_text())
    assert (config["method"], config["method_options"]) == ("counting_module:counting", "scale=0.5")
    assert (config["local_steps"], "theta" in config) == (10, False)
    with monkeypatch.context() as patch:
        patch.setattr(StopRequest, "__init__", lambda self: setattr(self, "signal", 2))
        lur(*command, "cut")
    assert len(read_run(tmp_path / "cut").rounds) < 4
    assert lur("train", "--run-dir", "cut")[0] == 0
    logs = [(tmp_path / name / "log.jsonl").read_bytes() for name in ("whole", "cut")]
    assert logs[0] == logs[1]
    changed = [*command, "cut"]
    changed[changed.index("scale=0.5")] = "scale=0.25"
    status, _, err = lur(*changed)
    assert (status, "method_options scale=0.5 -> scale=0.25" in err) == (2, True)
    rates = ["--client-lr", "0.1", "--server-lr", "0.1,0.2"]
    status, out, _ = lur("sweep", "quadratic", *SMALL, *rates, "--method", "counting_module:counting", "--json")
    assert status == 0
    assert all(cell["diverged"] is None for cell in json.loads(out)["cells"])


def test_a_task_of_your_own(lur, tmp_path):
    (tmp_path / "task_module.py").write_text(
        "from lur import tasks\n"
        "def task(clients=6, seed=0):\n    return tasks.load('quadratic', clients=clients, seed=seed)\n"
        "fixed = task(7)\n"
        "def wrong():\n    return 3\n"
    )
    own, built_in = (
        json.loads(lur("train", name, *SMALL, "--data-seed", 3, "--json")[1])
        for name in ("task_module:task", "quadratic")
    )
    assert own["evaluation"] == built_in["evaluation"]
    assert own["configuration"]["task"] == "task_module:task"
    assert lur("train", "--task=task_module:fixed", "--rounds", "1", "--quiet") == (0, "", "")
    status, *_ = lur("sweep", "--task", "task_module:fixed", "--rounds", "2", "--client-lr", "0.1", "--server-lr", "1")
    assert status == 0
    assert (tmp_path / "runs" / "sweep-task_module-fixed" / "run.json").exists()
    for arguments, says in (
        (["task_module:wrong"], "task_module:wrong: expected a lur.tasks.Task or a function that returns one, got int"),
        (["task_module:fixed", "--clients", "3"], "clients must be left out, because the task has no argument clients"),
        (["task_module:task", "--heterogeneity", "3"], "heterogeneity must be left out"),
        (["task_module:task", "--crop", "3"], "crop is for cifar100, got 3 for the task task_module:task"),
        (["task_module:none"], "task_module:none: task_module has no attribute none"),
    ):
        status, _, err = lur("train", *arguments, "--rounds", "1")
        assert (status, err.count("\n")) == (2, 1)
        assert says in err


def test_the_current_folder_is_importable_for_the_module_alone(tmp_path):
    """As `./run` starts Python (-P): a folder named jax beside the module is not imported."""
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("raise RuntimeError('shadowed')\n")
    command = [sys.executable, "-P", "-m", "lur", "config", "quadratic", "--method", "own:counting", "--theta", "1:2"]
    root = str(Path(library.__file__).parents[1])
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": root, "LUR_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("lur: theta is no option of the method own:counting, got 1:2; the nearest it has is")


def test_what_is_evaluated_is_the_trained_model():
    """The params of extrapolation are a pair of models."""
    config = RunConfig("quadratic", rounds=3, clients=5, clients_per_round=2, method="extrapolation")
    task = load_task(config)
    experiment = resolve(config, task)
    *_, last = train(experiment)
    model = library.extrapolation.extrapolated_model(last.state.params)
    assert last.evaluation.loss == library.evaluate(task, model).loss
    assert last.evaluation.loss != library.evaluate(task, last.state.params[0]).loss


def test_a_sweep_evaluates_the_trained_model_in_one_program_and_cell_by_cell(lur, tmp_path, monkeypatch):
    from lur.training import sweep_plan

    rates = ["--client-lr", "0.1,0.2", "--server-lr", "0.1", "--method", "extrapolation", "--evaluate-every", "2"]
    assert lur("sweep", "quadratic", *SMALL, *rates, "--run-dir", "together")[0] == 0
    monkeypatch.setattr(sweep_plan, "choose_group_size", lambda *_, **__: (1, "one cell at a time"))
    assert lur("sweep", "quadratic", *SMALL, *rates, "--run-dir", "apart")[0] == 0
    lines = {
        name: [json.loads(line) for line in (tmp_path / name / "evaluation.jsonl").read_text().splitlines()]
        for name in ("together", "apart")
    }
    by_cell = {
        (line["round"], cell): f for line in lines["apart"] for cell, f in zip(line["cells"], line["f"], strict=True)
    }
    config = RunConfig("quadratic", rounds=4, clients=5, clients_per_round=2, method="extrapolation", client_lr=0.2)
    *_, last = train(resolve(config, load_task(config)))
    assert by_cell[4, 1] == pytest.approx(last.evaluation.loss, rel=1e-6)
    for line in lines["together"]:
        for cell, f in zip(line["cells"], line["f"], strict=True):
            assert f == pytest.approx(by_cell[line["round"], cell], rel=1e-6)


def test_the_configuration_of_an_older_run_is_the_present_one(lur, tmp_path):
    """A folder that knows nothing of methods resumes, with the numbers of a run that was as long from the start."""
    options = ["train", "quadratic", *SMALL, "--checkpoint-every", "2", "--run-dir"]
    assert lur(*options, "run")[0] == 0
    file = tmp_path / "run" / "config.toml"
    new = ("method = ", "sampling = ", "test_fraction = ", "held_out = ", "split_seed = ")
    file.write_text("".join(line for line in file.read_text().splitlines(True) if not line.startswith(new)))
    older = file.read_bytes()
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    kept = {name: info[name] for name in ("format", "version", "kind", "lur", "data")}  # all that there was
    (tmp_path / "run" / "run.json").write_text(json.dumps(kept))
    assert set(tomllib.loads(older.decode())) == {
        "task", "rounds", "client_lr", "server_lr", "server", "theta", "clients_per_round", "batch_size", "weighting",
        "layout", "seed", "decay", "decay_delta", "decay_alpha", "decay_beta", "decay_window", "decay_patience",
        "decay_cooldown", "loss_limit", "clients", "heterogeneity", "data_seed", "crop", "l2", "model", "positions",
        "over_batch", "init", "normalise", "checkpoint_every", "checkpoint_seconds",
    }  # fmt: skip
    assert lur("train", "--run-dir", "run")[0] == 0
    assert tomllib.loads(file.read_text()) == tomllib.loads(older.decode()) | {
        "method": "local_update",
        "sampling": "uniform",
        "test_fraction": 0.0,
        "held_out": 0.0,
        "split_seed": 0,
    }
    assert lur("train", "--run-dir", "run", "--rounds", "6")[0] == 0
    assert lur(*options, "long", "--rounds", "6")[0] == 0
    assert (tmp_path / "run" / "log.jsonl").read_bytes() == (tmp_path / "long" / "log.jsonl").read_bytes()


def test_sampling_and_steps_reach_the_engine():
    config = RunConfig("quadratic", clients=5, clients_per_round=2, sampling="cyclic", steps="2:7")
    plan = resolve(config, load_task(config)).program.plan
    assert (plan.sampling, plan.steps, plan.M) == ("cyclic", (2, 7), 2)
    config = RunConfig("quadratic", clients=5, sampling="full")
    assert resolve(config, load_task(config)).config.clients_per_round == 5
    for steps in ("0:3", "3:2", "3", "a:b"):
        with pytest.raises(ValueError, match="steps must be low:high with 1 <= low <= high, got"):
            RunConfig("quadratic", steps=steps)
    with pytest.raises(ValueError, match="steps must be left out with epochs"):
        RunConfig("quadratic", steps="1:2", epochs=1)


def test_tune_and_decay_take_a_method(lur):
    rates = ["--client-lr", "0.1", "--server-lr", "0.3", "--method", "fedavg", "--local-steps", "9", "--json"]
    assert json.loads(lur("tune", "quadratic", *SMALL, *rates)[1])[0]["eta"] == 0.3
    assert json.loads(lur("decay", "quadratic", *SMALL, *rates)[1])["server_lr"] == 0.3
    assert (
        lur("diagnose", "digits", "--rounds", "0", "--depth", "2", "--steps", "1", "--gammas", "0.1", "--quiet")[0] == 0
    )
