"""The tools that are measured, and a history of any length to measure them on."""

from __future__ import annotations

import sqlite3
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum

from pydantic import BaseModel

from semel.call.declare import tool_contract
from semel.kernel.clock import SYSTEM
from semel.kernel.keys import Key
from semel.kernel.record import Address, CallRequest, Claim, Park
from semel.stores.base import SealEvents, Store

# What the tools did, so that a run can prove that it measured effects and not refusals. A list, because
# appending is safe from any thread.
effects: list[str] = []


@tool_contract(
    name="refund",
    version="2.1.0",
    class_="write-non-idempotent",
    value="high",
    ignore=("reason",),
    downstream_window="24h",
)
def refund(payment_id: str, amount_minor: int, reason: str, key: Key) -> dict[str, str]:  # noqa: ARG001
    effects.append(payment_id)
    return {"refund_id": payment_id}


@tool_contract(
    name="arefund",
    version="2.1.0",
    class_="write-non-idempotent",
    value="high",
    ignore=("reason",),
    downstream_window="24h",
)
async def arefund(payment_id: str, amount_minor: int, reason: str, key: Key) -> dict[str, str]:  # noqa: ARG001
    effects.append(payment_id)
    return {"refund_id": payment_id}


class Status(Enum):
    PAID = "paid"


class Receipt(BaseModel):
    id: uuid.UUID
    amount: Decimal
    at: datetime
    status: Status


RECEIPT = Receipt(
    id=uuid.UUID(int=42), amount=Decimal("14.50"), at=datetime(2024, 1, 7, tzinfo=UTC), status=Status.PAID
)


@tool_contract(name="pay", class_="write-non-idempotent")
def pay(payment_id: str) -> Receipt:
    effects.append(payment_id)
    return RECEIPT


# --- history --------------------------------------------------------------------------------------

_LEASE_US = 60_000_000


def leave_in_doubt(store: Store, count: int) -> None:
    """So many records more that nobody knows the end of."""
    for _ in range(count):
        key = (SYSTEM.token() + SYSTEM.token()).hex()
        at, token = Address("default", "tool", key), SYSTEM.token()
        request = CallRequest(
            at, "rec_" + token.hex(), "refund", "2.1.0", token + token, b"{}", "{}", "doubt", "[]", "", ""
        )
        store.perform(Claim(request, token, _LEASE_US))
        store.perform(Park(at, token, "the tool ended with TimeoutError"))


def seal(store: Store) -> None:
    """All events are sealed, as those of an old store are: nothing of it is left to the background."""
    while store.ask(SealEvents(limit=20_000)) is not None:
        pass


# A million commits take minutes; one statement takes seconds and leaves the same rows. The keys are random
# and come sorted, with ids that follow: indexes are built from left to right and look like any others. The
# sweeper has passed them all.
_RECORDS = """
INSERT INTO semel_records (
    tenant, scope, key, id, tool, version, fingerprint, arguments, terms, conversation, step, principal,
    job_id, state, token, fence, attempts, entries, created_at, entered_at, settled_at, expires_at, closes,
    outcome, note, by_whom
)
WITH RECURSIVE
    numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count),
    made (key, token) AS MATERIALIZED (
        SELECT lower(hex(randomblob(32))), randomblob(16) FROM numbers ORDER BY 1
    )
SELECT
    tenant, scope, made.key, 'rec_' || substr(made.key, 1, 32), tool, version, fingerprint, arguments, terms,
    'history', step, principal, job_id, state, made.token, fence, attempts, entries, created_at, entered_at,
    settled_at, expires_at, expires_at, outcome, note, by_whom
FROM made CROSS JOIN (SELECT * FROM semel_records WHERE state = 'done' LIMIT 1)
"""
_EVENTS = """
INSERT INTO semel_events
SELECT NULL, events.at_us, records.tenant, records.scope, records.key, records.id, events.kind, events.state,
    events.fence, events.tool, events.version, events.digest, events.expires_at, 'history', events.step,
    events.by_whom, events.note, events.count
FROM semel_records AS records
    CROSS JOIN (SELECT * FROM semel_events WHERE kind IN ('claimed', 'settled') LIMIT 2) AS events
WHERE records.conversation = 'history'
"""


def remember_in_bulk(path: str, count: int, *, logged: bool = True) -> None:
    """So many copies of the first settled record and its two events, under keys of their own.

    Not logged, they take half of the disk on the way, and nobody else may have the file open.
    """
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        if not logged:
            connection.execute("PRAGMA journal_mode = OFF")
            # 64 MiB: with the usual two, each page goes to the disk and comes back seven times.
            connection.execute("PRAGMA cache_size = -65536")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_RECORDS, {"count": count})
        connection.execute(_EVENTS)
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()
