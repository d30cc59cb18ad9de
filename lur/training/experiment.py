"""An experiment: a task and a configuration with everything decided - the method, the layout, where the data live.

`resolve` is called once per command. Training, run folders, sweeps and evaluation take the `Experiment` and decide
nothing again. How methods, layouts and the engine are called is known here and nowhere else in training.
"""

import inspect
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from lur.data.gather import Resident, resident, size_in_bytes
from lur.data.sampling import steps_of_epochs
from lur.engine.fast.choice import FormChoice, choose_form
from lur.engine.rounds import Rounds, advance
from lur.engine.run import DEVICE_BYTES
from lur.engine.run_description import describe_program
from lur.engine.sampling_plan import plan_sampling
from lur.methods.method import Method, RoundInfo, ServerState
from lur.parallel.agreement import check_agreement, describe
from lur.parallel.client_states import fits_device, place_client_states
from lur.parallel.layouts import Layout, choose_layout
from lur.parallel.mesh import param_shardings, replicated
from lur.parallel.processes import place_arrays
from lur.tasks import GENERATED_SPLITS, load
from lur.tasks.task import Task
from lur.theta import MAX_K
from lur.training.configuration import TASK_OPTIONS, ResolvedRun, RunConfig, resolve_config
from lur.training.held_out import check_splits
from lur.training.method_choice import choose_method, make_method
from lur.training.option_text import parse_steps
from lur.training.user_code import call, load_attribute

MAX_ROUNDS_PER_CALL = 256
"""Most rounds of one call of the engine: the same for all runs, so that interrupting a run changes no bit of it."""

DATA_PATHS = ("store", "test_store", "word_count", "tag_count")
"""Fields that may differ between processes."""

Data = Resident | Literal["host"]
"""A store in device memory, or "host" for one that stays on the host."""


class Experiment(NamedTuple):
    """Everything that is decided before the first round.

    Attributes:
      task: store, model and loss.
      config: the resolved configuration.
      program: the rounds: the method in its fastest form, what a round draws, and how its clients are laid out.
      layout_reason: why this layout was chosen, for people.
      form_reason: which form of the method runs and why, for people.
      data_on_host: whether the store stays on the host because it is large, because several processes share it, or
        because the clients' states are on the host too.
    """

    task: Task
    config: ResolvedRun
    program: Rounds
    layout_reason: str
    form_reason: str
    data_on_host: bool

    @property
    def method(self) -> Method:
        """The local update method, in the form that runs."""
        return self.program.method

    @property
    def layout(self) -> Layout:
        """How the clients of a round are laid out."""
        return self.program.layout


def resolve(config: RunConfig, task: Task) -> Experiment:
    """Decide configuration, method, layout and data placement of a run.

    Args:
      config: what was asked for.
      task: the loaded task, see `load_task`.
    """
    resolved = resolve_config(config, task.settings, task.store.clients)
    check_splits(task, resolved)
    shapes = jax.eval_shape(task.init, jax.random.key(0))
    M, is_linear = resolved.clients_per_round, task.linear is not None
    layout, reason = choose_layout(shapes, M, resolved.layout, linear=is_linear)
    form = build_method(task, resolved, shapes)
    check_rates(form.method, shapes, [(resolved.client_lr, resolved.server_lr)])
    plan = plan_sampling(
        task.store,
        form.method,
        M,
        resolved.batch_size,
        resolved.epochs,
        resolved.weighting,
        steps=parse_steps(resolved.steps),
        sampling=resolved.sampling,
    )
    program = Rounds(form.method, plan, task.view, layout, MAX_ROUNDS_PER_CALL)
    client_state = jax.eval_shape(form.method.init_client, shapes)
    is_large = size_in_bytes(task.store) > DEVICE_BYTES or not fits_device(client_state, plan.N)
    on_host = is_large or jax.process_count() > 1
    return Experiment(task, resolved, program, reason, f"{form.name}: {form.reason}", on_host)


def check_rates(method: Method, params: PyTree, cells: Sequence[tuple[float, float]]) -> None:
    """Refuse rates that the method does not take, such as gamma = 0 with SCAFFOLD; in a program nobody would notice."""
    gamma, eta = cells[0]
    for rates in {*((each, eta) for each, _ in cells), *((gamma, each) for _, each in cells)}:
        jax.eval_shape(lambda params, rates=rates: method.init_server(params, *rates), params)


def check_processes(experiment: Experiment, folder: Path | None = None) -> None:
    """Raise ValueError in all processes unless all of them are about to run the same experiment in the same folder.

    The paths of data may differ between machines: their content is compared.
    """
    if jax.process_count() == 1:
        return
    config = {name: str(value) for name, value in asdict(experiment.config).items() if name not in DATA_PATHS}
    shapes = jax.eval_shape(experiment.task.init, jax.random.key(0))
    params = {f"params{jax.tree_util.keystr(path)}": str(leaf) for path, leaf in jax.tree.leaves_with_path(shapes)}
    place = {"run folder": "none" if folder is None else str(folder)}
    init = describe("init", experiment.task.init)
    check_agreement(config | place | params | init | describe_program(experiment.program, experiment.task.store))


def load_task(config: RunConfig) -> Task:
    """The task of a configuration, with its data: the store named there, or the built-in data."""
    from lur.data.readers import counts
    from lur.data.store import open_store

    choose_method(config)  # its mistakes are reported before data are made, which may take minutes
    if ":" in config.task:
        return load_own_task(config)
    options: dict[str, Any] = {
        "clients": config.clients,
        "heterogeneity": config.heterogeneity,
        "seed": config.data_seed,
    }
    options |= {name: getattr(config, name) for name, tasks in TASK_OPTIONS.items() if config.task in tasks}
    if config.store is not None:
        if config.task == "quadratic":
            raise ValueError(f"--store is not for quadratic, whose problem is generated, got {config.store}")
        options["store"] = open_store(config.store)
    if config.task not in GENERATED_SPLITS or config.test_fraction or config.held_out:
        options |= {name: getattr(config, name) for name in ("test_fraction", "held_out", "split_seed")}
    if config.test_store is not None:
        options["test"] = open_store(config.test_store)
        del options["test_fraction"]
    for flag, path, names, option, read, size in (
        ("--word-count", config.word_count, ("stackoverflow_nwp", "stackoverflow_tp"), "vocabulary",
         counts.word_count, 10_000),
        ("--tag-count", config.tag_count, ("stackoverflow_tp",), "tags", counts.tag_count, 500),
    ):  # fmt: skip
        if path is not None:
            if config.task not in names:
                raise ValueError(f"{flag} is for {' and '.join(names)}, got the task {config.task}")
            options[option] = [word.encode() for word in read(path, size)]
    return load(config.task, **options)


def load_own_task(config: RunConfig) -> Task:
    """The task that a user's module holds or that a function of it returns, called with those options that it takes."""
    found, name = load_attribute(config.task), config.task
    options = {"clients": config.clients, "heterogeneity": config.heterogeneity, "seed": config.data_seed}
    options["store"] = config.store
    takes = () if isinstance(found, Task) or not callable(found) else inspect.signature(found).parameters
    for field, option in (("clients", "clients"), ("heterogeneity",) * 2, ("data_seed", "seed"), ("store", "store")):
        if option not in takes and getattr(config, field) != getattr(RunConfig, field):
            raise ValueError(f"{name}: {field} must be left out, because the task has no argument {option}")
    if callable(found) and not isinstance(found, Task):
        from lur.data.store import open_store

        given = {option: value for option, value in options.items() if option in takes and value is not None}
        if "store" in given:
            given["store"] = open_store(given["store"])
        found = call(name, found, **given)
    if not isinstance(found, Task):
        raise ValueError(
            f"{name}: expected a lur.tasks.Task or a function that returns one, got {type(found).__name__}"
        )
    return found


def build_method(task: Task, config: ResolvedRun, params: PyTree) -> FormChoice:
    """The local update method of a run, in its fastest form; `params` are the model's parameters or their shapes."""
    steps = None
    if config.epochs is not None:
        largest = int(task.store.sizes.max())
        steps = steps_of_epochs(config.epochs, largest, config.batch_size)
        if steps > MAX_K:
            raise ValueError(
                f"epochs must give at most {MAX_K:,} local steps, got {config.epochs:,}, which take {steps:,} over the "
                f"largest client ({largest:,} examples, batches of {config.batch_size:,})"
            )
    method = make_method(task.loss, config, steps)
    return choose_form(method, params, config.client_lr, linear=task.linear, client_norms=False)


def initial_state(experiment: Experiment) -> ServerState:
    """The state before the first round."""
    config = experiment.config
    params = experiment.task.init(jax.random.key(config.seed))
    return experiment.method.init(params, config.client_lr, config.server_lr, clients=experiment.program.plan.N)


def place_state(experiment: Experiment, state: ServerState) -> ServerState:
    """The state on the devices of the layout; client states that do not fit stay on the host."""
    server = jax.tree.map(jnp.asarray, state._replace(clients=()))
    server = place_arrays(server, param_shardings(server, experiment.layout))
    return server._replace(clients=place_client_states(state.clients, replicated(experiment.layout)))


def place_data(experiment: Experiment, layout: Layout | None = None) -> Data:
    """The store on the devices of the experiment's layout or of the given one, unless it stays on the host."""
    if experiment.data_on_host:
        return "host"
    return resident(experiment.task.store, replicated(experiment.layout if layout is None else layout))


def run_rounds(experiment: Experiment, data: Data, state: ServerState, rounds: int) -> tuple[ServerState, RoundInfo]:
    """Run rounds with the engine.

    Args:
      experiment: the experiment.
      data: from `place_data`.
      state: the state before the rounds.
      rounds: how many, at most `MAX_ROUNDS_PER_CALL`.

    Returns:
      The state after the rounds, and their infos as numpy arrays with a leading axis of rounds.
    """
    seed = np.uint32(experiment.config.seed)
    state, infos = advance(experiment.program, state, experiment.task.store, data, seed, rounds)
    return state, jax.tree.map(np.asarray, infos)


def num_parameters(params: Any) -> int:
    """The number of parameters of a model."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))
