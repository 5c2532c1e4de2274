"""The same durable writes with plain sqlite3, as somebody would write them who needs nothing else.

Keys and tokens are made before the clock starts, and nothing is validated: what is left is what SQLite takes.
"""

from __future__ import annotations

import hashlib
import sqlite3
from time import perf_counter

import semel
from bench.workload import refund
from semel.kernel import owner
from semel.kernel.clock import SYSTEM

TERMS = refund.contract.terms
LEASE_US, WINDOW_US = refund.contract.lease_us, refund.contract.window_us

CLAIM = """
INSERT INTO semel_records (
    tenant, scope, key, id, tool, version, fingerprint, arguments, terms, conversation, step, principal,
    job_id, state, token, fence, attempts, entries, created_at, entered_at, lease_until, due, note, by_whom
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
SETTLE = (
    "UPDATE semel_records "
    "SET state = 'done', lease_until = NULL, settled_at = ?, expires_at = ?, outcome = ? "
    "WHERE tenant = ? AND scope = ? AND key = ? AND token = ? AND state = 'pending'"
)
NOTE = "INSERT INTO semel_events VALUES (NULL, " + ", ".join("?" * 17) + ")"
SELECT = "SELECT * FROM semel_records WHERE tenant = ? AND scope = ? AND key = ?"

ARGUMENTS = b'{"amount_minor":1400000,"payment_id":"p-000000","reason":"damaged"}'
OUTCOME = b'{"refund_id":"p-000000"}'
FINGERPRINT, DIGEST = hashlib.sha256(ARGUMENTS).digest(), hashlib.sha256(OUTCOME).digest()


def connect(path: str) -> sqlite3.Connection:
    """A connection that commits as durably as the store does by default."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def create(path: str) -> sqlite3.Connection:
    """A database with the tables and indexes of the store, which makes them and does nothing else here."""
    semel.open(f"sqlite:///{path}").close()
    return connect(path)


def key_of(number: int) -> str:
    """Spread over the index as the keys of a ledger are."""
    return hashlib.sha256(number.to_bytes(8, "big")).hexdigest()


class ClaimAndSettle:
    """A transaction that claims and one that settles, each with its event: what a guarded call writes."""

    name = "by hand"

    def __init__(self, path: str) -> None:
        self.connection = create(path)
        self._made = 0

    def round(self, count: int) -> float:
        numbers = range(self._made, self._made + count)
        self._made += count
        work = [(key_of(number), f"rec_{SYSTEM.token().hex()}", owner.token(SYSTEM)) for number in numbers]
        began = perf_counter()
        for key, id_, token in work:
            fence = self._claim(key, id_, token)
            self._settle(key, id_, token, fence)
        return (perf_counter() - began) / count

    def _claim(self, key: str, id_: str, token: bytes) -> int:
        now, execute = SYSTEM.now_us(), self.connection.execute
        execute("BEGIN IMMEDIATE")
        execute(CLAIM, claimed(key, id_, token, now))
        execute(NOTE, noted(key, id_, "claimed", "pending", now, now, FINGERPRINT, None))
        execute("COMMIT")
        return now  # the fence too, of a key's first claim

    def _settle(self, key: str, id_: str, token: bytes, fence: int) -> None:
        now, execute = SYSTEM.now_us(), self.connection.execute
        execute("BEGIN IMMEDIATE")
        execute(SETTLE, (now, now + WINDOW_US, OUTCOME, "default", "tool", key, token))
        execute(NOTE, noted(key, id_, "settled", "done", now, fence, DIGEST, now + WINDOW_US))
        execute("COMMIT")

    def did(self) -> dict[str, int]:
        return counted(self.connection)

    def close(self) -> None:
        self.connection.close()


def claimed(key: str, id_: str, token: bytes, now: int) -> tuple[object, ...]:
    return (
        "default", "tool", key, id_, "refund", "2.1.0", FINGERPRINT, ARGUMENTS, TERMS, "conv-42",
        '["refund-1"]', "support-bot", "", "pending", token, now, 1, 1, now, now, now + LEASE_US,
        now + LEASE_US, "", "",
    )  # fmt: skip


def noted(
    key: str, id_: str, kind: str, state: str, now: int, fence: int, digest: bytes, expires_at: int | None
) -> tuple[object, ...]:
    return (
        now, "default", "tool", key, id_, kind, state, fence, "refund", "2.1.0", digest, expires_at,
        "conv-42", '["refund-1"]', "support-bot", "", 1,
    )  # fmt: skip


class RawSelect:
    """The row of one key, read by its index; nothing is made of it."""

    name = "raw SELECT"

    def __init__(self, path: str, keys: list[str]) -> None:
        self.connection = connect(path)
        self._keys = keys
        self._read = 0

    def round(self, count: int) -> float:
        execute, rows = self.connection.execute, 0
        addresses = [("default", "tool", self._keys[i % len(self._keys)]) for i in range(count)]
        began = perf_counter()
        for address in addresses:
            rows += execute(SELECT, address).fetchone() is not None
        took = perf_counter() - began
        self._read += rows
        return took / count

    def did(self) -> dict[str, int]:
        return {"rows read": self._read}

    def close(self) -> None:
        self.connection.close()


def counted(connection: sqlite3.Connection) -> dict[str, int]:
    """Settled records, and the events that say so."""
    records = connection.execute("SELECT count(*) FROM semel_records WHERE state = 'done'").fetchone()[0]
    events = connection.execute("SELECT count(*) FROM semel_events WHERE kind <> 'dedup_hit'").fetchone()[0]
    return {"settled": records, "events": events}
