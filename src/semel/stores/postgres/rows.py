"""Rows as records, events and seals. A row that makes no sense is damage, never absence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from semel.audit.events import Event, Seal
from semel.errors import StoreCorrupt
from semel.kernel.record import Address, CallRequest, Record, State, is_possible
from semel.stores.postgres.packing import row_of

# Where the columns of parts/record.sql are in a row of the table itself: behind its address.
_WHOLE = slice(1, 27)

_STATES: dict[str, State] = {state.value: state for state in State}


def record_of(row: Sequence[Any]) -> Record:
    """The record in a row of its columns; StoreCorrupt if it is none."""
    try:
        (tenant, scope, key, id_, tool, version, fingerprint, arguments, terms, conversation, step, principal,
         job_id, state, token, fence, attempts, entries, created_at, entered_at, lease_until, settled_at,
         expires_at, outcome, note, by) = row  # fmt: skip
        request = CallRequest(
            Address(tenant, scope, key), id_, tool, version, fingerprint, arguments, terms, conversation,
            step, principal, job_id,
        )  # fmt: skip
        record = Record(
            request, _STATES[state], token, fence, attempts, entries, created_at, entered_at, lease_until,
            settled_at, expires_at, outcome, note, by,
        )  # fmt: skip
    except (KeyError, ValueError, TypeError) as error:
        raise StoreCorrupt() from error
    if not is_possible(record):
        raise StoreCorrupt()
    return record


def record_at(at: Address | None, whole: bytes | None) -> Record | None:
    """The record at this address, of a row of the table that came as one value; None if there is none."""
    if whole is None:
        return None
    record = record_of(row_of(whole)[_WHOLE])
    if record.request.at != at:
        raise StoreCorrupt("The record under this key says that it is another's: the tool did not run.")
    return record


def event_of(row: Sequence[Any]) -> Event:
    return Event(*row)


def seal_of(row: Sequence[Any]) -> Seal:
    return Seal(*row)


def state_of(name: Any) -> State:
    try:
        return _STATES[name]
    except (KeyError, TypeError) as error:
        raise StoreCorrupt() from error
