"""Property tests draw the same examples in every run, unless random ones are asked for."""

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ROOT


def drawn_examples():
    """Returns the integers and texts that a property test draws under the profile of the other tests."""
    examples = []

    @settings(settings.get_profile("fixed"))
    @given(st.integers(), st.text())
    def note(number, text):
        examples.append((number, text))

    note()
    return examples


def test_examples_do_not_depend_on_the_modules_imported_so_far(tmp_path, monkeypatch):
    """Hypothesis also draws constants that it finds in the project's modules, which workers import in any order."""
    before = drawn_examples()
    file = tmp_path / "constants.py"
    file.write_text(f"NUMBERS = {list(range(10**6, 10**6 + 500))}\nTEXTS = {[f'text {i}' for i in range(500)]}\n")
    spec = spec_from_file_location("constants_of_a_test", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "constants_of_a_test", module)
    assert drawn_examples() == before


@pytest.mark.parametrize(("options", "same"), [((), True), (("--hypothesis-profile=random",), False)])
def test_only_the_profile_random_draws_at_random(options, same):
    """In two processes each."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-s", *options]
    command += [f"{ROOT}/tests/noted_examples.py::test_note"]
    outputs = [subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True) for _ in range(2)]
    first, second = ([line for line in done.stdout.splitlines() if "drew" in line] for done in outputs)
    assert len(first) == len(second) == 100
    assert (first == second) is same
