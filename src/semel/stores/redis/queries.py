"""What all questions to the store have in common.

Each is written once, for threads and for event loops: it yields rows of requests and receives their answers.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

from semel.kernel.record import Record
from semel.stores.redis import trouble
from semel.stores.redis.commands import LaneKeys, Request, Translator
from semel.stores.redis.packed_records import id_fields, record_of

Asking = Generator[list[Request], list[Any], Any]

# Records or events read in one go: a few hundred kilobytes at most in a usual store.
PAGE = 500

# Times and the numbers of events, as they stand in keys and indexes.
TIME_BYTES = 8


def plain(lane: LaneKeys, *words: bytes) -> Request:
    return Request(lane.number, None, words)


def checked(translator: Translator, lanes: Sequence[LaneKeys], rows: list[Any]) -> list[Any]:
    """The answers behind those to `marks`; StoreCorrupt if a lane went missing."""
    ids, answers = rows[: len(lanes)], rows[len(lanes) :]
    for store_id in ids:
        if store_id != translator.store_id:
            raise trouble.refused("SEMELEMPTY")
    return answers


def marks(lanes: Sequence[LaneKeys]) -> list[Request]:
    return [plain(lane, b"HGET", lane.lane, b"id") for lane in lanes]


def store_time(translator: Translator, lane: LaneKeys) -> Asking:
    """The store's time."""
    if now := translator.now():
        return int(now)
    ((seconds, us),) = yield [plain(lane, b"TIME")]
    return int(seconds) * 1_000_000 + int(us)


def entries_of_id(translator: Translator, id_: str) -> Asking:
    """Of each lane what it has under an id: a digest, or the seq of its last event."""
    lanes = translator.lanes
    requests = [plain(lane, b"HMGET", lane.ids, *id_fields(id_)) for lane in lanes]
    answers = checked(translator, lanes, (yield [*marks(lanes), *requests]))
    return [(lane, entry) for lane, each in zip(lanes, answers, strict=True) for entry in each if entry]


def read_records(lane: LaneKeys, digests: list[bytes]) -> Asking:
    if not digests:
        return []
    (answers,) = yield [plain(lane, b"MGET", *map(lane.record, digests))]
    return list(present(answers))


def present(answers: list[bytes | None]) -> Iterator[Record]:
    return (record_of(data) for data in answers if data is not None)
