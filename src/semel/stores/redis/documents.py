"""Documents, written once: each question yields rows of requests and receives their answers.

All that a tenant has lies in one lane, and so on one server: a commit is one step, and its events go into
that lane's log. The lane's mark is the tenant's too, and a lane that knows of fewer commits than this process
saw has lost some.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from semel.audit.events import Event
from semel.stores.documents import (
    Capacity,
    Commit,
    Committed,
    Count,
    Document,
    Draft,
    Entry,
    Fetch,
    Fetched,
    Scan,
    Scanned,
    Tenants,
    Weigh,
)
from semel.stores.redis import scripts, trouble
from semel.stores.redis.commands import Arguments, LaneKeys, Request, Translator
from semel.stores.redis.first_form import event_body
from semel.stores.redis.packed_documents import (
    document_bytes,
    document_digest,
    document_of,
    member_of,
    packed_entry,
    packed_index,
    packed_score,
    tenant_digest,
)
from semel.stores.redis.packing import digest_of
from semel.stores.redis.queries import Asking

# Documents read in one go while an index is scanned: of usual ones a megabyte or so.
_PAGE = 500

# What `commit` answers; 1 is done.
_UNEXPECTED, _FULL = 0, 2

# Behind a score: above every id, because no text has this byte. Eight more are above every score.
_ABOVE = b"\xff"
_ABOVE_ALL = _ABOVE * 9


class Home(NamedTuple):
    """Where a tenant's documents are."""

    tenant: str
    lane: LaneKeys
    indexes: bytes

    def document(self, id_: str) -> bytes:
        return self.lane.document(document_digest(self.tenant, id_))

    def log(self, events: Sequence[Event]) -> Arguments:
        """The keys that these events touch; a record that lives in another lane is not found here."""
        if not events:
            return ()
        records = (self.lane.record(digest_of(event.at)) for event in events)
        return self.lane.ids, self.lane.events, *records


def _home(translator: Translator, tenant: str) -> Home:
    digest = tenant_digest(tenant)
    lane = translator.lane_of(digest)
    return Home(tenant, lane, lane.indexes(digest))


def _all_of(index: bytes) -> tuple[bytes, bytes]:
    return b"[" + index, b"(" + index + _ABOVE_ALL


def _ask(translator: Translator, request: Request) -> Asking:
    """The answer's kind, the time, and its content or None."""
    (answer,) = yield [request]
    return _heard(translator, request, answer)


def _heard(translator: Translator, request: Request, answer: Any) -> tuple[int, int, Any]:
    trouble.check(answer)
    kind, now_us, commits, _, *content = answer
    translator.heard_commits(request.lane, commits)
    return kind, now_us, content[0] if content else None


# --- the one that writes --------------------------------------------------------------------------


def commit(translator: Translator, query: Commit) -> Asking:
    home = _home(translator, query.tenant)
    # The first one written comes first: by its tag a repeat is recognised.
    ids = list(dict.fromkeys((*(draft.id for draft in query.put), *query.expect, *query.drop)))
    events = query.events if translator.audit else ()
    request = translator.document_step(
        home.lane,
        scripts.COMMIT,
        (home.indexes, home.lane.heads, *map(home.document, ids), *home.log(events)),
        _commit_arguments(query, ids, events, translator.seen(home.lane.number)),
        # A removal leaves no tag by which its repeat could be told from somebody else's.
        repeatable=bool(query.put),
    )
    kind, now_us, content = yield from _ask(translator, request)
    if kind == _UNEXPECTED:
        return Committed(False, now_us, _unexpected(query, ids, content))
    if kind == _FULL:
        number, count = content
        return Committed(False, now_us, {}, query.capacity[number - 1], count)
    if content is not None:
        translator.heard(home.lane.number, content)
    return Committed(True, now_us, {})


def _commit_arguments(query: Commit, ids: Sequence[str], events: Sequence[Event], seen: bytes) -> Arguments:
    drafts, dropped = {draft.id: draft for draft in query.put}, set(query.drop)
    tag = query.tag.encode() if query.put else b""
    words = [query.tenant.encode(), tag, b"%d" % len(query.capacity), b"%d" % len(events), seen]
    for capacity in query.capacity:
        words += _capacity(capacity)
    for id_ in ids:
        words.append(_expectation(query, id_))
        words += _change(query, drafts.get(id_), id_ in dropped)
    for event in events:
        words += (digest_of(event.at), event.record_id.encode(), event_body(event))
    return tuple(words)


def _capacity(capacity: Capacity) -> Arguments:
    return *_all_of(packed_index(capacity.index_name)), b"%d" % capacity.limit


def _expectation(query: Commit, id_: str) -> bytes:
    if id_ not in query.expect:
        return b""
    tag = query.expect[id_]
    return b"-" if tag is None else b"=" + tag.encode()


def _change(query: Commit, draft: Draft | None, dropped: bool) -> Arguments:
    if draft is not None:
        return b"+", document_bytes(query.tenant, query.tag, draft)
    return b"-" if dropped else b"", b""


def _unexpected(query: Commit, ids: Sequence[str], numbered: list[Any]) -> dict[str, Document | None]:
    data_of = {ids[number - 1]: data for number, data in numbered}
    return {
        id_: None if data_of[id_] is None else document_of(query.tenant, id_, data_of[id_])
        for id_ in query.expect
        if id_ in data_of
    }


# --- those that read ------------------------------------------------------------------------------


def fetch(translator: Translator, query: Fetch) -> Asking:
    now_us, documents = yield from _fetched(translator, _home(translator, query.tenant), query.ids)
    return Fetched(now_us, {document.id: document for document in documents if document})


def _fetched(translator: Translator, home: Home, ids: Sequence[str]) -> Asking:
    """The time, and of each id the document or None."""
    request = translator.document_step(home.lane, scripts.FETCH, tuple(map(home.document, ids)), ())
    _, now_us, stored = yield from _ask(translator, request)
    return now_us, [
        None if data is None else document_of(home.tenant, id_, data)
        for id_, data in zip(ids, stored, strict=True)
    ]


def scan(translator: Translator, query: Scan) -> Asking:
    """The index first, then its documents: one that left meanwhile is left out, and the next one read."""
    home, index = _home(translator, query.tenant), packed_index(query.index)
    scanned: dict[str, Document] = {}
    after = query.after
    while True:
        size = min(_PAGE, query.limit - len(scanned))
        now_us, page = yield from _page(translator, home, index, query, after, size)
        if page:
            now_us, documents = yield from _fetched(translator, home, [id_ for _, id_ in page])
            for (score, id_), document in zip(page, documents, strict=True):
                if document is not None and Entry(query.index, score) in document.entries:
                    scanned.setdefault(id_, document)
            after = page[-1]
        if len(page) < size or len(scanned) >= query.limit:
            return Scanned(now_us, list(scanned.values()))


def _page(
    translator: Translator, home: Home, index: bytes, query: Scan, after: tuple[int, str] | None, size: int
) -> Asking:
    """The time, and (score, id) of what stands in the index next."""
    newest = b"1" if query.newest else b"0"
    own = (*_part(index, query, after), b"%d" % size, newest)
    _, now_us, members = yield from _ask(
        translator, translator.document_step(home.lane, scripts.SCAN, (home.indexes,), own)
    )
    return now_us, [member_of(index, member) for member in members]


def _part(index: bytes, query: Scan, after: tuple[int, str] | None) -> tuple[bytes, bytes]:
    """The part of an index that is still to be scanned: from, to."""
    start, stop = _all_of(index)
    if query.upto is not None:
        stop = b"(" + index + packed_score(query.upto) + _ABOVE
    if after is not None:
        score, id_ = after
        seen = b"(" + packed_entry(Entry(query.index, score)) + id_.encode()
        if query.newest:
            stop = min(stop, seen)
        else:
            start = seen
    return start, stop


def count(translator: Translator, query: Count) -> Asking:
    home = _home(translator, query.tenant)
    request = translator.document_step(
        home.lane, scripts.COUNT, (home.indexes,), _all_of(packed_index(query.index))
    )
    _, _, total = yield from _ask(translator, request)
    return total


def tenants(translator: Translator, query: Tenants) -> Asking:
    """Each lane knows where its tenants' indexes begin: the cost follows what is due, not who ever came."""
    upto = b"" if query.upto is None else packed_score(query.upto)
    own = (packed_index(query.index), upto)
    requests = [
        translator.document_step(lane, scripts.TENANTS, (lane.heads,), own) for lane in translator.lanes
    ]
    answers = yield requests
    heard = [_heard(translator, request, answer) for request, answer in zip(requests, answers, strict=True)]
    return [tenant.decode() for _, _, names in heard for tenant in names]


def weigh(translator: Translator, query: Weigh) -> Asking:
    """Counted by every commit: a tenant's documents stand in no list that could be gone through."""
    home = _home(translator, query.tenant)
    request = translator.document_step(home.lane, scripts.WEIGH, (), (query.tenant.encode(),))
    _, _, total = yield from _ask(translator, request)
    return total


ANSWERS: dict[type, Callable[[Translator, Any], Asking]] = {
    Commit: commit,
    Fetch: fetch,
    Scan: scan,
    Count: count,
    Tenants: tenants,
    Weigh: weigh,
}
