"""Opening an untrusted SQLite file read-only, as data that cannot run code."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from lur.data.readers.features import existing_file
from lur.data.store import StoreError

MAGIC = b"SQLite format 3\0"


@contextmanager
def read_only_connection(path: Path, limit: int) -> Iterator[sqlite3.Connection]:
    """Yield a read-only connection that returns text as bytes and values of at most `limit` bytes.

    A file with changes beside it, in a write-ahead log or a rollback journal, is refused: read alone it would be short
    or half changed. The schema of a file is code: functions with side effects are disabled here, and `check_table`
    refuses views and virtual tables. SQLite's errors become StoreErrors.
    """
    with existing_file(path, "a SQLite file").open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise StoreError(f"{path}: expected a SQLite file, found another kind")
    check_no_changes_beside(path)
    try:
        uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(limit, 2**31 - 1))
            connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            connection.text_factory = bytes
            for pragma in ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON", "mmap_size=0"):
                connection.execute(f"PRAGMA {pragma}").close()
            yield connection
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter if SQLite's message quotes the file
        raise StoreError(f"{path}: expected a valid SQLite file, {error}") from error


def check_no_changes_beside(path: Path) -> None:
    """Raise a StoreError if SQLite has left changes of the file in another file next to it."""
    for suffix in ("-wal", "-journal"):
        beside = path.resolve().with_name(path.resolve().name + suffix)
        if beside.is_symlink() or (beside.exists() and not (beside.is_file() and beside.stat().st_size == 0)):
            raise StoreError(
                f"{path}: expected a SQLite file that is complete by itself, found {beside.name} with changes next "
                "to it; close the program that writes it, or run `PRAGMA wal_checkpoint(TRUNCATE)` on it"
            )


def check_table(connection: sqlite3.Connection, path: Path, table: str, columns: tuple[str, ...]) -> None:
    """Raise a StoreError unless there is such a table, neither a view nor virtual, with these stored columns."""
    rows = connection.execute("SELECT type, rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchall()
    if len(rows) != 1 or rows[0][0] != b"table" or not isinstance(rows[0][1], int) or rows[0][1] < 1:
        found = "something else of that name" if rows else "nothing of that name"
        raise StoreError(f"{path}: expected a table {table}, found {found}")
    hidden = {row[1]: row[6] for row in connection.execute(f"PRAGMA table_xinfo({table})")}
    if any(hidden.get(column.encode()) != 0 for column in columns):
        names = sorted(name.decode(errors="backslashreplace") for name in hidden)
        raise StoreError(f"{path}: expected the columns {', '.join(columns)} in the table {table}, found {names}")
