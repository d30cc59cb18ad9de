"""Stores from a user's own Python data: dicts, columns and data frames."""

import jax.numpy as jnp
import numpy as np
import pytest

import lur
from lur.data.ragged import Ragged
from lur.data.store_error import StoreError

X, Y = np.arange(12, dtype=np.float32).reshape(6, 2), np.arange(6, dtype=np.int32)
CLIENT = np.array([7, 10, 7, 9, 10, 7])
BY_CLIENT = {7: [0, 2, 5], 9: [3], 10: [1, 4]}


def check(store, ids=("7", "9", "10")):
    assert [store.id(i) for i in range(store.clients)] == [*ids]
    for id, examples in store.items():
        rows = BY_CLIENT[int(id)]
        np.testing.assert_array_equal(examples["x"], X[rows])
        np.testing.assert_array_equal(examples["y"], Y[rows])


def test_a_dict_with_integer_ids_and_jax_arrays():
    check(lur.data.in_memory({i: {"x": jnp.asarray(X[rows]), "y": Y[rows]} for i, rows in BY_CLIENT.items()}))


def test_columns_with_a_client_column():
    check(lur.data.from_columns({"x": X, "y": Y}, CLIENT))
    check(lur.data.from_columns({"x": jnp.asarray(X), "y": Y.tolist()}, jnp.asarray(CLIENT)))
    check(lur.data.from_columns({"x": X, "y": Y}, [str(i) for i in CLIENT]), ("10", "7", "9"))


def test_text_columns():
    store = lur.data.from_columns({"text": ["a", "bc", "", "d", "e", "f"]}, CLIENT)
    text = store.client(0)["text"]
    assert isinstance(text, Ragged)
    assert [*text.texts()] == [b"a", b"", b"f"]


class Frame:
    """What `from_frame` needs of a data frame: named columns that become arrays."""

    def __init__(self, **columns):
        self.columns, self.values = list(columns), columns

    def __getitem__(self, name):
        return self.values[name]


def objects(values):
    column = np.empty(len(values), object)
    for i, value in enumerate(values):
        column[i] = value
    return column


def test_a_frame_with_arrays_and_text_in_its_cells():
    store = lur.data.from_frame(
        Frame(writer=CLIENT, x=objects([*X]), y=Y, text=objects(["a", "bc", "", "d", "e", "f"])), client="writer"
    )
    check(store)
    text = store.client(2)["text"]
    assert isinstance(text, Ragged)
    assert [*text.texts()] == [b"bc", b"e"]


def test_a_pandas_frame():
    pandas = pytest.importorskip("pandas")
    check(lur.data.from_frame(pandas.DataFrame({"writer": CLIENT, "x": list(X), "y": Y}), client="writer"))


def test_it_prints_in_two_lines():
    store = lur.data.in_memory({"a": {"x": X, "t": [b""] * 5 + [b"abc"]}, "b": {"x": X[:1], "t": [b"d"]}})
    first, second = str(store).split("\n")
    assert first == "Store: 2 clients, 7 examples (1 to 6 per client)"
    assert second == "  x float32 (2,), t uint8 (up to 3)"


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        ({"x": X, "y": Y}, r"clients must be \{client: \{feature: array\}\} or such pairs, got a ndarray in the place"),
        ([X, Y], "got a ndarray in the place of a client's dict"),
        ("data", "or such pairs, got str"),
        (3, "or such pairs, got int"),
        ({1.5: {"x": X}}, "ids that are text or integers, got 1.5"),
        ({1: {"x": X}, "1": {"x": X}}, "expected each client once, found '1' twice"),
        ({"a": {"x": X}, "b": {"x": X.astype(np.float64)}}, "client 'b': expected the features"),
        ({"a": {"x": X}, "b": {"x": X[:0]}}, r"client 'b': expected equally many examples \(>= 1\)"),
        ({"a": {"x": 3.0}}, "the feature x: expected an array or a list of bytes, found float"),
        ({}, "expected at least one client, found none"),
    ],
)
def test_dicts_of_the_wrong_form_are_refused(clients, message):
    with pytest.raises(StoreError, match=message):
        lur.data.in_memory(clients)


@pytest.mark.parametrize(
    ("features", "client", "message"),
    [
        (X, CLIENT, "features must be a dict of columns by name, got ndarray"),
        ({"x": X[:5]}, CLIENT, "features must have one row per entry of client, 6, got 5 of x"),
        ({"x": X}, CLIENT.astype(float), "client must be a column of integers or text, .* got float64"),
        ({"x": X}, [["a"]], "client must be a column of integers or text"),
        ({"x": objects([1, "a", 2, 3, 4, 5])}, CLIENT, "the feature x: expected numbers, text, or arrays of one shape"),
    ],
)
def test_columns_of_the_wrong_form_are_refused(features, client, message):
    with pytest.raises(StoreError, match=message):
        lur.data.from_columns(features, client)


def test_a_frame_without_the_named_column_is_refused():
    with pytest.raises(StoreError, match="client must be a column of the frame, one of x, y, got 'writer'"):
        lur.data.from_frame(Frame(x=X, y=Y), client="writer")
