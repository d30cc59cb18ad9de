"""`tf.train.Example`: protobuf agrees, unknown fields are skipped, malformed bytes are refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lur.data.readers import example_proto
from tests.lur.data.readers import writers
from tests.lur.data.readers.clients import several


def test_protobuf_agrees():
    pb2 = pytest.importorskip("tensorflow_datasets.proto.tf_example_generated_pb2")
    rng = np.random.default_rng(0)
    for packed in (True, False):
        ours = {
            "floats": rng.random(7, np.float32),
            "ints": np.array([0, -1, 127, 128, 2**63 - 1, -(2**63)]),
            "text": b"\xff\0",
        }
        theirs = pb2.Example.FromString(writers.example(ours, packed=packed))
        assert list(theirs.features.feature["floats"].float_list.value) == ours["floats"].tolist()
        assert list(theirs.features.feature["ints"].int64_list.value) == ours["ints"].tolist()
        found = example_proto.decode(theirs.SerializeToString())
        np.testing.assert_array_equal(found["floats"], ours["floats"])
        np.testing.assert_array_equal(found["ints"], ours["ints"])
        assert found["text"] == [b"\xff\0"]


@several
@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.lists(st.floats(width=32, allow_nan=False)), st.booleans())
def test_numbers_round_trip(ints, floats, packed):
    proto = writers.example({"i": np.array(ints, np.int64), "f": np.array(floats, np.float32)}, packed=packed)
    found = example_proto.decode(proto)
    assert np.asarray(found["i"]).tolist() == ints
    assert np.asarray(found["f"]).tolist() == floats
    assert [np.asarray(found[name]).dtype for name in "if"] == [np.int64, np.float32]


def test_unknown_fields_are_skipped():
    """Unknown fields of every wire type, groups among them; a repeated key replaces, separate parts are merged."""
    unknown = b"\x50\x01" + b"\x51" + bytes(8) + writers.field(10, b"x") + b"\x55" + bytes(4) + b"\x53\x08\x01\x54"
    values = writers.field(1, b"\x01") + b"\x08\x02" + unknown
    entry = writers.field(1, b"k") + writers.field(2, writers.field(3, values) + unknown) + unknown
    old = writers.field(1, b"k") + writers.field(2, writers.field(1, b""))
    message = writers.field(1, writers.field(1, old) + unknown) + unknown + writers.field(1, writers.field(1, entry))
    assert np.asarray(example_proto.decode(message)["k"]).tolist() == [1, 2]


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\x05abc",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x80" * 11,
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
        b"\x02\x00",
        b"\x0b",
        b"\x0c",
        b"\x0b\x14",
        b"\x0e",
        b"\x09abc",
        b"\x0dab",
        writers.field(1, writers.field(1, writers.field(1, b"\xff"))),
        writers.field(1, writers.field(1, writers.field(1, b"k"))),
        writers.field(1, writers.field(1, writers.field(2, writers.field(2, writers.field(1, b"abc"))))),
        writers.field(1, writers.field(1, writers.field(2, writers.field(3, writers.field(1, b"\x01\x80"))))),
        writers.field(1, writers.field(1, writers.field(2, writers.field(3, writers.field(1, b"\xff" * 10 + b"\1"))))),
        writers.field(1, writers.field(1, writers.field(2, writers.field(3, writers.field(1, b"\xff" * 9 + b"\2"))))),
    ],
)
def test_malformed_bytes_are_refused(data):
    with pytest.raises(example_proto.MalformedExampleError):
        example_proto.decode(data)
