"""The vocabularies that come with Stack Overflow: words and tags, each with the number of its users."""

import json
from pathlib import Path

from lur.data.readers.features import existing_file
from lur.data.store import StoreError

MAX_LINE_BYTES = 4096
MAX_FILE_BYTES = 2**28


def word_count(path: Path, size: int) -> list[str]:
    """Return the first `size` words of ``stackoverflow.word_count``: lines ``word count``, most frequent first."""
    words: dict[str, None] = {}
    with existing_file(path, "a file of words and counts").open("rb") as file:
        while len(words) < size and (line := file.readline(MAX_LINE_BYTES)):
            location = f"{path}, line {len(words) + 1}"
            try:
                parts = line.decode().split()
            except UnicodeDecodeError as error:
                raise StoreError(f"{location}: expected UTF-8 text, {error}") from error
            if len(parts) != 2 or not (parts[1].isascii() and parts[1].isdigit()):
                raise StoreError(f"{location}: expected a word and its count, found {line[:80]!r}")
            if parts[0] in words:
                raise StoreError(f"{location}: expected each word once, found {parts[0][:80]!r} twice")
            words[parts[0]] = None
    if len(words) < size:
        raise StoreError(f"{path}: expected {size} words, found {len(words)}")
    return list(words)


def tag_count(path: Path, size: int) -> list[str]:
    """Return the `size` most frequent tags of ``stackoverflow.tag_count``, a JSON object; ties keep its order."""
    if (length := existing_file(path, "a JSON object of tags and counts").stat().st_size) > MAX_FILE_BYTES:
        raise StoreError(f"{path}: expected at most {MAX_FILE_BYTES} bytes, found {length}")
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
