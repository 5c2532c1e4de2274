"""What the ages of retries say about windows: which window covers them, and what it would store.

A retry that comes after its window is a new action, and nobody counts its age when it comes. The audit log
tells it afterwards, while it keeps both: one key, claimed again after its window (audit/duplicates.py). And
how the retries that were seen lie in their window tells it too: if more than one in a thousand came in its
last tenth, the end of the window probably cut some off, and the window that covers what was *seen* is no
answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from semel.audit.duplicate_report import late_by_tool
from semel.audit.duplicates import LateRepeats
from semel.audit.pages import Progress, records, silent
from semel.kernel.answers import KeepsJson, WindowJson
from semel.kernel.clock import rfc3339
from semel.kernel.durations import words
from semel.kernel.record import OF_HTTP, OF_TOOL, Record
from semel.ledger.records import terms
from semel.ledger.request_keys import key_record
from semel.stores.base import Store
from semel.stores.documents import Count, Scan, score_on
from semel.stores.index_names import keys_of
from semel.windows.age_counters import ENTITY, KEY, OTHER, TOOL, SubjectAges, read_ages
from semel.windows.ages import BOUNDS_US, Ages, Met, covering_us, later_than

_US_PER_DAY = 86_400_000_000

# Of a thousand retries so many should meet their window.
PER_MILLE = 999

# The order of the list.
_ORDER = {TOOL: 0, ENTITY: 1, KEY: 2}

# Enough for a rate; a million records would take longer than a person waits.
_RECORDS_LOOKED_AT = 10_000
_KEYS_LOOKED_AT = 500


@dataclass(frozen=True, slots=True)
class Stock:
    """What arrives, as far as the newest records tell."""

    a_day: float  # records
    bytes_each: float
    window_us: int | None = None  # what the newest of them says

    def kept(self, window_us: int) -> int:
        """About how many records a window of this length keeps."""
        return round(self.a_day * window_us / _US_PER_DAY)

    def kept_bytes(self, window_us: int) -> int:
        return round(self.a_day * window_us / _US_PER_DAY * self.bytes_each)


@dataclass(frozen=True, slots=True)
class Advice:
    """One tool, or one kind of keys that clients send: its retries, its window, and what follows."""

    kind: str
    name: str
    ages: Ages  # those after the window among them
    covering_us: int  # covers 99.9 % of the retries that were seen
    window_us: int | None  # at present; None: for ever, or nobody knows
    met: Met  # how retries met the present window
    later: int  # retries that certainly came later than the present window is long
    stock: Stock | None
    after: int = 0  # retries that came after their window, as the audit log tells

    @property
    def cut_off(self) -> bool:
        """Whether so many came at the end of the window that others probably came after it, unseen."""
        return self.met.late * 1_000 > self.met.retries * (1_000 - PER_MILLE)

    @property
    def too_short(self) -> bool:
        return self.window_us is not None and (self.covering_us > self.window_us or self.cut_off)

    @property
    def window_words(self) -> str | None:
        """None: nobody knows."""
        if self.window_us is not None:
            return words(self.window_us)
        return "for ever" if None in self.ages.windows else None

    def remarks(self) -> list[str]:
        """What a person should know before choosing."""
        texts = []
        if self.after:
            texts.append(
                f"{self.after} of {self.ages.retries} retries came after their window: each was a new "
                "action, and the tool ran again. `semel audit duplicates` shows them."
            )
        if self.window_us is not None and self.later:
            texts.append(
                f"{self.later} of {self.ages.retries} retries came later than {words(self.window_us)}, the "
                "window: they were recognised because the call was still in doubt, or the window longer. "
                "After it a retry is a new action."
            )
        if self.window_us is not None and self.cut_off:
            longer = words(_longer(max(self.window_us, self.covering_us)))
            texts.append(
                f"{self.met.late} of {self.met.retries} retries came in the last tenth of the window of "
                f"{words(self.window_us)}. Those after it are not seen: each is a new action. The window is "
                f"probably too short; try {longer} and look again."
            )
        elif self.too_short:
            texts.append(f"The window is too short: {words(self.covering_us)} would cover 99.9 %.")
        if self.ages.retries < 1_000:
            seen = "1 retry was" if self.ages.retries == 1 else f"{self.ages.retries} retries were"
            texts.append(f"Only {seen} seen: 99.9 % are all of them.")
        return texts


def _longer(us: int) -> int:
    """A window at least twice as long, as a person would write it."""
    return next((bound_us for bound_us in BOUNDS_US if bound_us >= 2 * us), BOUNDS_US[-1])


def advise(store: Store, tenant: str, tool: str | None = None, progress: Progress = silent) -> list[Advice]:
    """What is known of the tenant's retries, by kind and name: of all of them, or of one tool."""
    late = late_by_tool(store, tenant, progress)
    subjects = read_ages(store, tenant)
    counted = {subject.name for subject in subjects if subject.kind == TOOL}
    subjects += [SubjectAges(TOOL, name) for name in late if name not in counted]
    after = {(TOOL, name): repeats for name, repeats in late.items()}
    chosen = [
        (subject, after.get((subject.kind, subject.name)))
        for subject in sorted(
            subjects, key=lambda subject: (_ORDER[subject.kind], subject.name == OTHER, subject.name)
        )
        if (subject.ages.counts or (subject.kind, subject.name) in after) and tool in (None, subject.name)
    ]
    tools = _tool_stocks(store, tenant) if any(subject.kind == TOOL for subject, _ in chosen) else {}
    return [_advice(subject, repeats, _stock(store, tenant, subject, tools)) for subject, repeats in chosen]


def _stock(store: Store, tenant: str, subject: SubjectAges, tools: dict[str, Stock]) -> Stock | None:
    if subject.kind == KEY:
        return _key_stock(store, tenant, subject.name)
    return tools.get(subject.name) if subject.kind == TOOL else None


def _advice(subject: SubjectAges, late: LateRepeats | None, stock: Stock | None) -> Advice:
    seen, ages = subject.ages, Ages()
    ages.absorb(seen)
    if late is not None:
        ages.absorb(late.ages)
    window_us = stock.window_us if stock and stock.window_us else seen.window_us
    if stock is None and late is not None and not seen.windows:
        window_us = late.window_us  # no record is left to tell it
    return Advice(
        subject.kind,
        subject.name,
        ages,
        covering_us(ages.counts, PER_MILLE),
        window_us,
        seen.windows.get(window_us, Met(0, 0, 0)),
        0 if window_us is None else later_than(seen.counts, window_us),
        stock,
        late.count if late else 0,
    )


def as_data(advice: Advice) -> WindowJson:
    ages, stock, window_us = advice.ages, advice.stock, advice.window_us
    return {
        "tool": advice.name,
        "kind": advice.kind,
        "retries": ages.retries,
        "first_at": rfc3339(ages.first_us),
        "last_at": rfc3339(ages.last_us),
        "ages": [
            {"under": words(bound_us), "retries": ages.counts[bound_us]} for bound_us in sorted(ages.counts)
        ],
        "covering": words(advice.covering_us),
        "window": advice.window_words,
        "later_than_window": advice.later,
        "after_window": advice.after,
        "met_window": advice.met.retries,
        "late_in_window": advice.met.late,
        "too_short": advice.too_short,
        "records_a_day": None if stock is None else round(stock.a_day, 1),
        "record_bytes": None if stock is None else round(stock.bytes_each),
        "window_keeps": _kept(stock, window_us),
        "covering_keeps": _kept(stock, advice.covering_us),
        "remarks": advice.remarks(),
    }


def _kept(stock: Stock | None, window_us: int | None) -> KeepsJson | None:
    if stock is None or window_us is None:
        return None
    return {"records": stock.kept(window_us), "bytes": stock.kept_bytes(window_us)}


# --- what arrives ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Heap:
    """Records of one tool."""

    newest: Record
    sizes: list[int] = field(default_factory=list)


def _tool_stocks(store: Store, tenant: str) -> dict[str, Stock]:
    heaps: dict[str, _Heap] = {}
    now_us = oldest_us = store.clock.now_us()
    looked_at = 0
    for record in islice(records(store, tenant), _RECORDS_LOOKED_AT):
        looked_at, oldest_us = looked_at + 1, record.created_at
        if record.request.at.scope in (OF_TOOL, OF_HTTP):
            heaps.setdefault(record.request.tool, _Heap(record)).sizes.append(_size(record))
    whole = looked_at < _RECORDS_LOOKED_AT
    return {
        tool: Stock(
            _a_day(len(heap.sizes), now_us - oldest_us, whole), _mean(heap.sizes), _window_us(heap.newest)
        )
        for tool, heap in heaps.items()
    }


def _key_stock(store: Store, tenant: str, scope: str) -> Stock | None:
    index = keys_of(scope)
    scanned = store.ask(Scan(tenant, index, _KEYS_LOOKED_AT, newest=True))
    if not scanned.documents:
        return None
    oldest_us = score_on(scanned.documents[-1], index)
    whole = store.ask(Count(tenant, index)) <= len(scanned.documents)
    a_day = _a_day(len(scanned.documents), scanned.now_us - oldest_us, whole)
    newest = key_record(scanned.documents[0])
    window_us = None if newest.expires_us is None else newest.expires_us - newest.created_us
    return Stock(a_day, _mean([len(document.body) for document in scanned.documents]), window_us)


def _a_day(count: int, span_us: int, whole: bool) -> float:
    """How many arrive a day. If these are all there are, a busy first hour is not taken for a whole day."""
    return count * _US_PER_DAY / max(span_us, _US_PER_DAY if whole else 1)


def _mean(sizes: Sequence[int]) -> float:
    return sum(sizes) / len(sizes)


def _size(record: Record) -> int:
    """Bytes of what a record says, before a store's own."""
    request = record.request
    texts = (
        *request.at,
        request.id,
        request.tool,
        request.terms,
        request.conversation,
        request.step,
        request.principal,
    )
    return sum(map(len, texts)) + len(request.arguments) + len(record.outcome or b"")


def _window_us(record: Record) -> int | None:
    window_us: int | None = terms(record).get("window_us")
    return window_us
