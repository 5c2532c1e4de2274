"""Questions to the store, written once: each yields rows of requests and receives their answers."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple

from semel.audit import events
from semel.audit.events import Event, Seal
from semel.errors import StoreCorrupt
from semel.kernel.record import Address, Record, State, effective_state, unsettled_only
from semel.stores.base import (
    AppendEvents,
    CountRecords,
    CountUnsettled,
    FindRecord,
    ListRecords,
    ReadEvents,
    ReadSeals,
    SealEvents,
    Sweep,
    Swept,
    Whose,
)
from semel.stores.redis import scripts, trouble
from semel.stores.redis.commands import LaneKeys, Request, Translator
from semel.stores.redis.packing import (
    PAGE_RECORDS,
    BookPage,
    completed,
    digest_of,
    end_of,
    event_body,
    event_of,
    id_fields,
    link_of,
    page_name,
    page_named,
    page_of,
    record_of,
    refers,
    seal_body,
    seal_of,
    tenant_of,
    tenant_prefix,
    time,
)
from semel.stores.redis.scripts import Script

log = logging.getLogger("semel")

Asking = Generator[list[Request], list[Any], Any]

# Records or events read in one go: a few hundred kilobytes at most in a usual store.
_PAGE = 500

# Sealed runs dropped in one sweep, of 1 000 events each: a tenth of a second at most.
_RUNS_DROPPED_MAX = 20

_TIME_BYTES = 8

# Pages of a tenant's book read in one go: as many records.
_PAGES = 32

# No event refers to one that is further behind it; and none to one half as old as what is dropped. (NEAR and
# RECENT in steps/record.lua.)
_NEAR, _DROPPED_AGE_US = 1_000, 1_200_000_000

# What stands on the list before a tenant: nothing, or, of records that are stopped, a byte above all others.
_ALL, _STOPPED = b"", b"\xff"

# The second byte of a record that is stopped.
_STOPPED_CODES = frozenset(bytes((scripts.CODES[state],)) for state in (State.WAITING, State.IN_DOUBT))


def plain(lane: LaneKeys, *words: bytes) -> Request:
    return Request(lane.number, None, words)


def _checked(translator: Translator, lanes: Sequence[LaneKeys], rows: list[Any]) -> list[Any]:
    """The answers behind those to `_marks`; StoreCorrupt if a lane went missing."""
    marks, answers = rows[: len(lanes)], rows[len(lanes) :]
    for mark in marks:
        if mark != translator.store_id:
            raise trouble.refused("SEMELEMPTY")
    return answers


def _marks(lanes: Sequence[LaneKeys]) -> list[Request]:
    return [plain(lane, b"HGET", lane.lane, b"id") for lane in lanes]


def _now(translator: Translator, lane: LaneKeys) -> Asking:
    """The store's time."""
    if now := translator.now():
        return int(now)
    ((seconds, us),) = yield [plain(lane, b"TIME")]
    return int(seconds) * 1_000_000 + int(us)


# --- records --------------------------------------------------------------------------------------


def list_records(translator: Translator, query: ListRecords) -> Asking:
    now_us = yield from _now(translator, translator.lanes[0])
    if unsettled_only(query.states):
        records = yield from _unsettled(translator, query, now_us)
    else:
        records = yield from _of_tenants(translator, query, now_us, _ALL)
    records.sort(key=lambda record: (record.created_at, record.request.id), reverse=True)
    return records[: query.limit]


def count_unsettled(translator: Translator, query: CountUnsettled) -> Asking:
    now_us = yield from _now(translator, translator.lanes[0])
    every = ListRecords(query.tenant, states=query.states, limit=sys.maxsize)
    records = yield from _unsettled(translator, every, now_us)
    return dict(
        Counter(
            Whose(record.request.at.tenant, record.request.tool, effective_state(record, now_us))
            for record in records
        )
    )


def _of_tenants(translator: Translator, query: ListRecords, now_us: int, part: bytes) -> Asking:
    """The newest that fit, of the tenant or of each, on this part of the list, in no order."""
    if query.tenant is not None:
        whose: Sequence[str] = [query.tenant]
    else:
        whose = yield from _tenants(translator, part)
    records: list[Record] = []
    for tenant in whose:
        records += yield from _listed(translator, query, now_us, part + tenant_prefix(tenant))
        if part == _ALL:
            records += yield from _in_book(translator, query, now_us, tenant)
    return records


def _listed(translator: Translator, query: ListRecords, now_us: int, tenant: bytes) -> Asking:
    """Of each lane the newest that fit: what was created in the same moment comes or stays out as a whole."""
    records: list[Record] = []
    tops = dict.fromkeys(translator.lanes, _top(query, tenant))
    size = _PAGE if _selective(query) else min(_PAGE, query.limit)
    while tops:
        lanes = list(tops)
        pages = _checked(translator, lanes, (yield [*_marks(lanes), *_pages(tops, tenant, size)]))
        full = [(lane, page) for lane, page in zip(lanes, pages, strict=True) if page]
        answers = yield [plain(lane, b"MGET", *_keys(lane, page)) for lane, page in full]
        tops = {}
        for (lane, page), data in zip(full, answers, strict=True):
            fitting = [record for record in _present(data) if query.wants(record, now_us)]
            records += fitting
            last = page[-1][len(tenant) : len(tenant) + _TIME_BYTES]
            if len(page) == size and (len(fitting) < query.limit or page[0][len(tenant) :].startswith(last)):
                tops[lane] = b"(" + page[-1]
            elif len(page) == size:
                rest = plain(lane, b"ZREVRANGEBYLEX", lane.list, b"(" + page[-1], b"[" + tenant + last)
                (same,) = yield [rest]
                others = yield from _read(lane, [member[-lane.digest_bytes :] for member in same])
                records += [record for record in others if query.wants(record, now_us)]
    return records


def _selective(query: ListRecords) -> bool:
    return bool(query.states or query.key or query.tool or query.scope)


def _top(query: ListRecords, tenant: bytes) -> bytes:
    """Where the list begins: with the moment of `before`, or below the first byte that begins no time."""
    if query.before is None:
        return b"(" + tenant + b"\xff"
    return b"(" + tenant + time(query.before[0]) + b"\xff"


def _pages(tops: dict[LaneKeys, bytes], tenant: bytes, size: int) -> Iterator[Request]:
    for lane, top in tops.items():
        yield plain(lane, b"ZREVRANGEBYLEX", lane.list, top, b"[" + tenant, b"LIMIT", b"0", b"%d" % size)


def _tenants(translator: Translator, part: bytes) -> Asking:
    """Who has records on this part of the list: by leaps from one to the next; or on any page of the book."""
    tenants: set[str] = set()
    bottoms = dict.fromkeys(translator.lanes, b"(" + part)
    while bottoms:
        lanes = list(bottoms)
        firsts = yield [_first(lane, bottoms[lane], part) for lane in lanes]
        bottoms = {}
        for lane, first in zip(lanes, firsts, strict=True):
            if first:
                tenant = tenant_of(first[0][len(part) :])
                tenants.add(tenant)
                bottoms[lane] = b"(" + part + tenant_prefix(tenant) + b"\xff"
    if part == _ALL:
        tenants |= yield from _in_books(translator)
    return sorted(tenants)


def _first(lane: LaneKeys, bottom: bytes, part: bytes) -> Request:
    top = b"+" if part else b"(" + _STOPPED
    return plain(lane, b"ZRANGEBYLEX", lane.list, bottom, top, b"LIMIT", b"0", b"1")


# --- the book -------------------------------------------------------------------------------------


def _in_books(translator: Translator) -> Asking:
    """Who has a page in the book of any lane."""
    tenants: set[str] = set()
    cursors = dict.fromkeys(translator.lanes, b"0")
    while cursors:
        lanes = list(cursors)
        answers = yield [
            plain(lane, b"ZSCAN", lane.pages, cursors[lane], b"COUNT", b"%d" % _PAGE) for lane in lanes
        ]
        cursors = {}
        for lane, (cursor, members) in zip(lanes, answers, strict=True):
            tenants |= {page_named(name)[0] for name in members[::2] if name}
            if cursor != b"0":
                cursors[lane] = cursor
    return tenants


def _in_book(translator: Translator, query: ListRecords, now_us: int, tenant: str) -> Asking:
    """Of each lane's book the newest that fit, with all that were created in the same moment as the last."""
    lanes = translator.lanes
    queries = [plain(lane, b"HGET", lane.book, tenant.encode()) for lane in lanes]
    answers = _checked(translator, lanes, (yield [*_marks(lanes), *queries]))
    records: list[Record] = []
    for lane, data in zip(lanes, answers, strict=True):
        if data is not None:
            open_page = page_of(data, lane.digest_bytes)
            records += yield from _in_pages(lane, query, now_us, tenant, open_page)
    return records


def _in_pages(lane: LaneKeys, query: ListRecords, now_us: int, tenant: str, open_page: BookPage) -> Asking:
    number = yield from _start(lane, query, tenant, open_page)
    pages = [open_page] if number == open_page.number else []
    number = min(number, open_page.number - 1)
    records: list[Record] = []
    while True:
        for page in pages:
            oldest = _oldest(records, query.limit)
            if oldest is not None and page.high < oldest:
                return records
            on_page = yield from _read(lane, page.digests)
            records += [record for record in on_page if query.wants(record, now_us)]
        if number < open_page.lowest:
            return records
        stop = max(open_page.lowest - 1, number - _PAGES)
        names = [page_name(tenant, each) for each in range(number, stop, -1)]
        (answers,) = yield [plain(lane, b"HMGET", lane.book, *names)]
        pages = [page_of(data, lane.digest_bytes) for data in answers if data is not None]
        number = stop


def _oldest(records: list[Record], limit: int) -> int | None:
    """When the last of the newest so many was created; None if there are fewer."""
    if len(records) < limit:
        return None
    return sorted((record.created_at for record in records), reverse=True)[limit - 1]


def _start(lane: LaneKeys, query: ListRecords, tenant: str, open_page: BookPage) -> Asking:
    """The highest page on which something from before `before` may stand, found by halves."""
    if query.before is None:
        return open_page.number
    low, high = max(open_page.lowest, open_page.back), open_page.number
    while low < high:
        page = yield from _next_page(lane, tenant, (low + high) // 2, high)
        if page is not None and page.high <= query.before[0]:
            low = page.number + 1
        else:
            high = (low + high) // 2
    return low


def _next_page(lane: LaneKeys, tenant: str, number: int, below: int) -> Asking:
    """The lowest page from this number on; None if there is none below that other one."""
    while number < below:
        names = [page_name(tenant, each) for each in range(number, min(below, number + _PAGES))]
        (answers,) = yield [plain(lane, b"HMGET", lane.book, *names)]
        for data in answers:
            if data is not None:
                return page_of(data, lane.digest_bytes)
        number += _PAGES
    return None


# --- what is unsettled ----------------------------------------------------------------------------


def _unsettled(translator: Translator, query: ListRecords, now_us: int) -> Asking:
    """Those that fit, and of each tenant at least the newest `limit`, in no order.

    What is under way comes first: whatever is swept meanwhile is then seen a second time, and not missed.
    """
    records: dict[Address, Record] = {}
    if not query.states.isdisjoint((State.PENDING, State.IN_DOUBT)):
        records |= yield from _under_way(translator, query, now_us)
    if not query.states.isdisjoint((State.WAITING, State.IN_DOUBT)):
        yield from _make_whole(translator)
        stopped = yield from _of_tenants(translator, query, now_us, _STOPPED)
        records |= {record.request.at: record for record in stopped}
    return list(records.values())


def _under_way(translator: Translator, query: ListRecords, now_us: int) -> Asking:
    """Pending records that fit; who does not ask for live ones has no need to look at what is not due yet."""
    upto = b"+inf" if State.PENDING in query.states else b"%d" % now_us
    records: dict[Address, Record] = {}
    for lane in translator.lanes:
        for key, size in _indexes(lane, _PAGE, _PAGES):
            page: list[bytes] = []
            start = 0
            while start == 0 or len(page) == size:
                limits = (b"LIMIT", b"%d" % start, b"%d" % size)
                request = plain(lane, b"ZRANGEBYSCORE", key, b"0", upto, *limits)
                (page,) = _checked(translator, [lane], (yield [*_marks([lane]), request]))
                start += size
                digests = (yield from _on_pages(lane, page)) if key == lane.pages else page
                for record in (yield from _read(lane, digests)):
                    if record.state is State.PENDING and query.wants(record, now_us):
                        records[record.request.at] = record
    return records


def _indexes(lane: LaneKeys, records: int, pages: int) -> list[tuple[bytes, int]]:
    """What the sweeper goes by, and how much of it is read in one go: records of the first form; pages."""
    single = [(lane.due, records)] if lane.due != lane.pages else []
    return [*single, (lane.pages, pages)]


def _on_pages(lane: LaneKeys, names: list[bytes]) -> Asking:
    """The digests of the records on the pages with these names."""
    pages = yield from _pages_named(lane, names)
    return [digest for page in pages.values() for digest in page.digests]


def _pages_named(lane: LaneKeys, names: list[bytes]) -> Asking:
    """Of these pages those that are there. One that is still being filled stands under its tenant's name."""
    if not names:
        return {}
    whose = [page_named(name)[0].encode() for name in names]
    (answers,) = yield [plain(lane, b"HMGET", lane.book, *whose, *names)]
    pages: dict[bytes, BookPage] = {}
    for name, data in zip((*names, *names), answers, strict=True):
        if data is not None:
            page = page_of(data, lane.digest_bytes, name)
            if page.number == page_named(name)[1]:
                pages[name] = page
    return pages


def _read(lane: LaneKeys, digests: list[bytes]) -> Asking:
    if not digests:
        return []
    (answers,) = yield [plain(lane, b"MGET", *map(lane.record, digests))]
    return list(_present(answers))


def _make_whole(translator: Translator) -> Asking:
    """The list has every stopped record twice, also after a Semel has written that knew nothing of it."""
    answers = yield [
        Request(lane.number, scripts.IS_WHOLE, (lane.lane, lane.list, translator.store_id))
        for lane in translator.lanes
    ]
    for lane, answer in zip(translator.lanes, answers, strict=True):
        trouble.check(answer)
        if not answer:
            yield from _file_all(translator, lane)


def _file_all(translator: Translator, lane: LaneKeys) -> Asking:
    bottom, page = b"-", [b""] * _PAGE
    while len(page) == _PAGE:
        (page,) = yield [plain(lane, b"ZRANGEBYLEX", lane.list, bottom, b"+", b"LIMIT", b"0", b"%d" % _PAGE)]
        if not page:
            return
        bottom = b"(" + page[-1]
        (records,) = yield [plain(lane, b"MGET", *_keys(lane, page))]
        members = [
            member
            for member, data in zip(page, records, strict=True)
            if member[:1] == _STOPPED or (data is not None and data[1:2] in _STOPPED_CODES)
        ]
        answers = yield [
            translator.step(
                scripts.FILE_STOPPED,
                member[-lane.digest_bytes :],
                (_STOPPED + member.removeprefix(_STOPPED),),
            )
            for member in members
        ]
        for answer in answers:
            if trouble.word_of(answer) != "SEMELCORRUPT":  # it is reported where it is read
                trouble.check(answer)


def _keys(lane: LaneKeys, page: list[bytes]) -> list[bytes]:
    return [lane.record(member[-lane.digest_bytes :]) for member in page]


def _present(answers: list[bytes | None]) -> Iterator[Record]:
    return (record_of(data) for data in answers if data is not None)


def find_record(translator: Translator, query: FindRecord) -> Asking:
    for lane, entry in (yield from _entries_of_id(translator, query.id)):
        if len(entry) != _TIME_BYTES:
            (data,) = yield [plain(lane, b"GET", lane.record(entry))]
            record = None if data is None else record_of(data)
            if (
                record is not None
                and record.request.at.tenant == query.tenant
                and record.request.id == query.id
            ):
                return record
    return None


def _entries_of_id(translator: Translator, id_: str) -> Asking:
    """Of each lane what it has under an id: a digest, or the seq of its last event."""
    lanes = translator.lanes
    requests = [plain(lane, b"HMGET", lane.ids, *id_fields(id_)) for lane in lanes]
    answers = _checked(translator, lanes, (yield [*_marks(lanes), *requests]))
    return [(lane, entry) for lane, each in zip(lanes, answers, strict=True) for entry in each if entry]


def count_records(translator: Translator, _: CountRecords) -> Asking:
    counts: dict[State, int] = {}
    # By name: the lane's hash has a field for each tenant too.
    fields = [b"%d" % code for code in scripts.STATES]
    answers = yield [plain(lane, b"HMGET", lane.lane, b"id", *fields) for lane in translator.lanes]
    for store_id, *numbers in answers:
        if store_id != translator.store_id:
            raise trouble.refused("SEMELEMPTY")
        for state, number in zip(scripts.STATES.values(), numbers, strict=True):
            counts[state] = counts.get(state, 0) + int(number or 0)
    return {state: count for state, count in counts.items() if count}


# --- events ---------------------------------------------------------------------------------------


def read_events(translator: Translator, query: ReadEvents) -> Asking:
    if query.record_id is not None:
        return (yield from _story(translator, query, query.record_id))
    lane, after = translator.lanes[query.lane], max(0, query.after)
    fitting: list[Event] = []
    while len(fitting) < query.limit:
        size = min(_PAGE, query.limit - len(fitting)) if query.tenant is None else _PAGE
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
    return (yield from _whole(lane, entries))


def _floor(translator: Translator, lane: LaneKeys) -> Asking:
    """The newest event that was dropped: what stays below for those that refer to it is read no more."""
    ((store_id, floor),) = yield [plain(lane, b"HMGET", lane.lane, b"id", b"floor")]
    _checked(translator, [lane], [store_id])
    return int(floor or 0)


def _whole(lane: LaneKeys, entries: Sequence[Any]) -> Asking:
    """The events in these entries, each with what those say to which they refer.

    If that is gone, they say nothing of it: a seal over them is broken.
    """
    page = _events(entries)
    by_seq = {event.seq: event for event, _ in page}
    referring = {event.seq for (event, _), (_, (_, data)) in zip(page, entries, strict=True) if refers(data)}
    absent = sorted({link for event, link in page if event.seq in referring} - set(by_seq))
    if absent:
        answers = yield [plain(lane, b"XRANGE", lane.events, b"0-%d" % seq, b"0-%d" % seq) for seq in absent]
        by_seq |= {event.seq: event for answer in answers for event, _ in _events(answer)}
    return [
        (completed(event, by_seq[link]), link) if event.seq in referring and link in by_seq else (event, link)
        for event, link in page
    ]


def _events(entries: Sequence[Any]) -> list[tuple[Event, int]]:
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


def _story(translator: Translator, query: ReadEvents, id_: str) -> Asking:
    events: dict[tuple[int, int], Event] = {}
    for lane, entry in (yield from _entries_of_id(translator, id_)):
        newest, floor = (yield from _newest(lane, entry)), (yield from _floor(translator, lane))
        while newest > floor:
            page = yield from _whole(lane, (yield [_walk(lane, newest)])[0])
            events |= {(event.seq, lane.number): event for event, _ in page if event.seq > floor}
            newest = page[-1][1] if len(page) == _PAGE else 0
    story = [events[place] for place in sorted(events) if events[place].record_id == id_]
    fitting = [event for event in story if event.seq > query.after and query.tenant in (None, event.tenant)]
    return fitting[: query.limit]


def _newest(lane: LaneKeys, entry: bytes) -> Asking:
    if len(entry) == _TIME_BYTES:
        return int.from_bytes(entry, "big")
    (data,) = yield [plain(lane, b"GET", lane.record(entry))]
    return 0 if data is None else link_of(data)


def _walk(lane: LaneKeys, newest: int) -> Request:
    return Request(lane.number, scripts.STORY, (lane.events, b"%d" % newest, b"%d" % _PAGE))


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


# --- the sweep ------------------------------------------------------------------------------------


class DuePage(NamedTuple):
    """A page of a lane's book at which the sweeper has to look, and what is due on it."""

    lane: LaneKeys
    name: bytes
    digests: list[bytes]


def sweep(translator: Translator, query: Sweep) -> Asking:
    """The answer, and the digests of what lapsed, so that who waits here can be woken."""
    now_us = yield from _now(translator, translator.lanes[0])
    lanes, limit = translator.lanes, query.limit
    sizes = (limit, limit // PAGE_RECORDS + 1)
    indexes = [(lane, *index) for lane in lanes for index in _indexes(lane, *sizes)]
    filed = [request for lane, key, size in indexes for request in _filed(lane, key, size, b"%d" % now_us)]
    answers = _checked(translator, lanes, (yield [*_marks(lanes), *filed]))
    digests: list[bytes] = []
    names: dict[LaneKeys, list[bytes]] = {}
    more = False
    for (lane, key, size), pending, idle in zip(indexes, answers[::2], answers[1::2], strict=True):
        more = more or max(len(pending), len(idle)) > size
        if key == lane.pages:
            names[lane] = [*pending, *idle]
        else:
            digests += dict.fromkeys((*pending, *idle))
    pages = yield from _due_pages(names, now_us)
    digests += [digest for page in pages for digest in page.digests]
    answers = yield [translator.step(scripts.SWEEP, digest, ()) for digest in digests[:limit]]
    lapsed, closed_count = _swept(digests, answers)
    unswept = set(digests[limit:])
    yield from _file_pages(translator, [page for page in pages if unswept.isdisjoint(page.digests)])
    dropped = yield from _drop(translator, now_us)
    more = more or len(digests) > limit or dropped >= _RUNS_DROPPED_MAX
    return Swept(len(lapsed), closed_count, more), lapsed


def _filed(lane: LaneKeys, key: bytes, size: int, until: bytes) -> Iterator[Request]:
    """What was filed for now, and one more than so many: what was pending, and what was not."""
    limits = (b"LIMIT", b"0", b"%d" % (size + 1))
    yield plain(lane, b"ZRANGEBYSCORE", key, b"0", until, *limits)
    # Negative scores: the earliest has the highest.
    yield plain(lane, b"ZREVRANGEBYSCORE", key, b"(0", b"-" + until, *limits)


def _due_pages(names: dict[LaneKeys, list[bytes]], now_us: int) -> Asking:
    due_pages: list[DuePage] = []
    for lane, own in names.items():
        pages = yield from _pages_named(lane, own)
        full = [page for page in pages.values() if page.digests]
        answers = yield [plain(lane, b"MGET", *map(lane.record, page.digests)) for page in full]
        due = {
            page.name: [
                digest
                for digest, data in zip(page.digests, answer, strict=True)
                if data is not None and end_of(data) <= now_us
            ]
            for page, answer in zip(full, answers, strict=True)
        }
        due_pages += [DuePage(lane, name, due.get(name, [])) for name in own]
    return due_pages


def _file_pages(translator: Translator, due: list[DuePage]) -> Asking:
    """Pages that were looked at stand by the time at which something on them is due next."""
    for lane in dict.fromkeys(page.lane for page in due):
        names = [page.name for page in due if page.lane is lane]
        # What the sweep removed is gone from them by now.
        pages = yield from _pages_named(lane, names)
        requests = []
        for name in names:
            tenant, number = page_named(name)
            page = pages.get(name)
            digests, entries = (page.digests, page.entries) if page else ([], b"")
            keys = (lane.lane, lane.book, lane.pages, *map(lane.record, digests))
            own = (translator.store_id, tenant.encode(), b"%d" % number, entries, b"%d" % lane.digest_bytes)
            script = Script(scripts.FILE_PAGE, b"%d" % len(keys))
            requests.append(Request(lane.number, script, (*keys, *own)))
        for answer in (yield requests):
            trouble.check(answer)


def _swept(digests: list[bytes], answers: list[Any]) -> tuple[list[bytes], int]:
    lapsed, closed_count = [], 0
    for digest, answer in zip(digests, answers, strict=False):
        if trouble.word_of(answer) == "SEMELCORRUPT":
            # It stays, for a person to look at, and does not keep the others from being swept.
            log.error("semel: the record with digest %s is damaged and was not swept", digest.hex())
            continue
        trouble.check(answer)
        if answer[0] == 1:
            lapsed.append(digest)
        closed_count += answer[0] == 2
    return lapsed, closed_count


def _drop(translator: Translator, now_us: int) -> Asking:
    """Whole sealed runs only, so that what is left can still be verified."""
    dropped, lanes = 0, list(translator.lanes)
    while lanes and dropped < _RUNS_DROPPED_MAX:
        gone = [int(count or 0) for count in (yield [_gone(lane) for lane in lanes])]
        requests = [
            plain(lane, b"LINDEX", lane.seals, b"%d" % count) for lane, count in zip(lanes, gone, strict=True)
        ]
        seals = [None if data is None else seal_of(data) for data in (yield requests)]
        sealed = [(lane, count, seal) for lane, count, seal in zip(lanes, gone, seals, strict=True) if seal]
        lanes = []
        for lane, count, seal in sealed:
            if (
                yield from _drop_run(
                    translator, lane, count, seal, now_us - max(translator.audit_kept_us(), _DROPPED_AGE_US)
                )
            ):
                dropped += 1
                lanes.append(lane)
    return dropped


def _gone(lane: LaneKeys) -> Request:
    return plain(lane, b"HGET", lane.lane, b"dropped")


def _drop_run(translator: Translator, lane: LaneKeys, count: int, seal: Seal, before_us: int) -> Asking:
    """Whether the run was old enough, and its events went, but for those to which later ones refer."""
    last = b"0-%d" % seal.last_seq
    (entries,) = yield [plain(lane, b"XRANGE", lane.events, last, last)]
    if any(event.at_us >= before_us for event, _ in _events(entries)):
        return False
    behind = plain(lane, b"XRANGE", lane.events, b"0-%d" % (seal.last_seq + 1), b"+", b"COUNT", b"%d" % _NEAR)
    entries, later = yield [plain(lane, b"XRANGE", lane.events, b"-", last), behind]
    needed = {
        link
        for (_, link), (_, (_, data)) in zip(_events(later), later, strict=True)
        if refers(data) and link <= seal.last_seq
    }
    dropped = yield from _whole(lane, entries)
    stays = min(needed, default=seal.last_seq + 1)
    besides = [b"%d" % event.seq for event, _ in dropped if event.seq > stays and event.seq not in needed]
    traces = [
        part
        for event, _ in dropped
        for field in id_fields(event.record_id)
        for part in (field, time(event.seq))
    ]
    words = (translator.store_id, b"%d" % count, b"%d" % seal.last_seq, b"%d" % stays, b"%d" % len(besides))
    (answer,) = yield [
        Request(
            lane.number,
            scripts.DROP_EVENTS,
            (lane.events, lane.ids, lane.lane, *words, *besides, *traces),
        )
    ]
    trouble.check(answer)
    return True


# --- seals ----------------------------------------------------------------------------------------


def seal_events(translator: Translator, query: SealEvents) -> Asking:
    """Somebody else may be sealing too: whoever comes second sees that and goes on from there."""
    lane = translator.lanes[query.lane]
    while True:
        (last,) = _checked(
            translator, [lane], (yield [*_marks([lane]), plain(lane, b"LINDEX", lane.seals, b"-1")])
        )
        previous = None if last is None else seal_of(last)
        page = yield from _page(translator, lane, previous.last_seq if previous else 0, query.limit)
        if not page:
            return None
        seal = events.new_seal(previous, [event for event, _ in page], 0)
        words = (translator.store_id, translator.now(), b"%d" % (seal.number - 1), seal_body(seal))
        (at_us,) = yield [Request(lane.number, scripts.ADD_SEAL, (lane.seals, lane.lane, *words))]
        trouble.check(at_us)
        if at_us is not None:
            return seal._replace(at_us=at_us)


def read_seals(translator: Translator, query: ReadSeals) -> Asking:
    lane = translator.lanes[query.lane]
    first, last = b"%d" % query.after, b"%d" % (query.after + query.limit - 1)
    request = plain(lane, b"LRANGE", lane.seals, first, last)
    (rows,) = _checked(translator, [lane], (yield [*_marks([lane]), request]))
    return [seal_of(data) for data in rows]


ANSWERS: dict[type, Callable[[Translator, Any], Asking]] = {
    ListRecords: list_records,
    FindRecord: find_record,
    ReadEvents: read_events,
    AppendEvents: append_events,
    Sweep: sweep,
    SealEvents: seal_events,
    ReadSeals: read_seals,
    CountRecords: count_records,
    CountUnsettled: count_unsettled,
}
