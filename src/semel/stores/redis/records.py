"""What is asked of records: lists, one by its id, how many there are."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from semel.kernel.record import Address, Record, State, effective_state, unsettled_only
from semel.stores.base import CountRecords, CountUnsettled, FindRecord, ListRecords, Whose
from semel.stores.redis import book, scripts, trouble
from semel.stores.redis.commands import LaneKeys, Request, Translator
from semel.stores.redis.packed_records import record_of
from semel.stores.redis.packing import tenant_of, tenant_prefix, time
from semel.stores.redis.queries import (
    PAGE,
    TIME_BYTES,
    Asking,
    checked,
    entries_of_id,
    marks,
    plain,
    present,
    read_records,
    store_time,
)

# What stands on the list before a tenant: nothing, or, of records that are stopped, a byte above all others.
_ALL, _STOPPED = b"", b"\xff"

# The second byte of a record that is stopped.
_STOPPED_CODES = frozenset(bytes((scripts.CODES[state],)) for state in (State.WAITING, State.IN_DOUBT))


def list_records(translator: Translator, query: ListRecords) -> Asking:
    now_us = yield from store_time(translator, translator.lanes[0])
    if unsettled_only(query.states):
        records = yield from _unsettled(translator, query, now_us)
    else:
        records = yield from _of_tenants(translator, query, now_us, _ALL)
    records.sort(key=lambda record: (record.created_at, record.request.id), reverse=True)
    return records[: query.limit]


def find_record(translator: Translator, query: FindRecord) -> Asking:
    for lane, entry in (yield from entries_of_id(translator, query.id)):
        if len(entry) != TIME_BYTES:
            (data,) = yield [plain(lane, b"GET", lane.record(entry))]
            record = None if data is None else record_of(data)
            if (
                record is not None
                and record.request.at.tenant == query.tenant
                and record.request.id == query.id
            ):
                return record
    return None


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


def count_unsettled(translator: Translator, query: CountUnsettled) -> Asking:
    now_us = yield from store_time(translator, translator.lanes[0])
    every = ListRecords(query.tenant, states=query.states, limit=sys.maxsize)
    records = yield from _unsettled(translator, every, now_us)
    return dict(
        Counter(
            Whose(record.request.at.tenant, record.request.tool, effective_state(record, now_us))
            for record in records
        )
    )


# --- the list -------------------------------------------------------------------------------------


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
            records += yield from book.newest(translator, query, now_us, tenant)
    return records


def _listed(translator: Translator, query: ListRecords, now_us: int, tenant: bytes) -> Asking:
    """Of each lane the newest that fit: what was created in the same moment comes or stays out as a whole."""
    records: list[Record] = []
    tops = dict.fromkeys(translator.lanes, _top(query, tenant))
    size = PAGE if _selective(query) else min(PAGE, query.limit)
    while tops:
        lanes = list(tops)
        pages = checked(translator, lanes, (yield [*marks(lanes), *_pages(tops, tenant, size)]))
        full = [(lane, page) for lane, page in zip(lanes, pages, strict=True) if page]
        answers = yield [plain(lane, b"MGET", *_keys(lane, page)) for lane, page in full]
        tops = {}
        for (lane, page), data in zip(full, answers, strict=True):
            fitting = [record for record in present(data) if query.wants(record, now_us)]
            records += fitting
            last = page[-1][len(tenant) : len(tenant) + TIME_BYTES]
            if len(page) == size and (len(fitting) < query.limit or page[0][len(tenant) :].startswith(last)):
                tops[lane] = b"(" + page[-1]
            elif len(page) == size:
                rest = plain(lane, b"ZREVRANGEBYLEX", lane.list, b"(" + page[-1], b"[" + tenant + last)
                (same,) = yield [rest]
                others = yield from read_records(lane, [member[-lane.digest_bytes :] for member in same])
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
        tenants |= yield from book.tenants(translator)
    return sorted(tenants)


def _first(lane: LaneKeys, bottom: bytes, part: bytes) -> Request:
    top = b"+" if part else b"(" + _STOPPED
    return plain(lane, b"ZRANGEBYLEX", lane.list, bottom, top, b"LIMIT", b"0", b"1")


def _keys(lane: LaneKeys, page: list[bytes]) -> list[bytes]:
    return [lane.record(member[-lane.digest_bytes :]) for member in page]


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
        for key, size in book.indexes(lane, PAGE, book.PAGES):
            page: list[bytes] = []
            start = 0
            while start == 0 or len(page) == size:
                limits = (b"LIMIT", b"%d" % start, b"%d" % size)
                request = plain(lane, b"ZRANGEBYSCORE", key, b"0", upto, *limits)
                (page,) = checked(translator, [lane], (yield [*marks([lane]), request]))
                start += size
                digests = (yield from book.digests_on(lane, page)) if key == lane.pages else page
                for record in (yield from read_records(lane, digests)):
                    if record.state is State.PENDING and query.wants(record, now_us):
                        records[record.request.at] = record
    return records


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
    bottom, page = b"-", [b""] * PAGE
    while len(page) == PAGE:
        (page,) = yield [plain(lane, b"ZRANGEBYLEX", lane.list, bottom, b"+", b"LIMIT", b"0", b"%d" % PAGE)]
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


ANSWERS: dict[type, Callable[[Translator, Any], Asking]] = {
    ListRecords: list_records,
    FindRecord: find_record,
    CountRecords: count_records,
    CountUnsettled: count_unsettled,
}
