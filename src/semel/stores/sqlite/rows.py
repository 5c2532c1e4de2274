"""Rows as records, events and seals. A row that makes no sense is damage, never absence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from semel.audit.events import Event, Seal
from semel.errors import StoreCorrupt
from semel.kernel.record import Address, CallRequest, Record, State, can_have

_STATES: dict[str, State] = {state.value: state for state in State}
_TEXT, _BYTES, _INT = frozenset((str,)), frozenset((bytes,)), frozenset((int,))
_NUMBER_OR_NOT = frozenset((int, type(None)))
# Of the record, its address in three of them; then `due` and `closes`.
DUE = 26
_COLUMNS = 28


# By the types that sound rows had so far, the states in which those are possible: found at once, and there
# are not a hundred combinations.
_SOUND: dict[tuple[type, ...], dict[str, State]] = {}

_new = tuple.__new__  # half the price of naming every field once more


def record_of(row: tuple[Any, ...]) -> Record:
    """The record in a row of all its columns; StoreCorrupt if it is none."""
    kinds = tuple(map(type, row))
    states = _SOUND.get(kinds)
    if states is None:
        states = _SOUND[kinds] = _states_with(kinds)
    state = states.get(row[13])
    if state is None:
        raise StoreCorrupt()
    request = _new(CallRequest, (_new(Address, row[:3]), *row[3:13]))
    return _new(Record, (request, state, *row[14:26]))


def _states_with(kinds: tuple[type, ...]) -> dict[str, State]:
    if len(kinds) != _COLUMNS or not _typed(kinds):
        raise StoreCorrupt()
    lease_until, settled_at, expires_at = (kind is int for kind in kinds[20:23])
    return {
        name: state
        for name, state in _STATES.items()
        if can_have(state, lease_until=lease_until, settled_at=settled_at, expires_at=expires_at)
    }


def _typed(kinds: tuple[type, ...]) -> bool:
    return (
        _TEXT.issuperset(kinds[:6])
        and _BYTES.issuperset(kinds[6:8])
        and _TEXT.issuperset(kinds[8:14])
        and kinds[14] is bytes
        and _INT.issuperset(kinds[15:19])
        and _NUMBER_OR_NOT.issuperset(kinds[19:23])
        and kinds[23] in (bytes, type(None))
        and _TEXT.issuperset(kinds[24:26])
        and _NUMBER_OR_NOT.issuperset(kinds[26:])
    )


def event_of(row: Sequence[Any]) -> Event:
    event = Event(*row)
    if not _typed_event(tuple(map(type, row))):
        raise StoreCorrupt(f"Event {event.seq} is damaged.")
    return event


def _typed_event(kinds: tuple[type, ...]) -> bool:
    return (
        _INT.issuperset(kinds[:2])
        and _TEXT.issuperset(kinds[2:8])
        and kinds[8] is int
        and _TEXT.issuperset(kinds[9:11])
        and kinds[11] is bytes
        and kinds[12] in _NUMBER_OR_NOT
        and _TEXT.issuperset(kinds[13:17])
        and kinds[17] is int
    )


def seal_of(row: Sequence[Any]) -> Seal:
    seal = Seal(*row)
    if type(seal.hash) is not bytes or type(seal.last_seq) is not int:
        raise StoreCorrupt(f"Seal {seal.number} is damaged.")
    return seal


def state_of(name: Any) -> State:
    try:
        return _STATES[name]
    except (KeyError, TypeError) as error:
        raise StoreCorrupt() from error
