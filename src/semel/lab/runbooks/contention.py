"""`semel runbook contention`: many callers want the two slots of one tenant; who waits, who is refused.

Step by step: everyone tries once, and nobody's run ends; then runs end after a moment, and callers come back
after a fixed delay; then with exponential full jitter above what `Retry-After` says. Each with atomic
admission, and behind a lock whose own looks are jittered or fixed; with 100 callers, and with ten times as
many. Last, how long to wait for the lock and how long to come back are tried together.

The gateway is a process of its own, and so are the callers (contention_callers). Requests for the lock are
noted where they go to the store (watched_gateway).
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

from semel.client import Gateway, Problem
from semel.kernel.clock import SYSTEM
from semel.lab.runbooks import watched_gateway
from semel.lab.runbooks.contention_callers import CallerProcesses, CallerResults, Order, Retry
from semel.lab.runbooks.runbook import Runbook
from semel.lab.runbooks.served import ServedGateway, own_gateway

CALLERS, BURST = 100, 10
LIMIT = 2

# How long a run lasts. The slots alone would let 100 runs a second through.
HOLD_S = 0.02

# For how long a caller comes back.
BUDGET_S = 3.0

# How long a gateway waits for the lock, if nobody says otherwise.
LOCK_WAIT = "2s"

STRATEGIES = ("atomic", "lock jitter", "lock fixed")
CLIENTS: tuple[Retry, ...] = ("none", "fixed", "jitter")
SERVERS_OWN = "the server's own"

# All of it together ends within 200 s, plots included: what would begin later is left out.
WHOLE_S = 150.0

# Two rows that differ by less are equal: they are tried minutes apart, and a machine has other things to do.
NEARLY = 0.8

# Nobody notices less.
SAME_MS = 100.0


class Variant(NamedTuple):
    """One way to admit, and one way in which callers come back."""

    strategy: str
    client: Retry
    callers: int
    budget_s: float = BUDGET_S
    lock_wait: str = LOCK_WAIT

    @property
    def slot_wait(self) -> str | None:
        """Callers that come back are as patient at every gateway: behind the lock for it, else for a slot."""
        return None if self.client == "none" or self.strategy.startswith("lock") else self.lock_wait

    @property
    def name(self) -> str:
        return f"{self.strategy}, client {self.client}, {self.callers} callers"

    @property
    def full_name(self) -> str:
        return f"{self.name}, --lock-wait {self.lock_wait}, for {self.budget_s:g} s"


@dataclass
class Trial:
    """What happened, in seconds since the callers began."""

    variant: Variant
    results: CallerResults
    looks: list[float] = field(default_factory=list)  # at the lock, as they went to the store

    @property
    def admitted(self) -> int:
        return len(self.results.admitted)

    @property
    def most_active(self) -> int:
        """The most runs at once, of those whose callers knew of them and had not begun to end them."""
        changes = sorted(
            change for at, until in self.results.admitted for change in ((at, 1), (until, -1))
        )  # at one moment, those that end first
        active = most = 0
        for _, change in changes:
            active += change
            most = max(most, active)
        return most

    def count(self, status: int) -> int:
        return sum(each == status for _, _, each in self.results.requests)

    def latency_ms(self, part: float) -> float:
        """How long a request takes, whatever its answer."""
        return 1000 * quantile([took for _, took, _ in self.results.requests], part)

    def admitted_after_ms(self, part: float) -> float:
        """How long a caller needs to be admitted, all its tries together."""
        return 1000 * quantile([at for at, _ in self.results.admitted], part)

    def peak(self, width_s: float = 0.01) -> int:
        """The most looks at the lock in one slice of time."""
        return max(Counter(int(at / width_s) for at in self.looks).values(), default=0)

    def spread(self) -> float:
        """How evenly successes are spread: the longest gap between two, against the mean gap."""
        times = sorted(at for at, _ in self.results.admitted)
        gaps = [later - earlier for earlier, later in pairwise(times)]
        return max(gaps) / (sum(gaps) / len(gaps)) if gaps and sum(gaps) else 0.0


def quantile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else float("nan")


# --- what is tried ----------------------------------------------------------------------------------


def variants(strategy: str, callers: int, budget_s: float) -> Iterator[Variant]:
    """Every kind of client, at the usual number of callers and at a burst; first without retries."""
    for client in CLIENTS:
        for count in (callers, callers * BURST):
            yield Variant(strategy, client, count, budget_s)


def sweep_variants(callers: int, lock_waits: Sequence[str], budgets_s: Sequence[float]) -> list[Variant]:
    """Jittered clients behind the jittered lock: how long to wait there, and how long to come back."""
    return [
        Variant("lock jitter", "jitter", callers, budget_s, lock_wait)
        for lock_wait in lock_waits
        for budget_s in budgets_s
    ]


@dataclass
class ContentionLab:
    """`tell(variant)` hears of each before it is tried. What begins too late is left out, and named."""

    callers: CallerProcesses
    tell: Callable[[Variant], None] = lambda _: None
    ends_at: float = field(default_factory=lambda: SYSTEM.monotonic() + WHOLE_S)
    left_out: list[Variant] = field(default_factory=list)

    def on_own_gateways(self, store: str | None, wanted: Iterable[Variant]) -> list[Trial]:
        """On a gateway of our own for each strategy, on this store or on SQLite in a temporary folder."""
        trials = list[Trial]()
        for (strategy, lock_wait), group in groupby(wanted, lambda each: (each.strategy, each.lock_wait)):
            variants = list(group)
            if all(map(self._is_too_late, variants)):
                self.left_out += variants
            else:
                trials += self._on_own_gateway(store, strategy, lock_wait, variants)
        return trials

    def _is_too_late(self, variant: Variant) -> bool:
        return SYSTEM.monotonic() + variant.budget_s > self.ends_at

    def _on_own_gateway(
        self, store: str | None, strategy: str, lock_wait: str, wanted: Sequence[Variant]
    ) -> list[Trial]:
        admission, _, retry = strategy.partition(" ")
        flags = {"admission": admission, "lock_wait": lock_wait} | ({"lock_retry": retry} if retry else {})
        with tempfile.TemporaryDirectory(prefix="semel-runbook-") as folder:
            noted = Path(folder) / "looks"
            program = (watched_gateway.__name__, str(noted))
            with own_gateway(store, program=program, **flags) as server:
                trials = self.on_server(server, wanted)
            looks = watched_gateway.read(noted)
        for trial in trials:
            began = trial.results.began
            trial.looks = [at - began for at in looks if 0 <= at - began <= trial.results.took_s]
        return trials

    def on_server(self, server: ServedGateway, wanted: Iterable[Variant]) -> list[Trial]:
        """On this gateway, by whatever strategy it has. On a --dev one in a tenant of our own."""
        trials = []
        tenant = _new_name() if server.dev else None
        who = "runbook" if server.dev else None
        with Gateway(server.url, server.api_key, tenant=tenant, principal=who) as gateway:
            if tenant is not None:
                gateway.tenants.put(tenant, LIMIT)
            with _workflow(
                gateway
            ) as workflow:  # the first requests of a process are slow, and are not counted
                self.callers.run(_order(server, tenant, workflow, _WARM_UP))
            for variant in wanted:
                if self._is_too_late(variant):
                    self.left_out.append(variant)
                    continue
                self.tell(variant)
                with _workflow(gateway) as workflow:
                    results = self.callers.run(_order(server, tenant, workflow, variant))
                trials.append(Trial(variant, results))
        return trials


_WARM_UP = Variant("", "fixed", 4, budget_s=0.1)


def _new_name() -> str:
    return f"contention-{SYSTEM.token().hex()[:12]}"


@contextmanager
def _workflow(gateway: Gateway) -> Iterator[str]:
    """A workflow with two slots; afterwards, and after Ctrl-C too, there is nothing left that lives."""
    name = _new_name()
    try:
        gateway.workflows.put(name, [], max_concurrent_runs=LIMIT)
        yield name
    finally:
        _leave_nothing(gateway, name)


def _order(server: ServedGateway, tenant: str | None, workflow: str, variant: Variant) -> Order:
    return Order(
        url=server.url,
        api_key=server.api_key,
        tenant=tenant,
        workflow=workflow,
        keys=[f"{workflow}-{number}" for number in range(variant.callers)],
        client=variant.client,
        budget_s=variant.budget_s,
        hold_s=None if variant.client == "none" else HOLD_S,
        slot_wait=variant.slot_wait,
    )


def _leave_nothing(gateway: Gateway, workflow: str) -> None:
    """First the workflow goes, so that nothing is admitted any more; then what was admitted is cancelled."""
    try:
        gateway.workflows.delete(workflow)
    except Problem as refused:
        if refused.code != "workflow_not_found":
            raise
    for run in list(gateway.runs.list(workflow_id=workflow, status="running")):
        try:
            gateway.runs.cancel(run.run_id)
        except Problem as refused:
            if refused.code != "run_already_ended":
                raise


# --- what has to hold -------------------------------------------------------------------------------


def judge(book: Runbook, trials: Sequence[Trial]) -> None:
    """The limit, for everyone; no answers but these; and atomic admission is never the worse choice."""
    for trial in trials:
        name = trial.variant.name
        book.check(f"{name}: never over the limit", trial.most_active <= LIMIT, trial.most_active)
        codes = {code for _, _, code in trial.results.requests}
        book.check(f"{name}: only 200, 409, 429 and 503", codes <= {200, 409, 429, 503}, sorted(codes))
        book.check(f"{name}: somebody is admitted", trial.admitted > 0, trial.admitted)
        if trial.variant.strategy == "atomic":
            gateless = trial.count(503)
            book.check(f"{name}: nobody is refused for want of a lock", gateless == 0, f"{gateless} × 503")
            for other in trials:
                if _comparable(trial, other):
                    _compare(book, trial, other)


def _comparable(atomic: Trial, other: Trial) -> bool:
    mine, others = atomic.variant, other.variant
    return others.strategy.startswith("lock") and others._replace(strategy=mine.strategy) == mine


def _compare(book: Runbook, atomic: Trial, lock: Trial) -> None:
    name = f"{atomic.variant.name}: no worse than {lock.variant.strategy}"
    seen = f"{atomic.admitted} against {lock.admitted} admitted"
    book.check(f"{name} by admitted", atomic.admitted >= NEARLY * lock.admitted, seen)
    if atomic.variant.client == "none":
        mine, others = atomic.latency_ms(0.95), lock.latency_ms(0.95)
        soon = NEARLY * mine <= others or mine <= others + SAME_MS
        book.check(f"{name} by P95", soon, f"{mine:.0f} against {others:.0f} ms")


# --- what follows -----------------------------------------------------------------------------------


def best(sweep: Sequence[Trial]) -> Trial | None:
    """The wait for the lock and the budget that admit most; of nearly equal ones what is over soonest."""
    most = max((trial.admitted for trial in sweep), default=0)
    good = [trial for trial in sweep if trial.admitted >= NEARLY * most]
    return min(good, key=lambda each: each.results.took_s, default=None)


def recommendation(trials: Sequence[Trial], sweep: Sequence[Trial]) -> str:
    """In words: which strategy, which clients, and how long to wait where."""
    chosen, sentences = best(sweep), []
    if any(trial.variant.strategy == "atomic" for trial in trials):
        sentences.append("Keep atomic admission (--admission atomic): it has no lock to wait for.")
    sentences.append(
        "Let clients come back with one key for all their tries, full jitter, and not before `Retry-After`."
    )
    if chosen is not None:
        variant, most = chosen.variant, max(trial.admitted for trial in sweep)
        as_many = "the most" if chosen.admitted == most else f"nearly as many as the most ({most})"
        sentences.append(
            f"Where the lock is needed: --lock-retry jitter, --lock-wait {variant.lock_wait}, and "
            f"clients that come back for {variant.budget_s:g} s: {chosen.admitted} of {variant.callers} "
            f"were admitted, {as_many}, and it was over soonest."
        )
    else:
        sentences.append(
            "The server's own --lock-wait was not varied; `semel runbook contention` without --server is."
        )
    return " ".join(sentences)
