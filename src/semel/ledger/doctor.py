"""Is this store safe: what an acknowledged write survives, what is in doubt, what would be lost, and when."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from semel.audit.pages import records
from semel.kernel.clock import rfc3339
from semel.kernel.durations import words
from semel.kernel.record import SETTLED, State
from semel.ledger.records import terms
from semel.stores.base import CountRecords, Finding, Store
from semel.stores.documents import Count, Tenants
from semel.stores.index_names import KEYS

# Enough to have met every tool that is in use; a million records would take longer than a person waits.
_RECORDS_LOOKED_AT = 20_000

# Above every score in an index.
_ANY_SCORE = (1 << 53) - 1

_US_PER_DAY = 86_400_000_000


def examine(store: Store, tenant: str = "default") -> list[Finding]:
    """What a person should know: the store, then the tenant's records. A `danger` is a reason to act now."""
    own = [finding for finding in store.findings() if finding.subject != "audit"]
    tenants = (*_doubts(store, tenant), *_windows(store, tenant))
    return [*_durability(store), *own, _audit(store), *tenants, _loss(store)]


def safe(findings: list[Finding]) -> bool:
    return all(finding.level != "danger" for finding in findings)


def _durability(store: Store) -> Iterator[Finding]:
    if store.name == "memory":
        fix = "For anything but tests open a file: sqlite:///semel.db."
        yield Finding("danger", "durability", store.durability, fix)
    else:
        yield Finding("ok", "promise", store.durability)


def _audit(store: Store) -> Finding:
    if store.audit:
        days = store.audit_kept_us // _US_PER_DAY
        return Finding("ok", "audit", f"on: one event per transition in the same commit, kept {days} days")
    return Finding(
        "note",
        "audit",
        "off: this withdraws the audit promise. Transitions leave no events, so nothing can be verified, and "
        "duplicates cannot be found",
        "Open without ?audit=off.",
    )


def _doubts(store: Store, tenant: str) -> Iterator[Finding]:
    oldest_us, doubtful, marked = store.clock.now_us(), 0, 0
    for record in records(store, tenant, frozenset((State.IN_DOUBT,))):
        doubtful += 1
        marked += record.state is State.IN_DOUBT  # the others lapsed, and nobody swept them yet
        oldest_us = min(oldest_us, record.entered_at or record.created_at)
    yield _doubt(doubtful, oldest_us, tenant)
    elsewhere = store.ask(CountRecords()).get(State.IN_DOUBT, 0) - marked
    if elsewhere > 0:
        yield Finding(
            "note",
            "in doubt",
            f"{elsewhere} of other tenants",
            "`semel records list --state in_doubt --all-tenants` says whose.",
        )


def _doubt(doubtful: int, oldest_us: int, tenant: str) -> Finding:
    if not doubtful:
        return Finding("ok", "in doubt", f"no record of tenant {tenant}")
    return Finding(
        "note",
        "in doubt",
        f"{doubtful} of tenant {tenant}, the oldest since {rfc3339(oldest_us)}: each may have taken effect",
        "`semel records list --state in_doubt`, ask the downstream, then `semel records resolve`.",
    )


def _windows(store: Store, tenant: str) -> Iterator[Finding]:
    """Tools whose downstream forgets before Semel does, as far as the newest records tell."""
    short: dict[str, str] = {}
    for record in islice(records(store, tenant), _RECORDS_LOOKED_AT):
        contract = terms(record)
        downstream_us, window_us = contract.get("downstream_us"), contract.get("window_us")
        if downstream_us is not None and window_us is not None and downstream_us < window_us:
            short.setdefault(record.request.tool, f"{words(downstream_us)}, the window is {words(window_us)}")
    yield from (_short_window(tool, durations) for tool, durations in sorted(short.items()))


def _short_window(tool: str, durations: str) -> Finding:
    return Finding(
        "note",
        f"tool {tool}",
        f"the downstream forgets keys after {durations}: a later doubt is not retried but probed or parked",
        "Resolve doubts within that time, or give the tool a probe.",
    )


def _loss(store: Store) -> Finding:
    counts = store.ask(CountRecords())
    settled = sum(count for state, count in counts.items() if state in SETTLED)
    open_ = sum(counts.get(state, 0) for state in (State.PENDING, State.IN_DOUBT, State.WAITING))
    begun = sum(
        store.ask(Count(tenant, index)) for index in KEYS for tenant in store.ask(Tenants(index, _ANY_SCORE))
    )
    return Finding(
        "ok",
        "loss",
        f"if this store is lost, or an older copy of it is put back, {settled} settled and {open_} open keys "
        f"of tools and {begun} keys of runs and jobs are forgotten: a retry of one of them runs its tool, or "
        "starts its run or job, again",
    )
