"""All of the flow on one store: what a gateway, a worker and the command line share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from semel.flow.admission import Admission
from semel.flow.approvals import JobApprovals
from semel.flow.dead_letters import DeadLetters
from semel.flow.document_store import DocumentStore
from semel.flow.idempotency_keys import Keys
from semel.flow.job_admin import JobAdmin
from semel.flow.jobs import Jobs, Wait
from semel.flow.lock import LockedAdmission, LockListener, LockPolicy
from semel.flow.outbox import Outbox, Send
from semel.flow.runs import Runs, Waited
from semel.flow.schemas import Checks
from semel.flow.slot_queue import SlotQueue
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
    """`send` gives a message to the bus; `wait` returns when a topic has a job, or in time."""

    def __init__(
        self,
        store: Store,
        policy: Policy,
        *,
        send: Send,
        wait: Wait,
        cleanup_failed: Callable[[str], None] = lambda _: None,
        lock_listener: LockListener | None = None,
        checks: Checks | None = None,
        waited: Waited = lambda *_: None,
    ) -> None:
        self.document_store = DocumentStore(store, policy.tenant_bytes)
        self.keys = Keys(self.document_store, policy.kept_us)
        self.workflows = Workflows(self.document_store, checks)
        admission = Admission(self.document_store, self.workflows, self.keys)
        if policy.admission == "lock":
            admission = LockedAdmission(admission, policy.lock, cleanup_failed, lock_listener)
        self.admission = admission
        self.slots = SlotQueue(admission)
        self.runs = Runs(self.document_store, admission, self.slots, waited)
        self.jobs = Jobs(self.document_store, self.keys, wait)
        self.job_admin = JobAdmin(self.document_store, policy.kept_us)
        self.approvals = JobApprovals(self.document_store, policy.kept_us)
        self.outbox = Outbox(self.document_store, send)
        self.document_store.messages = self.outbox
        self.catalogue = ToolCatalogue(self.document_store)
        self.dead_letters = DeadLetters(self.document_store, self.keys)
        self.upkeep = Upkeep(self.document_store, policy.kept_us)
