"""The vocabularies of Stack Overflow: word and tag counts."""

import pytest

from lur.data.readers import counts
from lur.data.store import StoreError


def test_word_count(tmp_path):
    path = tmp_path / "stackoverflow.word_count"
    path.write_text("the 10\nb 30\nc\t20\n")
    assert counts.word_count(path, 2) == ["the", "b"]
    assert counts.word_count(path, 3) == ["the", "b", "c"]
    with pytest.raises(StoreError, match="expected 4 words, found 3"):
        counts.word_count(path, 4)


@pytest.mark.parametrize("line", ["", "word", "word x", "word -1", "a b 1", "the 10", "x" * 5000 + " 1", "\udcff 1"])
def test_a_malformed_word_count_is_refused(tmp_path, line):
    path = tmp_path / "words"
    path.write_text(f"the 10\n{line}\nc 1\n", errors="surrogateescape")
    with pytest.raises(StoreError, match="words, line 2: expected"):
        counts.word_count(path, 3)


def test_tag_count(tmp_path):
    path = tmp_path / "stackoverflow.tag_count"
    path.write_text('{"a": 1, "b": 3, "c": 1, "d": 3, "e": 2}')
    assert counts.tag_count(path, 4) == ["b", "d", "e", "a"]
    with pytest.raises(StoreError, match="expected 6 tags, found 5"):
        counts.tag_count(path, 6)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "1",
        "[" * 10**5,
        '{"a": ' + "9" * 5000 + "}",
        '{"a": 1',
        '{"a": true}',
        '{"a": 1.5}',
        '{"a": -1}',
        '{"a": {}}',
        '{"a": NaN}',
        '{"a":1,"a":2}',
    ],
)
def test_a_malformed_tag_count_is_refused(tmp_path, text):
    path = tmp_path / "tags"
    path.write_text(text)
    with pytest.raises(StoreError, match=r"tags.*expected"):
        counts.tag_count(path, 1)
