"""What a user of the client writes. What is refused is marked, and never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from typing import assert_type

from semel.client import (
    ApprovalAnswer,
    AsyncGateway,
    DecisionAnswer,
    Gateway,
    LeasesAnswer,
    Problem,
    RecordAnswer,
    RunAnswer,
    RunStartedAnswer,
    RunStepAnswer,
    StillRunning,
    TimelineEventAnswer,
)


def accepted() -> None:
    with Gateway("http://127.0.0.1:1", "key", within=timedelta(seconds=30), try_for="5s") as gateway:
        assert_type(gateway, Gateway)
        assert_type(gateway.runs.list(status="running", limit=3), Iterator[RunAnswer])
        assert_type(gateway.runs.timeline("run_1"), Iterator[TimelineEventAnswer])


async def accepted_on_a_loop() -> None:
    async with AsyncGateway("http://127.0.0.1:1", tenant="t", principal="ann") as gateway:
        assert_type(gateway, AsyncGateway)
        assert_type(gateway.records.list(scope="run"), AsyncIterator[RecordAnswer])


def asked(gateway: Gateway) -> None:
    started = gateway.runs.start("refund", {"payment": "p-1"}, key="order-1", wait="10s")
    assert_type(started, RunStartedAnswer)
    assert_type(started.replayed, bool)
    run = gateway.runs.wait(started.run_id, within="5m")
    assert_type(run, RunAnswer)
    assert_type(run.ended_at, datetime | None)
    assert_type(run.steps, list[RunStepAnswer])
    assert_type(gateway.jobs.lease(["mail"], max=2, wait_s=1.5), LeasesAnswer)
    assert_type(gateway.approvals.approve("job_1", "fine", job_hash="00"), DecisionAnswer)
    for question in gateway.approvals.list(status="waiting"):
        assert_type(question, ApprovalAnswer)
    try:
        gateway.runs.cancel("run_1")
    except StillRunning as still:
        assert_type(still.run, RunAnswer)
    except Problem as problem:
        assert_type(problem.code, str)
        assert_type(problem.retriable, bool)
        assert_type(problem.retry_after_s, float | None)
        assert_type(problem.key, str | None)


async def awaited(gateway: AsyncGateway) -> None:
    assert_type(await gateway.runs.start("refund", {}), RunStartedAnswer)
    assert_type(await gateway.runs.wait("run_1"), RunAnswer)
    async for run in gateway.runs.list(workflow_id="refund"):
        assert_type(run, RunAnswer)


def refused(gateway: Gateway) -> None:
    gateway.runs.start("refund")  # refused
    gateway.runs.start("refund", {}, 5)  # refused
    gateway.runs.start("refund", {}, idempotency_key="k")  # refused
    gateway.runs.begin("refund", {})  # refused
    gateway.runs.list(status="done")  # refused
    gateway.runs.complete("run_1", "finished")  # refused
    gateway.records.resolve("rec_1", "maybe")  # refused
    gateway.runs.get("run_1").state  # refused
    gateway.runs.get("run_1").status = "failed"  # refused
    gateway.runs.start("refund", {}).steps  # refused
    Gateway("http://127.0.0.1:1", "key", "acme")  # refused
    Gateway("http://127.0.0.1:1", within=30)  # refused


async def refused_on_a_loop(gateway: AsyncGateway) -> None:
    for _ in gateway.runs.list():  # refused
        pass
    (await gateway.runs.get("run_1")).state  # refused
    started = gateway.runs.start("refund", {})
    started.run_id  # refused
    await started
