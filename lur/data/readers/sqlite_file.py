"""A SQLite file from elsewhere, opened so that it can only be read, and only as data."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from lur.data.readers.features import file_at
from lur.data.store import StoreError

MAGIC = b"SQLite format 3\0"


@contextmanager
def opened(path: Path, limit: int) -> Iterator[sqlite3.Connection]:
    """A read-only connection; text comes as bytes, a value is at most `limit` bytes.

    The schema of a file is code: functions with side effects are off, and `check_table` refuses views and virtual
    tables. What SQLite says of a broken file becomes a StoreError.
    """
    with file_at(path, "a SQLite file").open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise StoreError(f"{path}: expected a SQLite file, found another kind")
    try:
        uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(limit, 2**31 - 1))
            connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            connection.text_factory = bytes
            for pragma in ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON", "mmap_size=0"):
                connection.execute(f"PRAGMA {pragma}").close()
            yield connection
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter where SQLite quotes the broken file
        raise StoreError(f"{path}: expected a sound SQLite file, {error}") from error


def check_table(connection: sqlite3.Connection, path: Path, table: str, columns: tuple[str, ...]) -> None:
    """The table is there, is a table and not a view or virtual, and its columns are stored, not computed."""
    found = connection.execute("SELECT type, rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchall()
    if len(found) != 1 or found[0][0] != b"table" or not isinstance(found[0][1], int) or found[0][1] < 1:
        what = "nothing of that name" if not found else "something else of that name"
        raise StoreError(f"{path}: expected a table {table}, found {what}")
    hidden = {row[1]: row[6] for row in connection.execute(f"PRAGMA table_xinfo({table})")}
    if any(hidden.get(column.encode()) != 0 for column in columns):
        names = sorted(name.decode(errors="backslashreplace") for name in hidden)
        raise StoreError(f"{path}: expected the columns {', '.join(columns)} in the table {table}, found {names}")
