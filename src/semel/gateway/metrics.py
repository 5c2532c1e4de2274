"""What is counted, for Prometheus. A key or the id of a run is never a label, and tenants are bounded.

How old keys were when they came again is also kept in the store (`ages`), where `semel windows` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from semel.flow.lock import CONTEXTS, LOOKS, LockListener
from semel.gateway.last_hour import LastHour
from semel.instrumentation.series import RETRY_AGE, CounterSeries, HistogramSeries, SeriesName
from semel.kernel.clock import SYSTEM, Clock
from semel.questions.refusals import Refusal
from semel.windows.age_counters import AgeCounters

# Tenants that get a label of their own: the first ones seen. All others share one.
TENANTS_MAX = 100
OTHER = "other"

# Pairs of tenant and tool that get a label of their own for what is in doubt; all others share one.
DOUBTS_MAX = 500

# From the quickest commit in memory to the longest wait for a lock.
_WAITS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 2.5, 5, 10)

# Routes that admit, by the scope of their keys.
_ENDPOINTS = {"run": "start_run", "rerun": "rerun_run"}

# Refusals because of what others did before, rather than because of the request itself.
_CONFLICTS = (409, 410, 422)


class Metrics:
    """The metrics of one gateway."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self.registry = CollectorRegistry()
        self.ages = AgeCounters()  # upkeep merges it into the store
        self.last_hour = LastHour(clock)
        self._tenants: set[str] = set()
        ProcessCollector(registry=self.registry)
        self._claims = self._counter("semel_claims", "Keys claimed, by what was answered.", "tool", "answer")
        self._retry_age = self._measured(RETRY_AGE)
        self._run_starts = self._counter("semel_run_starts", "Requests for a run, by outcome.", "outcome")
        self._admission_wait = self._histogram(
            "semel_admission_wait_seconds", "How long a start was at admission, by its end.", _WAITS_S,
            "endpoint", "tenant", "outcome",
        )  # fmt: skip
        self._cleanup_failures = self._counter(
            "semel_idempotency_cleanup_failures", "Reservations that could not be taken back at once.",
            "context",
        )  # fmt: skip
        # From the start: an alert on growth does not see the first failure of a counter that was not there.
        for context in CONTEXTS:
            self._cleanup_failures.begin(context)
        self._replays = self._counter("semel_replays", "Answers that repeat an earlier one.", "endpoint")
        self._conflicts = self._counter(
            "semel_conflicts", "Refusals because of what was decided before.", "endpoint", "code"
        )
        self._requests = self._counter("semel_requests", "Requests answered.", "endpoint", "status")
        self._in_doubt = Gauge(
            "semel_in_doubt_records", "Records that wait for a person or a probe.", ("tenant", "tool"),
            registry=self.registry,
        )  # fmt: skip
        self._doubted: set[tuple[str, str]] = set()  # labels that the gauge has had
        self._outbox = self._gauge("semel_outbox_unpublished", "Messages that the bus has not taken yet.")
        self._ready = self._gauge("semel_ready", "1 if store and bus answered when last looked at.")

    def lock(self) -> LockMetrics:
        """Those of the lock, which only its strategy has."""
        looks = self._counter(
            "semel_admission_lock_attempts", "Looks at the tenant's lock, by how they ended.", "outcome"
        )
        waits = self._histogram(
            "semel_admission_lock_wait_seconds", "How long was waited for the tenant's lock alone.", _WAITS_S,
            "outcome",
        )  # fmt: skip
        for outcome in LOOKS:
            looks.begin(outcome)
        return LockMetrics(looks, waits)

    def _counter(self, name: str, what: str, *labels: str) -> CounterSeries:
        series = CounterSeries(SeriesName(name, what, labels), self._clock)
        self.registry.register(series)
        return series

    def _histogram(self, name: str, what: str, bounds: tuple[float, ...], *labels: str) -> HistogramSeries:
        return self._measured(SeriesName(name, what, labels, bounds))

    def _measured(self, named: SeriesName) -> HistogramSeries:
        series = HistogramSeries(named, self._clock)
        self.registry.register(series)
        return series

    def _gauge(self, name: str, what: str) -> Gauge:
        return Gauge(name, what, registry=self.registry)

    # --- what handlers tell -----------------------------------------------------------------------

    def answered(self, endpoint: str, status: int, *, replayed: bool, problem: Refusal | None) -> None:
        self._requests.add(endpoint, status)
        if replayed:
            self._replays.add(endpoint)
            self.last_hour.replayed()
        if problem is not None and status in _CONFLICTS:
            self._conflicts.add(endpoint, problem.code)
            self.last_hour.conflicted()

    def claimed(self, scope: str, *, replayed: bool, problem: Refusal | None) -> None:
        """A request with a key was answered: started, replayed, or the code of its refusal."""
        self._claims.add(scope, _outcome("started", replayed, problem))

    def retried(self, scope: str, age_s: float) -> None:
        self._retry_age.observe(age_s, scope)

    def run_started(self, *, replayed: bool, problem: Refusal | None) -> None:
        self._run_starts.add(_outcome("admitted", replayed, problem))

    def admission_waited(self, scope: str, tenant: str, outcome: str, seconds: float) -> None:
        """`scope` is that of the key: run or rerun; `outcome` admitted, replayed or refused."""
        self._admission_wait.observe(seconds, _ENDPOINTS[scope], self.tenant_label(tenant), outcome)

    def cleanup_failed(self, context: str) -> None:
        self._cleanup_failures.add(context)

    # --- what is looked at now and then -----------------------------------------------------------

    def in_doubt(self, counts: Mapping[tuple[str, str], int]) -> None:
        """How many records of which tenant and tool; what is not in doubt any more is set to 0."""
        labelled = dict.fromkeys(self._doubted, 0)
        for (tenant, tool), count in counts.items():
            labels = self.tenant_label(tenant), tool
            if labels not in labelled and len(labelled) >= DOUBTS_MAX:
                labels = OTHER, OTHER
            labelled[labels] = labelled.get(labels, 0) + count
        for labels, count in labelled.items():
            self._in_doubt.labels(*labels).set(count)
        self._doubted = set(labelled)

    def unpublished(self, messages: int) -> None:
        self._outbox.set(messages)

    def ready(self, yes: bool) -> None:
        self._ready.set(yes)

    # --- reading ----------------------------------------------------------------------------------

    def tenant_label(self, tenant: str) -> str:
        if tenant in self._tenants:
            return tenant
        if len(self._tenants) < TENANTS_MAX:
            self._tenants.add(tenant)
            return tenant
        return OTHER

    def text(self) -> bytes:
        return generate_latest(self.registry)


class LockMetrics(LockListener):
    """The lock alone, not the request."""

    def __init__(self, looks: CounterSeries, waits: HistogramSeries) -> None:
        self._looks = looks
        self._waits = waits

    def looked(self, outcome: str) -> None:
        self._looks.add(outcome)

    def waited(self, outcome: str, seconds: float) -> None:
        self._waits.observe(seconds, outcome)


MEDIA = CONTENT_TYPE_LATEST


def _outcome(fresh: str, replayed: bool, problem: Refusal | None) -> str:
    if problem is not None:
        return problem.code
    return "replayed" if replayed else fresh
