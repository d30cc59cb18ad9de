"""LEAF's JSON: round trips, faulty users and files."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lur.data.readers import leaf_json
from lur.data.store import StoreError
from tests.lur.data.readers import writers
from tests.lur.data.readers.clients import (
    IDS,
    assert_imported,
    random_clients,
    random_features,
    several,
    temporary_folder,
)


@several
@given(random_clients("emnist", "leaf", ids=IDS), st.integers(1, 3))
def test_round_trip(clients, files):
    with temporary_folder() as tmp:
        (tmp / "train").mkdir()
        names, expected = list(clients), {}
        for i in range(min(files, len(names))):
            part = {id: clients[id] for id in names[i :: min(files, len(names))]}
            expected |= part
            writers.leaf_json(tmp / "train" / f"all_data_{i}.json", part)
        assert leaf_json.count(tmp / "train") == len(clients)
        assert_imported(tmp / "store", leaf_json.clients(tmp / "train"), expected)


PIXEL = [0.5] * 784
FAULTY = {
    "nan": ("[NaN]", "finite"),
    "infinity": ("[-Infinity]", "finite"),
    "too large": (json.dumps([[1e39, *PIXEL[1:]]]), "finite"),
    "overflow": (json.dumps([PIXEL]).replace("0.5", "1e999", 1), "finite"),
    "huge integer": ("[" + "9" * 5000 + "]", "JSON"),
    "large integer": (json.dumps([[10**400, *PIXEL[1:]]]), "numbers"),
    "deep": ("[" * 100000, "JSON"),
    "deep and closed": ("[" * 900 + "]" * 900, "numbers"),
    "short": (json.dumps([PIXEL[1:]]), "784"),
    "unequal": (json.dumps([PIXEL, [0.5]]), "equally"),
    "text among numbers": (json.dumps([["0.5", *PIXEL[1:]]]), "numbers"),
    "short text": ('["abc"]', "80 characters"),
    "text and numbers": (json.dumps(["a" * 80, PIXEL]), "equally"),
    "surrogates": (json.dumps(["\ud800" * 80]), "Unicode"),
    "no list": ("{}", "lists"),
    "empty": ("[]", "lists"),
    "cut": ("[[0.5", "JSON"),
}


@pytest.mark.parametrize("case", FAULTY)
def test_a_faulty_user_is_named(tmp_path, case):
    x, what = FAULTY[case]
    y = '["a"]' if case in ("short text", "surrogates") else "[0, 1]" if case == "unequal" else "[0]"
    path = tmp_path / "a.json"
    path.write_text(f'{{"users": ["bad"], "num_samples": [1], "user_data": {{"bad": {{"x": {x}, "y": {y}}}}}}}')
    with pytest.raises(StoreError) as error:
        list(leaf_json.clients(path))
    assert str(path) in str(error.value)
    assert what in str(error.value) or "lists x and y" in str(error.value)
    assert "client 'bad'" in str(error.value)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"num_samples": [2]}, "expected 2 examples"),
        ({"num_samples": [True]}, "expected True examples"),
        ({"num_samples": [1, 1]}, "as many `num_samples`"),
        ({"num_samples": None}, "as many `num_samples`"),
        ({"users": ["b"]}, "its examples"),
        ({"users": [1]}, "list of names"),
        ({"users": ["a", "a"], "num_samples": [1, 1]}, "2 different users"),
        ({"users": [], "num_samples": []}, "0 different users"),
        ({"user_data": []}, "expected '{'"),
        ({"user_data": {"a": {"x": [PIXEL], "y": [62]}}}, "labels 0..61"),
        ({"user_data": {"a": {"x": [PIXEL], "y": [0.5]}}}, "integers"),
        ({"user_data": {"a": {"x": [PIXEL], "y": [None]}}}, "numbers"),
    ],
)
def test_an_inconsistent_file_is_refused(tmp_path, change, what):
    path = tmp_path / "a.json"
    sound = {"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": [PIXEL], "y": [0]}}}
    path.write_text(json.dumps(sound | change))
    with pytest.raises(StoreError, match="expected") as error:
        list(leaf_json.clients(path))
    assert str(path) in str(error.value)
    assert what in str(error.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"users": []} x', '{"users": [], "users": []}', '{"a" 1}', "{1: 2}"])
def test_json_that_is_not_leaf_is_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(StoreError, match=r"a\.json: expected"):
        list(leaf_json.clients(tmp_path))


def test_a_user_that_occurs_twice_is_refused(tmp_path):
    """In two files, and in one."""
    one = {"bad": random_features("leaf", 1, np.random.default_rng(0))}
    for i in (0, 1):
        writers.leaf_json(tmp_path / f"all_data_{i}.json", one)
    with pytest.raises(StoreError, match=r"client 'bad': expected each client once"):
        list(leaf_json.clients(tmp_path))
    user = json.dumps({"x": ["a" * 80], "y": ["b"]})
    path = tmp_path / "b.json"
    path.write_text(f'{{"users": ["bad"], "num_samples": [1], "user_data": {{"bad": {user}, "bad": {user}}}}}')
    with pytest.raises(StoreError, match=r"client 'bad': expected each user once"):
        list(leaf_json.clients(path))
