"""The vocabularies that come with Stack Overflow: words and tags with the number of users of each."""

import json
from pathlib import Path

from lur.data.readers.features import file_at
from lur.data.store import StoreError

LONGEST_LINE = 4096
LARGEST_FILE = 2**28


def word_count(path: Path, size: int) -> list[str]:
    """The first `size` words of ``stackoverflow.word_count``: lines ``word count``, already in order of frequency."""
    words: dict[str, None] = {}
    with file_at(path, "a file of words and counts").open("rb") as file:
        while len(words) < size and (line := file.readline(LONGEST_LINE)):
            where = f"{path}, line {len(words) + 1}"
            try:
                parts = line.decode().split()
            except UnicodeDecodeError as error:
                raise StoreError(f"{where}: expected UTF-8 text, {error}") from error
            if len(parts) != 2 or not (parts[1].isascii() and parts[1].isdigit()):
                raise StoreError(f"{where}: expected a word and its count, found {line[:80]!r}")
            if parts[0] in words:
                raise StoreError(f"{where}: expected each word once, found {parts[0][:80]!r} twice")
            words[parts[0]] = None
    if len(words) < size:
        raise StoreError(f"{path}: expected {size} words, found {len(words)}")
    return list(words)


def tag_count(path: Path, size: int) -> list[str]:
    """The `size` most frequent tags of ``stackoverflow.tag_count``, one JSON object; ties keep the file's order."""
    if (length := file_at(path, "a JSON object of tags and counts").stat().st_size) > LARGEST_FILE:
        raise StoreError(f"{path}: expected at most {LARGEST_FILE} bytes, found {length}")
    try:
        pairs = json.loads(path.read_bytes(), object_pairs_hook=tuple)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}: expected a JSON object, {error}") from error
    if not isinstance(pairs, tuple):
        raise StoreError(f"{path}: expected a JSON object of tags and counts, found a {type(pairs).__name__}")
    for tag, number in pairs:
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise StoreError(f"{path}, tag {tag[:80]!r}: expected a count, found {str(number)[:80]}")
    tags = [tag for tag, _ in sorted(pairs, key=lambda pair: -pair[1])]
    if len(set(tags)) != len(tags):
        raise StoreError(f"{path}: expected each tag once, found {len(tags) - len(set(tags))} repeated")
    if len(tags) < size:
        raise StoreError(f"{path}: expected {size} tags, found {len(tags)}")
    return tags[:size]
