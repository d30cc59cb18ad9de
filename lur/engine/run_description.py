"""What a process is about to run, as text that processes compare before the first round."""

from collections.abc import Mapping
from typing import Any

import jax

from lur.data.store import Store
from lur.data.store_cache import digest
from lur.engine.rounds import Rounds
from lur.parallel.agreement import array_text, describe, versions


def describe_program(program: Rounds, store: Store) -> dict[str, str]:
    """Return the method, what a round draws, the layout, the content of the store, and the versions."""
    method, plan, view, layout, _ = program
    found = describe("method", method) | describe("sampling", plan) | describe("view", view)
    content = digest(store)
    files = content if isinstance(content, Mapping) else {"content": content}
    data = {f"store {name}": str(checksum) for name, checksum in files.items()}
    return found | {"layout": str(layout)} | data | versions()


def describe_run(program: Rounds, state: Any, store: Store, seed: Any, rounds: int) -> dict[str, str]:
    """Return everything that the rounds of a call of `lur.run` depend on, with the content of the state."""
    leaves = jax.tree.leaves_with_path(state._replace(clients=()))
    arrays = {f"state{jax.tree_util.keystr(path)}": array_text(leaf) for path, leaf in leaves}
    return {"rounds": str(rounds), "seed": str(seed)} | arrays | describe_program(program, store)
