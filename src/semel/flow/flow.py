"""All of the flow on one store: what a gateway, a worker and the command line share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from semel.flow.admission import Admission
from semel.flow.approvals import JobApprovals
from semel.flow.cabinet import DocumentStore
from semel.flow.dead import DeadLetters
from semel.flow.gate import LockedAdmission, LockPolicy
from semel.flow.job_desk import JobAdmin
from semel.flow.jobs import Jobs, Wait
from semel.flow.keys import Keys
from semel.flow.outbox import Outbox, Send
from semel.flow.runs import Runs, Waited
from semel.flow.schemas import Checks
from semel.flow.tools import ToolCatalogue
from semel.flow.upkeep import Upkeep
from semel.flow.workflows import Workflows
from semel.stores.base import Store

_DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Policy:
    """How runs are admitted, and how long keys and ended runs are kept; None: forever."""

    admission: Literal["atomic", "lock"] = "atomic"
    lock: LockPolicy = field(default_factory=LockPolicy)
    # Longer than the longest retry horizon we know of: a quarter's batch, run again.
    kept_us: int | None = 90 * _DAY_US
    tenant_bytes: int | None = None  # of a tenant's documents; None: as many as the store takes


class Flow:
    """`send` gives a message to the bus; `wait` returns when a doorbell rings for a topic, or in time."""

    def __init__(
        self,
        store: Store,
        policy: Policy,
        *,
        send: Send,
        wait: Wait,
        cleanup_failed: Callable[[str], None] = lambda _: None,
        lock_looked: Callable[[], None] = lambda: None,
        checks: Checks | None = None,
        waited: Waited = lambda *_: None,
    ) -> None:
        self.cabinet = DocumentStore(store, policy.tenant_bytes)
        self.keys = Keys(self.cabinet, policy.kept_us)
        self.workflows = Workflows(self.cabinet, checks)
        admission = Admission(self.cabinet, self.workflows, self.keys)
        if policy.admission == "lock":
            admission = LockedAdmission(admission, policy.lock, cleanup_failed, lock_looked)
        self.admission = admission
        self.runs = Runs(self.cabinet, admission, waited)
        self.jobs = Jobs(self.cabinet, self.keys, wait)
        self.job_desk = JobAdmin(self.cabinet, policy.kept_us)
        self.approvals = JobApprovals(self.cabinet, policy.kept_us)
        self.outbox = Outbox(self.cabinet, send)
        self.cabinet.nudge = self.outbox.nudge
        self.catalogue = ToolCatalogue(self.cabinet)
        self.dead_letters = DeadLetters(self.cabinet, self.keys)
        self.upkeep = Upkeep(self.cabinet, policy.kept_us)
