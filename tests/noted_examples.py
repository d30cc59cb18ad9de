"""A property test that prints what it draws; `test_reproducible_examples` runs it in processes of its own."""

from hypothesis import given
from hypothesis import strategies as st


@given(st.integers())
def test_note(number):
    print(f"\ndrew {number}")
