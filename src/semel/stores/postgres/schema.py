"""The schema: making it, recognising it, bringing it up to date while others work with it.

A migration first adds (expand) and a later one takes away (contract), so that old and new versions of Semel
run side by side. Each says the oldest schema whose Semel can go on working with it; only an older
Semel refuses to open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from semel.errors import OpenError, StoreCorrupt
from semel.kernel.clock import SYSTEM, Clock
from semel.stores.postgres import statements as sql
from semel.stores.postgres.packing import binary, text
from semel.stores.postgres.statements import Migration
from semel.stores.postgres.trouble import Failure
from semel.stores.postgres.wire import PostgresConnection

# What came with it: the steps' own needs, and five years of support.
OLDEST_SERVER = 140_000

# An index on a large table takes its time; whoever opens meanwhile waits for it.
_MIGRATION_S = 300.0

# How long a migration waits for a lock before it lets everyone through and tries again: shorter than the
# server takes to find a deadlock (1 s), so that no call becomes a victim of one with us.
_IN_THE_WAY_S = 0.2

_NO_TABLE, _NO_SCHEMA = "42P01", "3F000"
_LOCKED, _DEADLOCK = "55P03", "40P01"

_KEY_BYTES, _ID_BYTES = 32, 16


class Identity(NamedTuple):
    """Whose records these are, and how far their history has come."""

    store_id: bytes
    secret_key: bytes
    newest_event: int
    newest_commit: int


def prepare(link: PostgresConnection, schema: str, clock: Clock, migrations: Sequence[Migration]) -> None:
    """The schema is there, and this Semel can work with it."""
    if link.server_version < OLDEST_SERVER:
        raise OpenError(
            f"PostgreSQL {link.server_version // 10_000} is too old; nothing was created.",
            corrective_action="Use PostgreSQL 14 or newer.",
        )
    if _version(link, schema, len(migrations)) < len(migrations):
        _migrate(link, schema, clock, migrations)


def _version(link: PostgresConnection, schema: str, newest: int) -> int:
    """The schema's version, 0 if there is none; OpenError if it is another's, or too new for us."""
    try:
        meta: dict[str, bytes] = dict(link.run(sql.READ_META))
    except Failure as failure:
        if absent(failure):
            return 0
        raise
    try:
        version, works_with = int(meta["version"]), int(meta["works_with"])
    except (KeyError, ValueError):
        raise OpenError(
            f"The schema {schema} holds tables of another application; nothing was changed.",
            corrective_action="Name another one with ?schema=.",
        ) from None
    if works_with > newest:
        raise OpenError(
            f"The schema {schema} has version {version}, which needs a Semel that knows {works_with}; "
            f"this one knows up to {newest}. Nothing was changed.",
            corrective_action="Upgrade semel.",
        )
    return version


def _migrate(link: PostgresConnection, schema: str, clock: Clock, migrations: Sequence[Migration]) -> None:
    """The newest schema, in one transaction: afterwards all of it is there, or none."""
    usual_s, link.timeout_s = link.timeout_s, _MIGRATION_S
    give_up = SYSTEM.monotonic() + _MIGRATION_S
    try:
        while not _migrated(link, schema, clock, migrations, SYSTEM.monotonic() > give_up):
            SYSTEM.sleep(_IN_THE_WAY_S * (1 + SYSTEM.random()))
    finally:
        link.timeout_s = usual_s


def _migrated(
    link: PostgresConnection, schema: str, clock: Clock, migrations: Sequence[Migration], last_try: bool
) -> bool:
    """Whether it is done; False if those who work with the tables were in the way."""
    link.script("BEGIN")
    try:
        link.script(
            f"SET LOCAL statement_timeout = {int(_MIGRATION_S * 1000)}; "
            f"SET LOCAL lock_timeout = {int(_IN_THE_WAY_S * 1000)}"
        )
        link.run(sql.LOCK_SCHEMA, (text(schema),))
        if link.run(sql.FIND_SCHEMA, (text(schema),)) == [(0,)]:
            link.script(f"CREATE SCHEMA {quoted(schema)}")
        _bring_up(link, schema, clock, migrations)
        link.script("COMMIT")
    except Failure as failure:
        if not link.broken:
            link.script("ROLLBACK")
        if failure.code not in (_LOCKED, _DEADLOCK) or last_try:
            raise
        return False
    except BaseException:
        if not link.broken:
            link.script("ROLLBACK")
        raise
    return True


def _bring_up(link: PostgresConnection, schema: str, clock: Clock, migrations: Sequence[Migration]) -> None:
    # Another process may have been quicker between our look and our lock.
    link.script("SAVEPOINT before_look")
    version = _version(link, schema, len(migrations))
    link.script("ROLLBACK TO before_look")
    for number, migration in enumerate(migrations[version:], version + 1):
        link.script(migration.text)
        for name, value in (("version", number), ("works_with", migration.works_with)):
            link.run(sql.WRITE_META, (text(name), binary(str(value).encode())))
    link.run(sql.WRITE_META, (text("store_id"), binary(clock.token())))
    link.run(sql.WRITE_META, (text("secret_key"), binary(clock.token() + clock.token())))


def absent(failure: Failure) -> bool:
    """Whether it failed because there are no such tables."""
    return failure.code in (_NO_TABLE, _NO_SCHEMA)


def identify(link: PostgresConnection) -> Identity:
    """Whose records these are; StoreCorrupt if they do not say."""
    ((store_id, secret_key, *newest),) = link.run(sql.IDENTIFY)
    if not (_is(store_id, _ID_BYTES) and _is(secret_key, _KEY_BYTES)):
        raise StoreCorrupt("The store's id or its secret key is missing or damaged; nothing was done.")
    return Identity(store_id, secret_key, *newest)


def _is(value: bytes | None, length: int) -> bool:
    return value is not None and len(value) == length


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
