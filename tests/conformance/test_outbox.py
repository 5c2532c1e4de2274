"""Messages leave once they are on file, and are forgotten without a commit of their own, on every store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, TypeVar

import pytest

from semel.errors import StoreUnavailable
from semel.flow import outbox
from semel.flow.assembly import Flow
from semel.flow.bus.base import BusUnavailable
from semel.questions import job_index
from semel.questions.job import Message
from semel.stores.base import Query, Store
from semel.stores.documents import Commit, Draft, Scan
from semel.testing import WrappedStore
from tests.fake_clock import PATIENCE_S, FakeClock
from tests.flows import ANN, World, index, played, told
from tests.stores import Kind

T = TypeVar("T")


class Heard(WrappedStore):
    """A store that remembers what it was asked."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.queries: list[Query[Any]] = []

    async def aask(self, query: Query[T]) -> T:
        self.queries.append(query)
        return await super().aask(query)

    def of(self, kind: type[T]) -> list[T]:
        found: list[T] = [query for query in self.queries if isinstance(query, kind)]
        self.queries.clear()
        return found


@pytest.fixture
def world(kind: Kind, tmp_path: Path) -> World:
    return World(kind, tmp_path)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def create(flow: Flow, key: str | None = None) -> str:
    _, job = await told(flow.jobs.create(ANN, key, "t", {}, None, None))
    job_id: str = job["job_id"]
    return job_id


async def unsent(flow: Flow) -> int:
    return len(await index(flow, job_index.OUTBOX))


@played
async def test_what_was_written_here_is_sent_without_being_read_again(world: World, clock: FakeClock) -> None:
    store = Heard(world.store(clock))
    flow = world.flow(clock, wrap=lambda _: store)
    job_id = await create(flow)
    store.queries.clear()
    await flow.outbox.pass_on()
    assert [(message.type, message.job_id) for message in world.sent] == [("job.queued", job_id)]
    assert (store.of(Commit), store.of(Scan)) == ([], [])
    await flow.outbox.pass_on()
    assert len(world.sent) == 1


@played
async def test_the_next_commit_of_the_tenant_forgets_what_was_sent(world: World, clock: FakeClock) -> None:
    store = Heard(world.store(clock))
    flow = world.flow(clock, wrap=lambda _: store)
    await create(flow)
    await flow.outbox.pass_on()
    await create(flow)
    assert len(store.of(Commit)) == 2
    assert await unsent(flow) == 1  # the second one's
    await flow.outbox.pass_on()
    assert (len(world.sent), await flow.outbox.run_once(), await unsent(flow)) == (2, 0, 0)


@played
async def test_what_no_commit_takes_along_is_forgotten_by_itself(world: World, clock: FakeClock) -> None:
    flow = world.flow(clock)
    await create(flow)
    await flow.outbox.pass_on()
    assert await unsent(flow) == 1
    clock.advance(1)
    await flow.outbox.pass_on()
    assert (await unsent(flow), len(world.sent)) == (0, 1)


@played
async def test_a_commit_that_is_refused_forgets_nothing_and_the_next_one_does(
    world: World, clock: FakeClock
) -> None:
    flow = world.flow(clock)
    job_id = await create(flow, "k")
    await flow.outbox.pass_on()
    assert await create(flow, "k") == job_id  # replayed: its commit was refused
    refused = await flow.document_store.commit("acme", {job_id: None}, (Draft("x", b""),))
    assert (refused.done, await unsent(flow)) == (False, 1)
    assert (await flow.document_store.commit("acme", {}, (Draft("x", b""),))).done
    assert await unsent(flow) == 0


@played
async def test_a_commit_whose_reply_is_lost_may_forget_a_message_and_nobody_sends_it_again(
    world: World, clock: FakeClock
) -> None:
    class Loses(WrappedStore):
        lost = 0

        async def aask(self, query: Query[T]) -> T:
            answer = await super().aask(query)
            if self.lost and isinstance(query, Commit):
                self.lost -= 1
                raise StoreUnavailable("The reply was lost.")
            return answer

    store = Loses(world.store(clock))
    flow = world.flow(clock, wrap=lambda _: store)
    await create(flow)
    await flow.outbox.pass_on()
    store.lost = 2  # also that of the repeat: nobody knows
    assert (await told(flow.jobs.create(ANN, None, "t", {}, None, None)))[0] == "STORE_UNAVAILABLE"
    clock.advance(1)
    await flow.outbox.pass_on()
    assert [message.type for message in world.sent] == ["job.queued"]
    assert await flow.outbox.run_once() == 1  # that of the second job, which is there
    assert await unsent(flow) == 0


@played
async def test_while_the_store_is_away_it_is_asked_once_in_a_while_and_nothing_is_sent_again(
    world: World, clock: FakeClock
) -> None:
    class Away(Heard):
        away = False

        async def aask(self, query: Query[T]) -> T:
            if self.away:
                self.queries.append(query)
                raise StoreUnavailable("It is away.")
            return await super().aask(query)

    store = Away(world.store(clock))
    flow = world.flow(clock, wrap=lambda _: store)
    await create(flow)
    await flow.outbox.pass_on()
    clock.advance(0.5)
    store.away = True
    store.queries.clear()
    with pytest.raises(StoreUnavailable):
        await flow.outbox.pass_on()
    for _ in range(10):
        await flow.outbox.pass_on()
    assert len(store.of(Commit)) == 2  # one, and once more should its reply be lost
    store.away = False
    clock.advance(2)
    await flow.outbox.pass_on()
    assert (await unsent(flow), len(world.sent)) == (0, 1)


@played
async def test_what_the_bus_does_not_take_stays_until_a_look_round_sends_it(
    world: World, clock: FakeClock
) -> None:
    taken: list[Message] = []
    away = True

    async def send(message: Message) -> None:
        if away:
            raise BusUnavailable("It is away.")
        taken.append(message)

    flow = world.flow(clock)
    flow.outbox._send = send
    await create(flow)
    await flow.outbox.pass_on()
    clock.advance(1)
    await flow.outbox.pass_on()
    assert (await unsent(flow), taken) == (1, [])
    away = False
    assert await flow.outbox.run_once(1) == 1
    assert (await unsent(flow), len(taken)) == (0, 1)


@played
async def test_another_gateway_leaves_what_was_just_written_to_its_writer_and_sends_what_is_left(
    world: World, clock: FakeClock
) -> None:
    writer, other = world.flow(clock), world.flow(clock)
    await create(writer)
    assert await other.outbox.run_once(outbox._LEFT_US) == 0
    clock.advance(outbox._LEFT_US / 1_000_000)  # and the writer has died
    assert await other.outbox.run_once(outbox._LEFT_US) == 1
    assert await unsent(other) == 0


@played
async def test_a_message_that_was_sent_and_lingers_is_forgotten_and_not_sent_by_a_look_round(
    world: World, clock: FakeClock
) -> None:
    flow = world.flow(clock)
    await create(flow)
    await flow.outbox.pass_on()
    assert (await flow.outbox.run_once(), len(world.sent), await unsent(flow)) == (0, 1, 0)


@played
async def test_a_gateway_that_stops_leaves_nothing_that_it_has_sent(world: World) -> None:
    flow = world.flow()
    all_sent = asyncio.Event()

    async def send(message: Message) -> None:
        world.sent.append(message)
        if len(world.sent) == 3:
            all_sent.set()

    flow.outbox._send = send
    running = asyncio.ensure_future(flow.outbox.run())
    for _ in range(3):
        await create(flow)
    await asyncio.wait_for(all_sent.wait(), PATIENCE_S)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert (await unsent(flow), await world.flow().outbox.run_once(), len(world.sent)) == (0, 0, 3)


@played
async def test_many_sent_messages_are_forgotten_in_several_commits(world: World, clock: FakeClock) -> None:
    flow = world.flow(clock)
    for number in range(3):
        message = Message(f"m-{number}", "acme", "run.ended", clock.now_us())
        await flow.document_store.commit("acme", {}, (job_index.message_draft(message),))
    many = [Message(f"n-{number}", "acme", "run.ended", clock.now_us()) for number in range(450)]
    await flow.document_store.commit("acme", {}, tuple(map(job_index.message_draft, many)))
    await flow.outbox.pass_on()
    assert (len(world.sent), await unsent(flow)) == (453, 453)
    await create(flow)
    assert 453 > await unsent(flow) > 400  # a commit takes some along, not all
    clock.advance(1)
    await flow.outbox.pass_on()
    clock.advance(1)
    await flow.outbox.pass_on()
    assert (await unsent(flow), len(world.sent)) == (0, 454)


@played
async def test_what_is_too_much_for_the_memory_is_left_to_the_look_round(
    world: World, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "_FRESH_MAX", 2)
    flow = world.flow(clock)
    for _ in range(5):
        await create(flow)
    await flow.outbox.pass_on()
    assert len(world.sent) == 2
    assert await flow.outbox.run_once() == 3
    assert (await unsent(flow), len({message.id for message in world.sent})) == (0, 5)
