"""The log of each lane: its events, and the seals over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from semel.audit.events import Event, new_seal
from semel.errors import StoreCorrupt
from semel.stores.base import AppendEvents, ReadEvents, ReadSeals, SealEvents
from semel.stores.redis import scripts, trouble
from semel.stores.redis.commands import LaneKeys, Request, Translator
from semel.stores.redis.first_form import event_body
from semel.stores.redis.packed_events import completed, event_of, refers, seal_body, seal_of
from semel.stores.redis.packed_records import link_of
from semel.stores.redis.packing import digest_of
from semel.stores.redis.queries import PAGE, TIME_BYTES, Asking, checked, entries_of_id, marks, plain


def read_events(translator: Translator, query: ReadEvents) -> Asking:
    if query.record_id is not None:
        return (yield from _story(translator, query, query.record_id))
    lane, after = translator.lanes[query.lane], max(0, query.after)
    fitting: list[Event] = []
    while len(fitting) < query.limit:
        size = min(PAGE, query.limit - len(fitting)) if query.tenant is None else PAGE
        page = yield from _page(translator, lane, after, size)
        fitting += [event for event, _ in page if query.tenant in (None, event.tenant)]
        if len(page) < size:
            break
        after = page[-1][0].seq
    return fitting[: query.limit]


def _page(translator: Translator, lane: LaneKeys, after: int, size: int) -> Asking:
    floor = yield from _floor(translator, lane)
    first = b"0-%d" % (max(after, floor) + 1)
    (entries,) = yield [plain(lane, b"XRANGE", lane.events, first, b"+", b"COUNT", b"%d" % size)]
    return (yield from whole(lane, entries))


def _floor(translator: Translator, lane: LaneKeys) -> Asking:
    """The newest event that was dropped: what stays below for those that refer to it is read no more."""
    ((store_id, floor),) = yield [plain(lane, b"HMGET", lane.lane, b"id", b"floor")]
    checked(translator, [lane], [store_id])
    return int(floor or 0)


def _story(translator: Translator, query: ReadEvents, id_: str) -> Asking:
    events: dict[tuple[int, int], Event] = {}
    for lane, entry in (yield from entries_of_id(translator, id_)):
        newest, floor = (yield from _newest(lane, entry)), (yield from _floor(translator, lane))
        while newest > floor:
            page = yield from whole(lane, (yield [_walk(lane, newest)])[0])
            events |= {(event.seq, lane.number): event for event, _ in page if event.seq > floor}
            newest = page[-1][1] if len(page) == PAGE else 0
    story = [events[place] for place in sorted(events) if events[place].record_id == id_]
    fitting = [event for event in story if event.seq > query.after and query.tenant in (None, event.tenant)]
    return fitting[: query.limit]


def _newest(lane: LaneKeys, entry: bytes) -> Asking:
    if len(entry) == TIME_BYTES:
        return int.from_bytes(entry, "big")
    (data,) = yield [plain(lane, b"GET", lane.record(entry))]
    return 0 if data is None else link_of(data)


def _walk(lane: LaneKeys, newest: int) -> Request:
    return Request(lane.number, scripts.STORY, (lane.events, b"%d" % newest, b"%d" % PAGE))


def append_events(translator: Translator, query: AppendEvents) -> Asking:
    """Not repeated after a lost answer: a count that is lost does less harm than one that is doubled."""
    if query.events and translator.audit:
        answers = yield [
            translator.step(
                scripts.APPEND_EVENT,
                digest_of(event.at),
                (event.record_id.encode(), event_body(event)),
                repeatable=False,
            )
            for event in query.events
        ]
        for answer in answers:
            trouble.check(answer)


# --- what stands in an entry of the log -------------------------------------------------------------


def whole(lane: LaneKeys, entries: Sequence[Any]) -> Asking:
    """The events in these entries, each with what those say to which they refer.

    If that is gone, they say nothing of it: a seal over them is broken.
    """
    page = events_in(entries)
    by_seq = {event.seq: event for event, _ in page}
    referring = {event.seq for (event, _), (_, (_, data)) in zip(page, entries, strict=True) if refers(data)}
    absent = sorted({link for event, link in page if event.seq in referring} - set(by_seq))
    if absent:
        answers = yield [plain(lane, b"XRANGE", lane.events, b"0-%d" % seq, b"0-%d" % seq) for seq in absent]
        by_seq |= {event.seq: event for answer in answers for event, _ in events_in(answer)}
    return [
        (completed(event, by_seq[link]), link) if event.seq in referring and link in by_seq else (event, link)
        for event, link in page
    ]


def events_in(entries: Sequence[Any]) -> list[tuple[Event, int]]:
    """The events in these entries as they stand there, and the seqs to which they link."""
    try:
        return [event_of(_seq(id_), data) for id_, (_, data) in entries]
    except (TypeError, ValueError) as error:
        raise StoreCorrupt("An event is damaged.") from error


def _seq(id_: bytes) -> int:
    """The number of an event; ValueError if it is not one that a step gave it."""
    first, seq = id_.split(b"-")
    if first != b"0":
        raise ValueError("not an event's number")
    return int(seq)


# --- seals ----------------------------------------------------------------------------------------


def seal_events(translator: Translator, query: SealEvents) -> Asking:
    """Somebody else may be sealing too: whoever comes second sees that and goes on from there."""
    lane = translator.lanes[query.lane]
    while True:
        (last,) = checked(
            translator, [lane], (yield [*marks([lane]), plain(lane, b"LINDEX", lane.seals, b"-1")])
        )
        previous = None if last is None else seal_of(last)
        page = yield from _page(translator, lane, previous.last_seq if previous else 0, query.limit)
        if not page:
            return None
        seal = new_seal(previous, [event for event, _ in page], 0)
        words = (translator.store_id, translator.now(), b"%d" % (seal.number - 1), seal_body(seal))
        (at_us,) = yield [Request(lane.number, scripts.ADD_SEAL, (lane.seals, lane.lane, *words))]
        trouble.check(at_us)
        if at_us is not None:
            return seal._replace(at_us=at_us)


def read_seals(translator: Translator, query: ReadSeals) -> Asking:
    lane = translator.lanes[query.lane]
    first, last = b"%d" % query.after, b"%d" % (query.after + query.limit - 1)
    request = plain(lane, b"LRANGE", lane.seals, first, last)
    (rows,) = checked(translator, [lane], (yield [*marks([lane]), request]))
    return [seal_of(data) for data in rows]


ANSWERS: dict[type, Callable[[Translator, Any], Asking]] = {
    ReadEvents: read_events,
    AppendEvents: append_events,
    SealEvents: seal_events,
    ReadSeals: read_seals,
}
