"""What `semel serve --sample` has besides the gateway: two workflows, three runs, and a worker for them.

One run ends by itself, one waits for an approval, one is in doubt and a person has to settle it. The runs
have keys, so a second start on the same store meets the same three, as far as they have come.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson

from semel.contract.handlers import marked
from semel.flow.assembly import Flow
from semel.flow.bus import open_bus
from semel.flow.values import Caller
from semel.kernel.answers import RunJson
from semel.kernel.clock import Clock
from semel.lab import sample_shop
from semel.ledger.ledger import Ledger
from semel.stores.base import Store
from semel.worker.store_jobs import StoreJobs
from semel.worker.worker import Worker

TENANT = "default"
REFUND, LARGE_REFUND = "sample-refund", "sample-large-refund"

# Not the name under which a person looks at it: whoever asked for a refund does not approve it.
_SUBMITTER = "sample-shop"

# A run of the sample takes milliseconds, on a machine that is busy with all else seconds; one that is still
# under way after this is told as it stands.
_PATIENCE_S = 60.0
_LOOK_EVERY_S = 0.02

# Of a stop: its handlers end at once.
_GRACE_S = 5.0

_INPUT = {
    "type": "object",
    "required": ["order", "amount_minor"],
    "properties": {
        "order": {"type": "integer", "minimum": 1},
        "amount_minor": {"type": "integer", "minimum": 1},
    },
}


def _workflow(approval: bool) -> dict[str, Any]:
    steps = [
        {"id": "check", "topic": sample_shop.CHECK},
        {"id": "pay", "topic": sample_shop.PAY, "depends_on": ["check"], "approval": approval},
    ]
    return {"steps": steps, "input_schema": _INPUT}


@dataclass(frozen=True)
class SampleOrder:
    number: int
    amount_minor: int
    workflow: str

    @property
    def input(self) -> dict[str, int]:
        return {"order": self.number, "amount_minor": self.amount_minor}

    @property
    def key(self) -> str:
        return sample_shop.key_of(self.number)

    @property
    def booked(self) -> dict[str, str]:
        """What the provider's book has for it."""
        return sample_shop.booked(self.number)


ORDERS = (
    SampleOrder(1, 12_000, REFUND),
    SampleOrder(2, 1_400_000, LARGE_REFUND),
    SampleOrder(3, 7_500, REFUND),
)


@dataclass(frozen=True)
class SampleRun:
    """An order's run as it stands, and what a person can do about it."""

    order: SampleOrder
    run_id: str
    status: str
    job_id: str | None = None  # of the step that waits for an approval
    record_id: str | None = None  # of the call that is in doubt


async def define(flow: Flow) -> None:
    await flow.workflows.put(TENANT, REFUND, _workflow(approval=False))
    await flow.workflows.put(TENANT, LARGE_REFUND, _workflow(approval=True))


async def start(flow: Flow, clock: Clock, ledger: Ledger) -> list[SampleRun]:
    """All runs, each started once on this store, as they stand once nothing in them can go on by itself."""
    caller, ids = Caller(TENANT, _SUBMITTER), []
    for order in ORDERS:
        answer = await flow.runs.start(caller, order.workflow, order.key, order.input)
        ids.append(orjson.loads(answer.body)["run_id"])
    give_up_at = clock.monotonic() + _PATIENCE_S
    while True:
        runs = [await flow.runs.get(TENANT, run_id) for run_id in ids]
        if clock.monotonic() > give_up_at or all(run["status"] != "running" for run in runs):
            break
        await clock.asleep(_LOOK_EVERY_S)
    return [
        await asyncio.to_thread(_sample_run, order, run, ledger)
        for order, run in zip(ORDERS, runs, strict=True)
    ]  # fmt: skip


def _sample_run(order: SampleOrder, run: RunJson, ledger: Ledger) -> SampleRun:
    waiting = (step["job_id"] for step in run["steps"] if step["status"] == "waiting")
    doubts = ledger.records.list(key=order.key, tool=sample_shop.issue_refund.__name__, state="in_doubt")
    return SampleRun(
        order,
        run["run_id"],
        run["status"],
        job_id=next(waiting, None) if run["status"] == "waiting" else None,
        record_id=doubts[0].request.id if doubts else None,
    )


@asynccontextmanager
async def working(store: Store, kept_us: int | None) -> AsyncIterator[Ledger]:
    """A worker performs the sample's jobs meanwhile, on this loop and this store, which stays open."""
    ledger, worker_id = Ledger(store, tenant=TENANT), "sample-worker"
    handlers = {topic: marked()[topic] for topic in (sample_shop.CHECK, sample_shop.PAY)}
    jobs = StoreJobs(store, open_bus("local", store.clock), TENANT, worker_id, kept_us)
    worker = Worker(
        jobs, ledger, handlers, worker_id=worker_id, grace_s=_GRACE_S, tell=lambda *_, **__: None
    )  # fmt: skip
    task = asyncio.create_task(worker.run(), name="sample-worker")
    try:
        yield ledger
    finally:
        worker.stop()
        await asyncio.gather(task, return_exceptions=True)
        # The store is somebody else's: only what this ledger does in the background ends.
        await asyncio.to_thread(ledger.keeper.close)
