"""Dependencies point one way: which room may import which, held against the import graph of the source."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOUNDATIONS = {
    "lur._checks": set(),
    "lur._extras": set(),
    "lur._version": set(),
    "lur.cache_folder": set(),
    "lur.jax_setup": {"lur.cache_folder"},
    "lur.plots": {"lur._extras"},
    "lur.printable_text": set(),
    "lur.regular_files": set(),
    "lur.theta": set(),
}
ROOMS = FOUNDATIONS | {
    "lur.explorer": set(),
    "lur.parallel": set(),
    "lur.methods": {"lur._checks", "lur._extras", "lur.theta", "lur.parallel"},
    "lur.data": {"lur._extras", "lur.cache_folder", "lur.regular_files"},
    "lur.models": {"lur._extras", "lur.parallel"},
    "lur.engine": {"lur._checks", "lur.jax_setup", "lur.theta", "lur.methods", "lur.parallel", "lur.data"},
    "lur.tasks": {"lur._checks", "lur._extras", "lur.data", "lur.models", "lur.engine"},
    "lur.training": {
        "lur._checks",
        "lur._extras",
        "lur.regular_files",
        "lur.theta",
        "lur.methods",
        "lur.parallel",
        "lur.data",
        "lur.engine",
        "lur.tasks",
    },
    "lur.runs": {*FOUNDATIONS, "lur.methods", "lur.parallel", "lur.data", "lur.tasks", "lur.training"},
    "lur.analysis": {*FOUNDATIONS, "lur.methods", "lur.data", "lur.engine", "lur.tasks"},
    "theory": set(),
    "theory.claims": {"theory"},
    "theory.trials": {"theory", "theory.claims"},
    "theory.reports": {"theory", "theory.claims", "theory.trials"},
}
"""What each room may import besides itself and other distributions' packages."""
LIBRARY = {room for room in ROOMS if room.startswith("lur.")}
ROOMS["benchmarks"] = LIBRARY | {"lur", "theory", "theory.claims", "theory.trials", "theory.reports"}
ROOMS["lur.cli"] = LIBRARY | {"lur", "theory", "theory.claims", "theory.trials", "theory.reports", "benchmarks"}
ROOMS["lur"] = {*ROOMS, "lur.cli"}  # the door: public names by attribute, and `python -m lur`
HEAVY = ("flax", "h5py", "matplotlib", "orbax", "sklearn", "tensorflow_datasets", "tyro", "rich")


def room_of(module):
    """The longest room that a module name lies in."""
    return max((room for room in ROOMS if module == room or module.startswith(f"{room}.")), key=len)


def modules():
    for package in ("lur", "theory", "benchmarks"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


MODULES = dict(modules())


def imports_of(path):
    """Modules of this repository that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            while name and name not in MODULES:
                name = name.rpartition(".")[0]
            if name:
                yield name


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_it_may(room):
    edges = {
        (module, name)
        for module, path in MODULES.items()
        if room_of(module) == room
        for name in imports_of(path)
        if room_of(name) not in ROOMS[room] | {room}
    }
    assert not edges


def test_no_two_rooms_import_each_other():
    def reachable(room, seen=()):
        return set().union(*({other} | reachable(other, (*seen, room)) for other in ROOMS[room] if other not in seen))

    assert [room for room in ROOMS if room not in ("lur", "benchmarks", "lur.cli") and room in reachable(room)] == []


def test_no_module_name_occurs_in_two_rooms():
    names = {}
    for module in MODULES:
        if module.startswith("lur.") and not (ROOT / module.replace(".", "/")).is_dir():
            names.setdefault(module.rpartition(".")[2], set()).add(room_of(module))
    assert {name: rooms for name, rooms in names.items() if len(rooms) > 1} == {}


def test_no_file_is_longer_than_400_lines():
    tables = {"tests/theory/published_paper.py", "tests/theory/published_beyond.py"}
    long = {
        str(path.relative_to(ROOT)): count
        for folder in ("lur", "theory", "benchmarks", "tests", "website", "colab")
        for path in (ROOT / folder).rglob("*.py")
        if (count := len(path.read_text().splitlines())) > 400
    }
    assert {name: count for name, count in long.items() if name not in tables} == {}


def test_algorithm_2_and_the_round_are_short():
    inner_loop = MODULES["lur.methods.inner_loop"].read_text()
    assert len(inner_loop.splitlines()) <= 150
    tree = ast.parse(MODULES["lur.methods.method"].read_text())
    (method_round,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "method_round"]
    assert method_round.end_lineno - method_round.lineno + 1 <= 20
