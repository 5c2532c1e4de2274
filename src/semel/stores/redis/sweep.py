"""The sweep: what lapsed is marked, what is closed goes, and so do sealed events that are old enough."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from semel.audit.events import Seal
from semel.stores.base import Sweep, Swept
from semel.stores.redis import book, event_log, scripts, trouble
from semel.stores.redis.commands import LaneKeys, Request, Translator
from semel.stores.redis.packed_events import refers, seal_of
from semel.stores.redis.packed_records import end_of, id_fields
from semel.stores.redis.packing import time
from semel.stores.redis.queries import Asking, checked, marks, plain, store_time
from semel.stores.redis.scripts import Script

log = logging.getLogger("semel")

# Sealed runs dropped in one sweep, of 1 000 events each: a tenth of a second at most.
_RUNS_DROPPED_MAX = 20

# No event refers to one that is further behind it; and none to one half as old as what is dropped. (NEAR and
# RECENT in steps/record.lua.)
_NEAR, _DROPPED_AGE_US = 1_000, 1_200_000_000


class DuePage(NamedTuple):
    """A page of a lane's book at which the sweeper has to look, and what is due on it."""

    lane: LaneKeys
    name: bytes
    digests: list[bytes]


def sweep(translator: Translator, query: Sweep) -> Asking:
    """The answer, and the digests of what lapsed, so that who waits here can be woken."""
    now_us = yield from store_time(translator, translator.lanes[0])
    lanes, limit = translator.lanes, query.limit
    sizes = (limit, limit // book.PAGE_RECORDS + 1)
    indexes = [(lane, *index) for lane in lanes for index in book.indexes(lane, *sizes)]
    filed = [request for lane, key, size in indexes for request in _filed(lane, key, size, b"%d" % now_us)]
    answers = checked(translator, lanes, (yield [*marks(lanes), *filed]))
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
        pages = yield from book.pages_named(lane, own)
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
        pages = yield from book.pages_named(lane, names)
        requests = []
        for name in names:
            tenant, number = book.page_named(name)
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


# --- sealed events --------------------------------------------------------------------------------


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
    if any(event.at_us >= before_us for event, _ in event_log.events_in(entries)):
        return False
    behind = plain(lane, b"XRANGE", lane.events, b"0-%d" % (seal.last_seq + 1), b"+", b"COUNT", b"%d" % _NEAR)
    entries, later = yield [plain(lane, b"XRANGE", lane.events, b"-", last), behind]
    needed = {
        link
        for (_, link), (_, (_, data)) in zip(event_log.events_in(later), later, strict=True)
        if refers(data) and link <= seal.last_seq
    }
    dropped = yield from event_log.whole(lane, entries)
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


ANSWERS: dict[type, Callable[[Translator, Any], Asking]] = {Sweep: sweep}
