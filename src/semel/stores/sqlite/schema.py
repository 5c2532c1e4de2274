"""The database file: making it, recognising it, bringing it up to date."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence

from semel.errors import OpenError, StoreCorrupt
from semel.kernel.clock import Clock
from semel.stores.sqlite import file_identity, statements, trouble
from semel.stores.sqlite.connection import Durability, connect, patiently

# "Seml": what `file` and other programs see at byte 68 of the database.
APPLICATION_ID = 0x53656D6C

# RETURNING came with it.
OLDEST_SQLITE = (3, 35, 0)

_SECRET_KEY_BYTES = 32


def open_database(
    path: str,
    durability: Durability,
    clock: Clock,
    busy_s: float,
    schemas: Sequence[str],
    *,
    shared: bool = False,
) -> tuple[sqlite3.Connection, bytes]:
    """A connection to a database of the newest schema, made if there was none, and the store's secret key.

    `shared`: the file may be an application's, beside whose tables Semel keeps its own.
    """
    _refuse_impossible(path)
    file_identity.refuse(path)
    file_identity.make_private(path)
    try:
        file_identity.refuse_lost_log(path, busy_s)
        connection = connect(path, durability, busy_s)
        try:
            patiently(lambda: _prepare(connection, path, clock, schemas, shared), busy_s)
            return connection, patiently(lambda: secret_key(connection), busy_s)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        refused = trouble.translated(error)
        raise type(refused)(
            f"{path}: {refused.message}", corrective_action=refused.corrective_action
        ) from error


def _refuse_impossible(path: str) -> None:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise OpenError(
            f"SQLite {sqlite3.sqlite_version} is too old; nothing was created.",
            corrective_action="Use a Python with SQLite 3.35 or newer.",
        )
    if not os.path.isdir(os.path.dirname(path)):
        raise OpenError(
            f"There is no directory {os.path.dirname(path)}; nothing was created.",
            corrective_action="Make it first, or name another file.",
        )
    if os.path.isdir(path):
        raise OpenError(
            f"{path} is a directory; nothing was created.", corrective_action="Name a file in it."
        )


def _prepare(
    connection: sqlite3.Connection, path: str, clock: Clock, schemas: Sequence[str], shared: bool
) -> None:
    # In one transaction: another process may make the schema between one look and the next.
    connection.execute("BEGIN")
    try:
        recognise(connection, path, len(schemas), shared=shared)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    _use_write_ahead_log(connection, path)
    if version(connection) < len(schemas):
        migrate(connection, path, clock, schemas, shared=shared)


def recognise(connection: sqlite3.Connection, path: str, newest: int, *, shared: bool = False) -> None:
    """Raises OpenError unless the file is empty, ours or shared with us, and not newer than we are."""
    present = version(connection)
    if not (_is_ours(connection) or shared or _is_empty(connection)):
        raise OpenError(
            f"{path} is a database of another application; nothing was changed.",
            corrective_action="Name another file, or add ?shared=yes to keep Semel's tables beside its own.",
        )
    if present == 0 and any(name.startswith("semel_") for name in _tables(connection)):
        raise OpenError(
            f"{path} has tables named semel_… that are not Semel's; nothing was changed.",
            corrective_action="Name another file.",
        )
    if present > newest:
        raise OpenError(
            f"{path} has schema {present}, this Semel knows schemas up to {newest}; nothing was changed.",
            corrective_action="Upgrade semel to at least the release that wrote it.",
        )


def _is_ours(connection: sqlite3.Connection) -> bool:
    return _number(connection, "application_id") == APPLICATION_ID


def _is_empty(connection: sqlite3.Connection) -> bool:
    numbers = _number(connection, "application_id"), _number(connection, "user_version")
    return numbers == (0, 0) and not _tables(connection)


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute(statements.TABLES).fetchall()}


def _use_write_ahead_log(connection: sqlite3.Connection, path: str) -> None:
    if journal_mode(connection) == "wal":
        return
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise OpenError(
            f"{path} cannot have a write-ahead log here (journal mode {mode}): processes could not share it.",
            corrective_action="Put the file on a local disk: network file systems lack what the log needs.",
        )


def migrate(
    connection: sqlite3.Connection, path: str, clock: Clock, schemas: Sequence[str], *, shared: bool = False
) -> None:
    """The newest schema, in one transaction: afterwards all of it is there, or none."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have been quicker between our look and our lock.
        recognise(connection, path, len(schemas), shared=shared)
        present, own = version(connection), _is_ours(connection) or not shared
        if present and "semel_records" not in _tables(connection):
            _run(connection, statements.RENAMING[:present])
        _run(connection, schemas[present:])
        if own:
            connection.execute(f"PRAGMA user_version = {len(schemas)}")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        else:
            connection.execute(statements.WRITE_VERSION, (b"%d" % len(schemas),))
        connection.execute(statements.WRITE_META, ("secret_key", clock.token() + clock.token()))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _run(connection: sqlite3.Connection, scripts: Sequence[str]) -> None:
    for script in scripts:
        for sql in _statements_of(script):
            connection.execute(sql)


def _statements_of(script: str) -> Iterator[str]:
    # executescript would commit first, and the schema has to come all at once.
    sql = ""
    for line in script.splitlines(keepends=True):
        sql += line
        if sqlite3.complete_statement(sql):
            yield sql
            sql = ""


def secret_key(connection: sqlite3.Connection) -> bytes:
    row = connection.execute(statements.READ_META, ("secret_key",)).fetchone()
    if row is None or not isinstance(row[0], bytes) or len(row[0]) != _SECRET_KEY_BYTES:
        raise StoreCorrupt("The store's secret key is missing or damaged; nothing was done.")
    return row[0]


def version(connection: sqlite3.Connection) -> int:
    """Of Semel's tables, 0 if there are none. In an application's file the file's own number is not ours."""
    if _is_ours(connection):
        return _number(connection, "user_version")
    if "semel_meta" not in _tables(connection):
        return 0
    row = connection.execute(statements.READ_META, ("schema",)).fetchone()
    return 0 if row is None else int(row[0])


def journal_mode(connection: sqlite3.Connection) -> str:
    return str(connection.execute("PRAGMA journal_mode").fetchone()[0])


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])
