"""How far the chain reaches: its last seal, and what waits for the next; in a few reads.

Whether the chain is whole is another question: `verify` reads all of it.
"""

from __future__ import annotations

from typing import NamedTuple

from semel.audit.events import Seal
from semel.audit.leaves import newest
from semel.audit.pages import BEFORE_ALL, PAGE
from semel.audit.verify import SEALED_WITHIN_US
from semel.stores.base import ReadEvents, ReadSeals, Store
from semel.stores.documents import Fetch


class ChainHead(NamedTuple):
    """Of one lane. `seal` is None if there is none, or if it is too old to be found quickly."""

    lane: int
    seal: Seal | None
    unsealed: int  # events after it; counted up to a page of them
    late: bool  # one of them has waited for a seal for longer than open ledgers need


def heads(store: Store) -> list[ChainHead]:
    now_us = store.ask(Fetch("default", ())).now_us  # by the store's own clock, as events are
    return [_head(store, lane, now_us) for lane in range(store.lanes)]


def _head(store: Store, lane: int, now_us: int) -> ChainHead:
    number = newest(store, lane)
    seals = store.ask(ReadSeals(max(number - 1, 0), PAGE, lane))
    seal = seals[-1] if seals and len(seals) < PAGE else None
    after = store.ask(ReadEvents(seal.last_seq if seal else BEFORE_ALL, PAGE, lane=lane))
    return ChainHead(lane, seal, len(after), any(event.at_us < now_us - SEALED_WITHIN_US for event in after))
