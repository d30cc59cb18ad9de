"""Many rounds in one compiled program: sampling, gather, local steps, server step and decay inside one loop.

The host is involved between calls only. Which clients take part and which examples they draw depends on (seed, round)
alone (`lur.data.sampling`), so a run that is cut into several calls, or laid out differently, is the same run.
"""

import logging
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from lur import _checks
from lur.data.gather import Resident, gather, resident, size_in_bytes
from lur.data.store import Store
from lur.engine.batches import View, as_stored
from lur.engine.fast.choice import choose_form
from lur.engine.rounds import Rounds, advance
from lur.engine.run_description import describe_run
from lur.engine.sampling_plan import Sampling, Steps, check_kept_states, plan_sampling
from lur.jax_setup import keep_compiled
from lur.methods.method import Method, RoundInfo, ServerState
from lur.parallel.agreement import check_agreement
from lur.parallel.client_states import check_client_states, is_on_host
from lur.parallel.layouts import Layout, choose_layout
from lur.parallel.mesh import replicated

LOG = logging.getLogger(__name__)
DEVICE_BYTES = 2**31
"""Larger stores stay on the host."""


def run(
    method: Method,
    state: ServerState,
    store: Store,
    *,
    rounds: int,
    clients_per_round: int | None = None,
    batch_size: int,
    seed: int = 0,
    view: View = as_stored,
    layout: str | Layout = "auto",
    epochs: int | None = None,
    steps: Steps = None,
    weighting: Literal["uniform", "examples"] = "uniform",
    sampling: Sampling = "uniform",
    probabilities: Float[ArrayLike, "N"] | None = None,
    data: Resident | Literal["host"] | None = None,
    capacity: int | None = None,
    donate: bool = False,
) -> tuple[ServerState, RoundInfo]:
    """Run rounds ``state.round, state.round + 1, ...`` of a local update method over a store.

    Args:
      method: a local update method, such as ``lur.local_update(...)``.
      state: its state; `state.round` is the next round.
      store: the clients' examples; `lur.data.in_memory` makes a store from arrays.
      rounds: R, the number of rounds, all in one compiled call.
      clients_per_round: M; may be left out with ``sampling="full"``.
      batch_size: B.
      seed: together with the round it determines clients, mini-batches and augmentation.
      view: ``view(key, examples) -> batch``, what the loss sees of a mini-batch of stored examples.
      layout: of the clients axis, see `lur.parallel.layouts`. ``auto`` suits the machine, the model and M; the choice
        and its reason are logged (`logging`, level INFO).
      epochs: E; instead of drawing with replacement, each client goes E times through its shuffled data. The loss must
        then take the mean over the examples in ``batch["mask"]``, of shape (B,), and theta must have
        K = ceil(E n_max / B) weights. Clients with fewer examples take fewer steps.
      steps: K_i, the number of local steps that client i takes: an array of N integers from 1 to K, one per client of
        the store, or a tuple (low, high), from which each client draws its K_i uniformly in every round; None is K for
        all. With K_i Theta must have equal weights, and `epochs`, which decide K_i themselves, must be None.
      weighting: whether the clients' updates are weighted uniformly, as in the paper, or by their numbers of examples.
      sampling: how the clients I_t of a round are drawn. ``uniform``: M distinct clients, every set equally likely.
        ``iid``: M clients independently of each other, so that one may occur several times; not for methods whose
        clients keep a state. ``full``: all N clients, in order. ``cyclic``: the clients tM, ..., tM + M - 1 modulo N in
        round t, counted from 0.
      probabilities: p, N numbers that sum to 1, with which ``iid`` draws each client; 1/N each by default. The uniform
        mean over the cohort is then an unbiased estimate of the sum of p_i u_i over all clients, with u_i the update of
        client i. With p_i proportional to the clients' numbers of examples that is the mean weighted by examples;
        weighting="examples" as well would count them twice.
      data: `lur.data.gather.resident(store)`, if several calls share it, or ``host`` to leave the store on the host and
        read ahead. By default stores below `DEVICE_BYTES` move to the device. With several processes each process
        reads the examples of its own clients on the host, after all have compared what they run.
      capacity: the largest number of rounds of any call, so that calls with fewer rounds share one compiled program;
        by default the next power of two.
      donate: let the result reuse the memory of `state`, which then cannot be used again.

    Returns:
      The state after R rounds, and the rounds' `RoundInfo`, each field with a leading axis R.
    """
    rounds = checked_rounds(rounds)
    keep_compiled()
    plan = plan_sampling(
        store,
        method,
        clients_per_round,
        batch_size,
        epochs,
        weighting,
        steps=steps,
        sampling=sampling,
        probabilities=probabilities,
    )
    choice = choose_layout(state.params, plan.M, layout)
    LOG.info("layout %s: %s", choice.layout, choice.reason)
    form = choose_form(method, state.params, state.client_lr)
    LOG.info("form %s: %s", form.name, form.reason)
    check_client_states(state.clients, plan.N)
    check_kept_states(plan, state.clients)
    check_state(method, state)
    check_data(data, store)
    is_large = data is None and size_in_bytes(store) > DEVICE_BYTES
    if jax.process_count() > 1 or is_large or is_on_host(state.clients):
        data = "host"
    capacity = max(rounds, capacity or 1 << (rounds - 1).bit_length())
    program = Rounds(form.method, plan, view, choice.layout, capacity)
    if jax.process_count() > 1:
        check_agreement(describe_run(program, state, store, seed, rounds))
    if data is None:
        data = resident(store, replicated(choice.layout))
    return advance(program, state, store, data, checked_seed(seed), rounds, donate=donate)


def check_state(method: Method, state: ServerState) -> None:
    """Refuse the state of another method, whose optimiser or decay would go on with numbers that mean something else.

    Client states are left out: those of a large population are on the host.
    """
    rates = (state.client_lr, state.server_lr)
    model = jax.eval_shape(lambda state: method.model(state), state)  # JAX keeps weak references, which tuples lack
    expected = jax.eval_shape(lambda params, *rates: method.init_server(params, *rates), model, *rates)
    _checks.state_of_method(expected._replace(clients=()), state._replace(clients=()))


def check_data(data: Any, store: Store) -> None:
    """Refuse data that are neither "host" nor a copy of the store in device memory.

    Of a copy the features, the clients' sizes and some examples are compared with the store, not all of them.
    """
    if data is None or (isinstance(data, str) and data == "host"):
        return
    if not isinstance(data, Resident):
        raise ValueError(f"data must be None, 'host' or lur.data.gather.resident(store), got {data!r}")
    rows = np.unique(np.linspace(0, store.examples - 1, 16).astype(np.int64))
    copied = {name: np.asarray(value) for name, value in gather(data.features, store.widths, jnp.asarray(rows)).items()}
    own = gather(dict(store.features), store.widths, rows)
    if not (
        np.array_equal(data.offsets, store.offsets)
        and copied.keys() == own.keys()
        and all(np.array_equal(copied[name], jnp.asarray(value), equal_nan=True) for name, value in own.items())
    ):
        raise ValueError("data must be a copy of this store, lur.data.gather.resident(store), got that of another one")


def checked_rounds(rounds: int) -> int:
    """Return the number of rounds, a positive integer."""
    if isinstance(rounds, bool) or int(rounds) != rounds or rounds < 1:
        raise ValueError(f"rounds must be an integer >= 1, got {rounds!r}")
    return int(rounds)


def checked_seed(seed: int) -> np.uint32:
    """Return a seed, an integer of 32 bits."""
    return _checks.seed("seed", seed)
