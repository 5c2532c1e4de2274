"""The bus on a real nats-server: killed, frozen, emptied, restarted; messages doubled, late, hopeless."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import nats
import orjson
import pytest
from nats.js.api import StorageType, StreamConfig

from semel.contract.handlers import Handler
from semel.errors import OpenError
from semel.flow.assembly import Flow, Policy
from semel.flow.bus import open_bus
from semel.flow.bus.base import BusUnavailable
from semel.flow.bus.consumer import Consumer
from semel.flow.bus.nats import NatsBus
from semel.flow.dead_letters import DeadLetters
from semel.flow.model import Message
from semel.flow.values import Caller
from semel.kernel.clock import SYSTEM
from semel.ledger.ledger import Ledger
from semel.stores.base import Store
from semel.stores.urls import open_store
from semel.worker.store_jobs import StoreJobs
from semel.worker.worker import Worker
from tests.evidence import Deeds
from tests.faults.checks import PATIENCE_S
from tests.nats_server import NatsServer, on_bus
from tests.proxy import Proxy

ANN = Caller("acme", "ann")
APPROVED = Message("approval:job_1", "acme", "approval.approved", 1, "email", None, "job_1")


@pytest.fixture
def server() -> Iterator[NatsServer]:
    server = NatsServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'semel.db'}")
    yield store
    store.close()


async def until(ask: Callable[[], Any], what: str) -> None:
    give_up_at = SYSTEM.monotonic() + PATIENCE_S
    while not ask():
        assert SYSTEM.monotonic() < give_up_at, f"waited in vain until {what}"
        await asyncio.sleep(0.01)


async def stored(bus: NatsBus) -> int:
    return int((await bus.link().stream.stream_info(bus.settings.stream)).state.messages)


def consumer(bus: NatsBus, store: Store, handle: Any, **terms: Any) -> Consumer:
    return Consumer(bus, flow_on(store, bus).document_store, "mailer", handle, backoff_s=0.0, **terms)


def flow_on(store: Store, bus: NatsBus) -> Flow:
    return Flow(store, Policy(), send=bus.publish, wait=bus.wait)


def remember(handled: list[str]) -> Callable[[Message], Awaitable[None]]:
    async def handle(message: Message) -> None:
        handled.append(message.id)

    return handle


async def drain(consumer: Consumer) -> int:
    """How many deliveries there were until none came for a while."""
    count = 0
    while await consumer.run_once(0.5):
        count += 1
    return count


# --- the stream -----------------------------------------------------------------------------------


def test_the_stream_is_made_at_the_start_with_the_window_of_the_url(server: NatsServer) -> None:
    async def scene(bus: NatsBus) -> Any:
        return (await bus.link().stream.stream_info("semel")).config

    made = on_bus(server.url(duplicates="90s"), scene)
    assert (made.duplicate_window, made.subjects, made.storage) == (90.0, ["semel.>"], "file")


def test_a_stream_that_differs_is_changed_and_that_is_told(
    server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(bus: NatsBus) -> Any:
        return (await bus.link().stream.stream_info("semel")).config.duplicate_window

    on_bus(server.url(), scene)
    with caplog.at_level(logging.WARNING, "semel.flow.bus"):
        assert on_bus(server.url(duplicates="5m"), scene) == 300.0
    assert "duplicate_window from 120.0 to 300.0" in caplog.text


def test_a_stream_that_cannot_be_changed_is_refused_with_the_reason(server: NatsServer) -> None:
    async def foreign() -> None:
        client = await nats.connect(server.url())
        config = StreamConfig(name="semel", subjects=["semel.>"], storage=StorageType.MEMORY)
        await client.jetstream().add_stream(config)
        await client.close()

    asyncio.run(foreign())
    with pytest.raises(OpenError, match="another storage"):
        on_bus(server.url(), stored)


def test_a_stream_whose_subjects_are_taken_is_refused_with_the_reason(server: NatsServer) -> None:
    async def foreign() -> None:
        client = await nats.connect(server.url())
        await client.jetstream().add_stream(StreamConfig(name="theirs", subjects=["semel.>"]))
        await client.close()

    asyncio.run(foreign())
    with pytest.raises(OpenError, match="overlap"):
        on_bus(server.url(), stored)


def test_wrong_credentials_are_refused_and_written_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    guarded = NatsServer("--user", "ann", "--pass", "right")
    try:
        guarded.start()
        with caplog.at_level(logging.DEBUG), pytest.raises(OpenError, match="credentials") as refused:
            on_bus(guarded.url("ann:canary-secret@"), stored)
        assert "canary-secret" not in caplog.text + str(refused.value)
        assert on_bus(guarded.url("ann:right@"), stored) == 0
    finally:
        guarded.remove()


# --- waking workers -------------------------------------------------------------------------------


def test_every_gateway_hears_that_a_job_is_ready(server: NatsServer) -> None:
    async def scene(bus: NatsBus) -> None:
        other = open_bus(server.url())
        await other.start()
        waits = [asyncio.ensure_future(each.wait("acme", ("email",), 600)) for each in (bus, other)]
        await asyncio.sleep(0)
        await bus.publish(APPROVED)
        await asyncio.wait_for(asyncio.gather(*waits), PATIENCE_S)
        await other.stop()

    on_bus(server.url(), scene)


def test_whoever_has_started_hears_whatever_is_said_from_then_on(server: NatsServer) -> None:
    async def started(_: NatsBus) -> list[bytes]:
        proxy.heard = bytearray()
        bus = open_bus(f"nats://127.0.0.1:{proxy.port}")
        await bus.start()
        said = [line.split()[0] for line in bytes(proxy.heard).splitlines() if line]
        await bus.stop()
        return said

    proxy = Proxy(server.port)
    try:
        said = on_bus(server.url(), started)
    finally:
        proxy.close()
    # It was answered after it had subscribed, so the server knew.
    assert b"SUB" in said
    assert said[-1] != b"SUB"


def test_tenants_whose_names_look_like_patterns_hear_only_their_own(server: NatsServer) -> None:
    async def scene(bus: NatsBus) -> list[bool]:
        dotted = asyncio.ensure_future(bus.wait("a.b", ("x.y",), 600))
        plain = asyncio.ensure_future(bus.wait("a", ("b",), 600))
        await asyncio.sleep(0)
        await bus.publish(replace(APPROVED, tenant="a.b", topic="x.y"))
        await asyncio.wait_for(dotted, PATIENCE_S)
        silent = not plain.done()
        plain.cancel()
        return [silent]

    assert on_bus(server.url(), scene) == [True]


# --- duplicates -----------------------------------------------------------------------------------


def test_a_duplicate_within_the_window_is_kept_once(server: NatsServer) -> None:
    async def scene(bus: NatsBus) -> int:
        for _ in range(10):
            await bus.publish(APPROVED)
        return await stored(bus)

    assert on_bus(server.url(), scene) == 1


def test_a_duplicate_within_the_window_is_kept_once_across_kill_and_restart(server: NatsServer) -> None:
    async def scene(bus: NatsBus) -> int:
        await bus.publish(APPROVED)
        server.kill()
        await until(lambda: not bus.healthy, "the loss is noticed")
        server.start()
        await until(lambda: bus.healthy, "the bus is back")
        await bus.publish(APPROVED)
        return await stored(bus)

    assert on_bus(server.url(), scene) == 1


def test_what_is_doubled_after_the_window_is_handled_once(server: NatsServer, store: Store) -> None:
    handled: list[str] = []

    async def scene(bus: NatsBus) -> tuple[int, int]:
        # The broker forgets after a tenth of a second, so each of these is kept.
        for number in range(1, 11):
            give_up_at = SYSTEM.monotonic() + PATIENCE_S
            while await stored(bus) < number:
                assert SYSTEM.monotonic() < give_up_at
                await bus.publish(APPROVED)
        return await stored(bus), await drain(consumer(bus, store, remember(handled)))

    assert on_bus(server.url(duplicates="100ms"), scene) == (10, 10)
    assert handled == [APPROVED.id]


def test_two_consumers_of_one_name_handle_each_message_once(server: NatsServer, store: Store) -> None:
    handled: list[str] = []

    async def scene(bus: NatsBus) -> None:
        ids = [f"acme:job_{number}:queued" for number in range(20)]
        for id_ in ids:
            await bus.publish(replace(APPROVED, id=id_))
        both = [consumer(bus, store, remember(handled)) for _ in range(2)]
        await asyncio.gather(*map(drain, both))
        assert sorted(handled) == sorted(ids)

    on_bus(server.url(), scene)


# --- the server goes away -------------------------------------------------------------------------


def test_publishing_without_a_server_fails_soon(server: NatsServer) -> None:
    async def scene(bus: NatsBus) -> None:
        server.kill()
        with pytest.raises(BusUnavailable):
            await asyncio.wait_for(bus.publish(APPROVED), PATIENCE_S)
        await until(lambda: not bus.healthy, "the loss is noticed")

    on_bus(server.url(), scene)


@pytest.mark.full
def test_publishing_to_a_frozen_server_fails_in_bounded_time(server: NatsServer) -> None:
    async def scene(bus: NatsBus) -> bool:
        server.freeze()
        try:
            with pytest.raises(BusUnavailable):
                await asyncio.wait_for(bus.publish(APPROVED), PATIENCE_S)
            return bus.healthy
        finally:
            server.thaw()

    assert on_bus(server.url(), scene) is False


@pytest.mark.full
def test_a_bus_that_is_not_there_at_the_start_is_told_and_used_once_it_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    late = NatsServer()

    async def scene(bus: NatsBus) -> int:
        assert not bus.healthy
        late.start()
        await until(lambda: bus.healthy, "the bus is there")
        await bus.publish(APPROVED)
        return await stored(bus)

    try:
        with caplog.at_level("WARNING", "semel.flow.bus"):
            assert on_bus(late.url(), scene, served=False) == 1
    finally:
        late.remove()
    told = [record.getMessage() for record in caplog.records]
    assert sum("cannot be" in line for line in told) == 1, told
    assert told[-1].endswith("is connected")


def test_a_server_without_jetstream_is_not_healthy_and_takes_nothing() -> None:
    plain = NatsServer(jetstream=False)

    async def scene(bus: NatsBus) -> bool:
        with pytest.raises(BusUnavailable):
            await bus.publish(APPROVED)
        return bus.healthy

    try:
        plain.start()
        assert on_bus(plain.url(), scene, served=False) is False
    finally:
        plain.remove()


def test_a_server_that_lost_its_data_gets_its_stream_anew(server: NatsServer) -> None:
    async def scene(bus: NatsBus) -> int:
        await bus.publish(APPROVED)
        server.kill()
        await until(lambda: not bus.healthy, "the loss is noticed")
        server.empty()
        server.start()
        await until(lambda: bus.healthy, "the bus is back")
        await bus.publish(APPROVED)
        return await stored(bus)

    assert on_bus(server.url(), scene) == 1


@pytest.mark.full
def test_a_stream_that_somebody_removed_is_made_anew(server: NatsServer) -> None:
    async def scene(bus: NatsBus) -> int:
        await bus.link().stream.delete_stream("semel")
        with pytest.raises(BusUnavailable):
            await bus.publish(APPROVED)
        await until(lambda: bus.healthy, "the stream is back")
        await bus.publish(APPROVED)
        return await stored(bus)

    assert on_bus(server.url(), scene) == 1


def test_the_outbox_drains_after_the_bus_returns(server: NatsServer, store: Store) -> None:
    async def scene(bus: NatsBus) -> tuple[int, int, int]:
        flow = flow_on(store, bus)
        server.kill()
        await until(lambda: not bus.healthy, "the loss is noticed")
        for number in range(5):
            await flow.jobs.create(ANN, f"key-{number}", "email", {"n": number}, None, None)
        before = await flow.outbox.run_once()
        server.start()
        await until(lambda: bus.healthy, "the bus is back")
        return before, await flow.outbox.run_once(), await stored(bus)

    assert on_bus(server.url(), scene) == (0, 5, 5)


def test_jobs_are_leased_while_the_bus_is_away(server: NatsServer, store: Store) -> None:
    async def scene(bus: NatsBus) -> int:
        flow = flow_on(store, bus)
        server.kill()
        waiting = asyncio.ensure_future(flow.jobs.lease(ANN, ["email"], 1, 60, "w", wait_s=PATIENCE_S))
        await asyncio.sleep(0)
        await flow.jobs.create(ANN, None, "email", {}, None, None)
        return len((await waiting)["jobs"])

    assert on_bus(server.url(), scene) == 1


def test_a_worker_at_a_store_is_woken_by_messages_and_sends_what_its_jobs_announce(
    server: NatsServer, store: Store
) -> None:
    async def scene(bus: NatsBus) -> tuple[str, int]:
        flow, own = flow_on(store, bus), open_bus(server.url())
        handlers = {"email": Handler("email", lambda job: job.input, frozenset())}
        source = StoreJobs(store, own, "acme", "w1")
        worker = Worker(
            source, Ledger(store, tenant="acme"), handlers, worker_id="w1", tell=lambda *_, **__: None
        )
        running = asyncio.ensure_future(worker.run())
        created = await flow.jobs.create(ANN, None, "email", 7, None, None)
        job_id = orjson.loads(created.body)["job_id"]
        give_up_at = SYSTEM.monotonic() + PATIENCE_S
        while (job := await flow.jobs.get("acme", job_id))["status"] != "succeeded" or not await stored(bus):
            assert SYSTEM.monotonic() < give_up_at
            await asyncio.sleep(0.01)
        worker.stop()
        await running
        return job["status"], await stored(bus)

    assert on_bus(server.url(), scene) == ("succeeded", 1)


# --- consumers ------------------------------------------------------------------------------------


def test_a_consumer_goes_on_after_kill_and_restart(server: NatsServer, store: Store) -> None:
    handled: list[str] = []

    async def scene(bus: NatsBus) -> None:
        running = asyncio.ensure_future(consumer(bus, store, remember(handled)).run())
        await bus.publish(APPROVED)
        await until(lambda: len(handled) == 1, "the first is handled")
        server.kill()
        await until(lambda: not bus.healthy, "the loss is noticed")
        server.start()
        await until(lambda: bus.healthy, "the bus is back")
        await bus.publish(replace(APPROVED, id="approval:job_2"))
        await until(lambda: len(handled) == 2, "the second is handled")
        running.cancel()

    on_bus(server.url(), scene)
    assert handled == [APPROVED.id, "approval:job_2"]


def test_what_nobody_acknowledged_is_delivered_again_and_handled_once(
    server: NatsServer, store: Store
) -> None:
    handled: list[str] = []

    async def scene(bus: NatsBus) -> int:
        await bus.publish(APPROVED)
        working = consumer(bus, store, remember(handled))
        line = await bus.subscribe("mailer", ack_wait_s=50.0)
        first = await line.next(PATIENCE_S)  # taken, and its consumer vanished
        assert first is not None
        await first.again(0.0)
        return await drain(working)

    assert on_bus(server.url(), scene) == 1
    assert handled == [APPROVED.id]


def test_what_is_no_message_is_passed_over(server: NatsServer, store: Store) -> None:
    handled: list[str] = []

    async def scene(bus: NatsBus) -> None:
        await bus.link().stream.publish("semel.acme.approval.approved.email", b"\xffgarbage")
        await bus.publish(APPROVED)
        running = asyncio.ensure_future(consumer(bus, store, remember(handled)).run())
        await until(lambda: handled, "the message behind it is handled")
        running.cancel()

    on_bus(server.url(), scene)
    assert handled == [APPROVED.id]


def test_a_message_that_always_fails_is_read_as_a_dead_letter_and_retried_once(
    server: NatsServer, store: Store
) -> None:
    attempts: list[str] = []

    async def broken(message: Message) -> None:
        attempts.append(message.id)
        raise RuntimeError("no such mailbox")

    async def scene(bus: NatsBus) -> tuple[list[str], list[str]]:
        flow = flow_on(store, bus)
        dead = DeadLetters(flow.document_store, flow.keys)
        await bus.publish(APPROVED)
        await drain(consumer(bus, store, broken, deliveries_max=3))
        (letter,) = (await dead.list("acme", None, 10)).items
        assert (letter["message_id"], letter["deliveries"]) == (APPROVED.id, 3)
        first = await dead.retry(ANN, letter["id"], "key-1")
        assert (await dead.retry(ANN, letter["id"], "key-1")) == (first.body, True)
        assert await flow.outbox.run_once() == 1
        handled: list[str] = []
        await drain(consumer(bus, store, remember(handled), deliveries_max=3))
        return attempts, handled

    assert on_bus(server.url(), scene) == ([APPROVED.id] * 3, [f"{APPROVED.id}:retry"])


# --- down and back, counted -------------------------------------------------------------------------

# What the bus may lose, said before it is measured.
MAY_LOSE = {
    "kept": "nothing: what was not handed over waits in the store; what comes twice is handled once",
    "emptied": "messages that were handed over and not yet handled; no job, no record",
}


@pytest.mark.parametrize("disk", MAY_LOSE)
@pytest.mark.parametrize("jobs", [5, pytest.param(300, marks=pytest.mark.slow)])
def test_a_bus_that_is_down_and_back_loses_no_more_than_was_said(
    jobs: int, disk: str, server: NatsServer, store: Store, evidence: Deeds
) -> None:
    evidence.say(failover=f"NATS, killed and back, its disk {disk}", expected=MAY_LOSE[disk])
    handled: list[str] = []

    async def scene(bus: NatsBus) -> int:
        flow = flow_on(store, bus)
        await create(flow, "before", jobs)
        assert await send(flow) == jobs
        server.kill()
        await until(lambda: not bus.healthy, "the loss is noticed")
        await create(flow, "meanwhile", jobs)
        if disk == "emptied":
            server.empty()
        server.start()
        await until(lambda: bus.healthy, "the bus is back")
        assert await send(flow) == jobs
        await drain(consumer(bus, store, remember(handled)))
        return len((await flow.jobs.lease(ANN, ["email"], 1, 60, "w", wait_s=0))["jobs"])

    leased = on_bus(server.url(), scene)
    lost = 2 * jobs - len(set(handled))
    evidence.count(operations=2 * jobs, kills=1, acknowledged=2 * jobs, lost=lost)
    evidence.count(twice=len(handled) - len(set(handled)))
    assert len(handled) == len(set(handled))
    assert lost == (jobs if disk == "emptied" else 0)
    assert leased == 1, "a job waits in the store, whatever becomes of its message"


async def create(flow: Flow, name: str, count: int) -> None:
    for number in range(count):
        await flow.jobs.create(ANN, f"{name}-{number}", "email", {"n": number}, None, None)


async def send(flow: Flow) -> int:
    """What waits in the store is handed over; how many that were."""
    count = 0
    while sent := await flow.outbox.run_once():
        count += sent
    return count
