"""The book of a lane: of each tenant the records in the order in which they were made, some on each page.

steps/record.lua writes it. The page that is being filled stands under its tenant's name, a full one under its
own.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from semel.errors import StoreCorrupt
from semel.kernel.record import Record
from semel.stores.base import ListRecords
from semel.stores.redis.commands import LaneKeys, Translator
from semel.stores.redis.packing import LENGTH
from semel.stores.redis.queries import PAGE, Asking, checked, marks, plain, read_records

# How many records a page of the book has (steps/record.lua says the same).
PAGE_RECORDS = 16

_PAGE = struct.Struct(">IIIQBQ")

# Pages of a tenant's book read in one go: as many records.
PAGES = 32


def tenants(translator: Translator) -> Asking:
    """Who has a page in the book of any lane."""
    whose: set[str] = set()
    cursors = dict.fromkeys(translator.lanes, b"0")
    while cursors:
        lanes = list(cursors)
        answers = yield [
            plain(lane, b"ZSCAN", lane.pages, cursors[lane], b"COUNT", b"%d" % PAGE) for lane in lanes
        ]
        cursors = {}
        for lane, (cursor, members) in zip(lanes, answers, strict=True):
            whose |= {page_named(name)[0] for name in members[::2] if name}
            if cursor != b"0":
                cursors[lane] = cursor
    return whose


def newest(translator: Translator, query: ListRecords, now_us: int, tenant: str) -> Asking:
    """Of each lane's book the newest that fit, with all that were created in the same moment as the last."""
    lanes = translator.lanes
    queries = [plain(lane, b"HGET", lane.book, tenant.encode()) for lane in lanes]
    answers = checked(translator, lanes, (yield [*marks(lanes), *queries]))
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
            on_page = yield from read_records(lane, page.digests)
            records += [record for record in on_page if query.wants(record, now_us)]
        if number < open_page.lowest:
            return records
        stop = max(open_page.lowest - 1, number - PAGES)
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
        names = [page_name(tenant, each) for each in range(number, min(below, number + PAGES))]
        (answers,) = yield [plain(lane, b"HMGET", lane.book, *names)]
        for data in answers:
            if data is not None:
                return page_of(data, lane.digest_bytes)
        number += PAGES
    return None


def indexes(lane: LaneKeys, records: int, pages: int) -> list[tuple[bytes, int]]:
    """What the sweeper goes by, and how much of it is read in one go: records of the first form; pages."""
    single = [(lane.due, records)] if lane.due != lane.pages else []
    return [*single, (lane.pages, pages)]


def digests_on(lane: LaneKeys, names: list[bytes]) -> Asking:
    """The digests of the records on the pages with these names."""
    pages = yield from pages_named(lane, names)
    return [digest for page in pages.values() for digest in page.digests]


def pages_named(lane: LaneKeys, names: list[bytes]) -> Asking:
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


# --- a page as it is stored -------------------------------------------------------------------------


class BookPage(NamedTuple):
    """What stands on one page of a tenant's book, and what is known of the others."""

    number: int
    lowest: int  # of the page that is being filled: no page has a lower number
    back: int  # and this one the highest whose records' times are not in their order
    high: int  # the latest time at which something up to here was created
    entries: bytes
    digests: list[bytes]
    name: bytes  # if it is known


def page_of(data: bytes, digest_bytes: int, name: bytes = b"") -> BookPage:
    try:
        number, lowest, back, _, _, high = _PAGE.unpack_from(data)
    except struct.error as error:
        raise StoreCorrupt("A list of records is damaged.") from error
    entries = data[_PAGE.size :]
    if len(entries) % digest_bytes:
        raise StoreCorrupt("A list of records is damaged.")
    starts = range(0, len(entries), digest_bytes)
    digests = [entries[start : start + digest_bytes] for start in starts]
    return BookPage(number, lowest, back, high, entries, digests, name)


def page_name(tenant: str, number: int) -> bytes:
    return tenant.encode() + b"\xff" + LENGTH.pack(number)


def page_named(name: bytes) -> tuple[str, int]:
    """Whose page this is, and which."""
    tenant, number = name[:-5], name[-4:]
    return tenant.decode(), int.from_bytes(number, "big")
