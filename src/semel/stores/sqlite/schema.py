"""The database file: making it, recognising it, bringing it up to date."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence

from semel.clock import Clock
from semel.errors import OpenError, StoreCorrupt
from semel.stores.sqlite import place, statements, trouble
from semel.stores.sqlite.connection import Durability, connect, patiently

# "Seml": what `file` and other programs see at byte 68 of the database.
APPLICATION_ID = 0x53656D6C

# RETURNING came with it.
OLDEST_SQLITE = (3, 35, 0)

_SECRET_KEY_BYTES = 32


def open_database(
    path: str, durability: Durability, clock: Clock, busy_s: float, schemas: Sequence[str]
) -> tuple[sqlite3.Connection, bytes]:
    """A connection to a database of the newest schema, made if there was none, and the store's secret key."""
    _refuse_impossible(path)
    place.refuse(path)
    place.make_private(path)
    try:
        place.refuse_lost_log(path, busy_s)
        connection = connect(path, durability, busy_s)
        try:
            patiently(lambda: _prepare(connection, path, clock, schemas), busy_s)
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


def _prepare(connection: sqlite3.Connection, path: str, clock: Clock, schemas: Sequence[str]) -> None:
    # In one transaction: another process may make the schema between one look and the next.
    connection.execute("BEGIN")
    try:
        recognise(connection, path, len(schemas))
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    _use_write_ahead_log(connection, path)
    if version(connection) < len(schemas):
        migrate(connection, path, clock, schemas)


def recognise(connection: sqlite3.Connection, path: str, newest: int) -> None:
    """Raises OpenError unless the file is empty or ours, and not newer than we are."""
    application, found = _number(connection, "application_id"), version(connection)
    if application == 0 and found == 0 and connection.execute(statements.COUNT_TABLES).fetchone()[0] == 0:
        return
    if application != APPLICATION_ID:
        raise OpenError(
            f"{path} is a database of another application; nothing was changed.",
            corrective_action="Name another file.",
        )
    if found > newest:
        raise OpenError(
            f"{path} has schema {found}, this Semel knows schemas up to {newest}; nothing was changed.",
            corrective_action="Upgrade semel to at least the release that wrote it.",
        )


def _use_write_ahead_log(connection: sqlite3.Connection, path: str) -> None:
    if journal_mode(connection) == "wal":
        return
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise OpenError(
            f"{path} cannot have a write-ahead log here (journal mode {mode}): processes could not share it.",
            corrective_action="Put the file on a local disk: network file systems lack what the log needs.",
        )


def migrate(connection: sqlite3.Connection, path: str, clock: Clock, schemas: Sequence[str]) -> None:
    """The newest schema, in one transaction: afterwards all of it is there, or none."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have been quicker between our look and our lock.
        recognise(connection, path, len(schemas))
        for number, script in enumerate(schemas[version(connection) :], version(connection) + 1):
            for sql in _statements_of(script):
                connection.execute(sql)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(statements.WRITE_META, ("secret_key", clock.token() + clock.token()))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


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
    return _number(connection, "user_version")


def journal_mode(connection: sqlite3.Connection) -> str:
    return str(connection.execute("PRAGMA journal_mode").fetchone()[0])


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])
