"""The bus without a server: subscriptions, the local bus, consumers with their inbox, dead letters, URLs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from semel.errors import OpenError, StoreUnavailable
from semel.flow.bus import open_bus
from semel.flow.bus.base import BusUnavailable
from semel.flow.bus.consumer import Consumer
from semel.flow.bus.local import LocalBus
from semel.flow.bus.settings import read
from semel.flow.bus.subjects import message_in, subject_of, subjects_about, word
from semel.flow.bus.subscriptions import Subscriptions
from semel.flow.dead_letters import DeadLetters
from semel.flow.document_store import DocumentStore
from semel.flow.idempotency_keys import Keys
from semel.flow.inbox import Busy, Claimed, Handled, Inbox
from semel.flow.model import Message
from semel.flow.outbox import Outbox
from semel.flow.problems import Refused
from semel.flow.values import Caller
from semel.kernel.answers import DeadLetterJson
from semel.kernel.clock import SYSTEM
from semel.questions import job_index
from semel.stores.base import Query
from semel.stores.document_bytes import to_bytes
from semel.stores.documents import Count, Draft, Scan
from semel.stores.memory import MemoryStore
from semel.stores.urls import StoreUrl
from tests.fake_clock import FakeClock
from tests.patience import PATIENCE_S

ANN = Caller("acme", "ann")
RUNG = Message("acme:job_1:queued", "acme", "job.queued", 1, "email", None, "job_1")
APPROVED = Message("approval:job_1", "acme", "approval.approved", 1, "email", None, "job_1")
ENDED = Message("acme:run_1:ended", "acme", "run.ended", 1, None, "run_1")

# Longer than anything here takes; a wait that ends early is a subscription that rang.
LONG_S = 10 * PATIENCE_S


# --- subscriptions --------------------------------------------------------------------------------


async def woken(subscriptions: Subscriptions, wake: Callable[[], None], *topics: str) -> None:
    waiting = asyncio.ensure_future(subscriptions.wait("acme", topics, LONG_S))
    await asyncio.sleep(0)
    wake()
    await asyncio.wait_for(waiting, PATIENCE_S)


def test_a_ring_ends_the_wait_for_its_topic() -> None:
    subscriptions = Subscriptions(SYSTEM)
    asyncio.run(woken(subscriptions, lambda: subscriptions.wake("acme", "email"), "sms", "email"))


def test_a_ring_for_a_whole_tenant_ends_every_wait_of_it() -> None:
    subscriptions = Subscriptions(SYSTEM)
    asyncio.run(woken(subscriptions, lambda: subscriptions.wake_all("acme"), "email"))


def test_a_ring_that_nobody_heard_is_heard_by_the_next_and_only_once() -> None:
    async def scene() -> bool:
        subscriptions = Subscriptions(SYSTEM)
        subscriptions.wake("acme", "email")
        await asyncio.wait_for(subscriptions.wait("acme", ("email",), LONG_S), PATIENCE_S)
        second = asyncio.ensure_future(subscriptions.wait("acme", ("email",), LONG_S))
        await asyncio.sleep(0)
        waits = not second.done()
        second.cancel()
        return waits

    assert asyncio.run(scene())


def test_another_tenants_ring_is_not_heard() -> None:
    async def scene() -> bool:
        subscriptions = Subscriptions(SYSTEM)
        waiting = asyncio.ensure_future(subscriptions.wait("acme", ("email",), LONG_S))
        await asyncio.sleep(0)
        subscriptions.wake("other", "email")
        subscriptions.wake_all("other")
        subscriptions.wake("acme", "sms")
        await asyncio.sleep(0)
        silent = not waiting.done()
        waiting.cancel()
        return silent

    assert asyncio.run(scene())


def test_whoever_waited_leaves_nothing_behind() -> None:
    async def scene() -> Subscriptions:
        subscriptions = Subscriptions(SYSTEM)
        await subscriptions.wait("acme", ("email", "sms"), 0.001)
        return subscriptions

    assert asyncio.run(scene())._waiting == {}


def test_unheard_rings_are_bounded() -> None:
    subscriptions = Subscriptions(SYSTEM)
    for number in range(10_500):
        subscriptions.wake("acme", f"topic-{number}")
    assert len(subscriptions._missed) == 10_000


# --- URLs and subjects ----------------------------------------------------------------------------


def test_credentials_of_a_url_are_read_and_never_shown() -> None:
    settings = read(StoreUrl("nats://ann:p%40ss@one:4222,two?duplicates=90s&stream=other&replicas=3"))
    assert settings.servers == ("nats://one:4222", "nats://two:4222")
    assert (settings.user, settings.password, settings.token) == ("ann", "p@ss", None)
    assert (settings.duplicates_s, settings.stream, settings.replicas) == (90.0, "other", 3)
    assert "p@ss" not in repr(settings)
    assert settings.shown == "nats://one:4222,two"


@pytest.mark.parametrize(
    "url",
    [
        "nats://s3cret@host?duplicates=nonsense",
        "nats://s3cret@host?stream=a.b",
        "nats://s3cret@host?replicas=9",
        "nats://s3cret@host?unknown=1",
        "nats://s3cret@host/path",
        "nats://s3cret@",
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_without_its_token(url: str) -> None:
    with pytest.raises(OpenError) as refused:
        open_bus(url)
    assert "s3cret" not in str(refused.value)


def test_what_is_no_bus_is_refused() -> None:
    with pytest.raises(OpenError, match="not a bus"):
        open_bus("kafka://host")


def test_names_stay_one_word_of_a_subject_and_stay_apart() -> None:
    names = ["a.b", "a", "b", "a%2Eb", "*", ">", "a b", "a:b", "a-b_c"]
    words = [word(name) for name in names]
    assert len(set(words)) == len(names)
    assert not any(set(each) & set(".*> ") for each in words)


def test_a_message_is_known_by_its_own_subject_only() -> None:
    subject = subject_of("semel", RUNG)
    assert subject == "semel.acme.job.queued.email"
    assert message_in("semel", subject, to_bytes(RUNG)) == RUNG
    assert message_in("semel", subject_of("semel", replace(RUNG, tenant="x")), to_bytes(RUNG)) is None
    for garbage in (b"", b"[]", b"null", b'{"id": 1}', b"\xff"):
        assert message_in("semel", subject, garbage) is None


def test_a_message_without_a_topic_has_a_subject_as_long_as_others() -> None:
    assert subject_of("semel", ENDED) == "semel.acme.run.ended._"
    assert subjects_about("semel", "run.ended") == "semel.*.run.ended.>"
    assert subjects_about("semel", "") == "semel.>"


# --- the local bus and its consumers --------------------------------------------------------------


class Room:
    """A store, a local bus, and what consumers handled."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)
        self.document_store = DocumentStore(self.store)
        self.bus = LocalBus(SYSTEM)
        self.handled: list[str] = []
        self.dead = DeadLetters(self.document_store, Keys(self.document_store, None))
        self.outbox = Outbox(self.document_store, self.bus.publish)

    def consumer(self, name: str = "mailer", **terms: Any) -> Consumer:
        terms.setdefault("handle", self.remember)
        return Consumer(self.bus, self.document_store, name, backoff_s=0.0, **terms)

    async def remember(self, message: Message) -> None:
        self.handled.append(message.id)

    async def deliver(self, consumer: Consumer, *messages: Message, until: int | None = None) -> None:
        """Each message is published and acknowledged."""
        running = asyncio.ensure_future(consumer.run())
        await asyncio.sleep(0.01)
        try:
            for message in messages:
                await asyncio.wait_for(self.bus.publish(message), PATIENCE_S)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def in_room(scene: Callable[[Room], Awaitable[Any]]) -> Any:
    async def play() -> Any:
        room = Room()
        await room.bus.start()
        try:
            return await scene(room)
        finally:
            await room.bus.stop()

    return asyncio.run(play())


def test_ten_deliveries_are_one_handling() -> None:
    async def scene(room: Room) -> list[str]:
        await room.deliver(room.consumer(), *[APPROVED] * 10)
        return room.handled

    assert in_room(scene) == [APPROVED.id]


def test_a_delivery_that_comes_months_later_does_nothing() -> None:
    async def scene(room: Room) -> list[str]:
        await room.deliver(room.consumer(), APPROVED)
        room.clock.advance(80 * 86_400)
        await room.deliver(room.consumer(), APPROVED)
        return room.handled

    assert in_room(scene) == [APPROVED.id]


def test_each_consumer_has_an_inbox_of_its_own() -> None:
    async def scene(room: Room) -> list[str]:
        await room.deliver(room.consumer("mailer"), APPROVED)
        other = Room()
        other.document_store, other.bus, other.handled = room.document_store, LocalBus(SYSTEM), room.handled
        await other.bus.start()
        await other.deliver(other.consumer("auditor"), APPROVED)
        return room.handled

    assert in_room(scene) == [APPROVED.id] * 2


def test_a_consumer_hears_only_what_it_is_about() -> None:
    async def scene(room: Room) -> list[str]:
        await room.deliver(room.consumer(about="approval"), RUNG, APPROVED, ENDED)
        return room.handled

    assert in_room(scene) == [APPROVED.id]


def test_what_handling_writes_is_committed_with_the_inbox() -> None:
    async def write(message: Message) -> Iterable[Draft]:
        return [Draft("note", message.id.encode())]

    async def scene(room: Room) -> bytes:
        await room.deliver(room.consumer(handle=write), APPROVED)
        return (await room.document_store.fetch("acme", "note"))["note"].body

    assert in_room(scene) == APPROVED.id.encode()


def test_what_a_handler_writes_that_lost_its_claim_is_not_written() -> None:
    async def scene(room: Room) -> tuple[bool, bool, Any]:
        slow, quick = Inbox(room.document_store, "mailer"), Inbox(room.document_store, "mailer")
        mine = await slow.claim(APPROVED, 1_000_000)
        room.clock.advance(2)
        theirs = await quick.claim(APPROVED, 1_000_000)
        assert isinstance(mine, Claimed)
        assert isinstance(theirs, Claimed)
        late = await slow.settle(mine, [Draft("note", b"late")])
        in_time = await quick.settle(theirs, [Draft("note", b"in time")])
        return late, in_time, (await room.document_store.fetch("acme", "note"))["note"].body

    assert in_room(scene) == (False, True, b"in time")


def test_a_message_that_somebody_is_at_is_not_handled_beside_them() -> None:
    async def scene(room: Room) -> list[Any]:
        inbox = Inbox(room.document_store, "mailer")
        first = await inbox.claim(APPROVED, 1_000_000)
        second = await inbox.claim(APPROVED, 1_000_000)
        assert isinstance(first, Claimed)
        await inbox.settle(first)
        return [type(second), await inbox.claim(APPROVED, 1_000_000)]

    assert in_room(scene) == [Busy, Handled()]


def test_a_failure_is_delivered_again_and_then_handled_once() -> None:
    async def scene(room: Room) -> list[str]:
        async def fail_twice(message: Message) -> None:
            room.handled.append(message.id)
            if len(room.handled) < 3:
                raise RuntimeError("not yet")

        await room.deliver(room.consumer(handle=fail_twice), APPROVED, APPROVED)
        return room.handled

    assert in_room(scene) == [APPROVED.id] * 3


def test_a_store_that_is_away_is_no_failure_of_the_message() -> None:
    class Away(MemoryStore):
        refusals = 20  # more often than a message may fail

        async def aask(self, query: Query[Any]) -> Any:
            if self.refusals:
                self.refusals -= 1
                raise StoreUnavailable
            return await super().aask(query)

    async def scene(room: Room) -> tuple[list[str], Any]:
        room.document_store = DocumentStore(Away(clock=room.clock))
        await room.deliver(room.consumer(), APPROVED)
        dead = await DeadLetters(room.document_store, Keys(room.document_store, None)).list("acme", None, 10)
        return room.handled, dead.items

    assert in_room(scene) == ([APPROVED.id], [])


def test_a_bus_that_was_stopped_takes_nothing() -> None:
    async def scene() -> None:
        await LocalBus(SYSTEM).publish(RUNG)

    with pytest.raises(BusUnavailable):
        asyncio.run(scene())


def test_a_bus_that_stops_says_that_nobody_has_handled_it() -> None:
    async def scene(room: Room) -> None:
        await room.bus.subscribe("mailer")
        publishing = asyncio.ensure_future(room.bus.publish(APPROVED))
        await asyncio.sleep(0)
        await room.bus.stop()
        await asyncio.wait_for(publishing, PATIENCE_S)

    with pytest.raises(BusUnavailable):
        in_room(scene)


# --- dead letters ---------------------------------------------------------------------------------


async def broken(message: Message) -> None:
    raise RuntimeError("no such mailbox")


async def bury(room: Room) -> str:
    await room.deliver(room.consumer(handle=broken, deliveries_max=3), APPROVED)
    (item,) = (await room.dead.list("acme", None, 10)).items
    return str(item["id"])


def test_what_fails_too_often_can_be_read_as_a_dead_letter() -> None:
    async def scene(room: Room) -> DeadLetterJson:
        return await room.dead.get("acme", await bury(room))

    found = in_room(scene)
    assert found["message_id"] == APPROVED.id
    assert (found["consumer"], found["deliveries"]) == ("mailer", 3)
    assert found["error"] == "RuntimeError: no such mailbox"
    assert found["retried_at"] is None


def test_a_message_that_kills_its_consumer_is_put_aside_without_another_try() -> None:
    async def scene(room: Room) -> tuple[list[str], str]:
        consumer = room.consumer(deliveries_max=3)
        line = await room.bus.subscribe("mailer")
        publishing = asyncio.ensure_future(room.bus.publish(APPROVED))
        for _ in range(3):  # deliveries whose consumer vanished
            delivery = await line.next(10)
            assert delivery is not None
            await delivery.again(0.0)
        await consumer.run_once(10)
        await publishing
        return room.handled, (await room.dead.list("acme", None, 10)).items[0]["error"]

    assert in_room(scene) == ([], "The consumer did not survive it.")


def test_a_dead_letter_is_retried_and_handled() -> None:
    async def scene(room: Room) -> tuple[list[str], Any]:
        answer = await room.dead.retry(ANN, await bury(room), "key-1")
        running = asyncio.ensure_future(room.consumer().run())
        await asyncio.sleep(0.01)
        assert await room.outbox.run_once() == 1
        running.cancel()
        return room.handled, orjson.loads(answer.body)

    handled, told = in_room(scene)
    assert handled == [f"{APPROVED.id}:retry"]
    assert told["retried_by"] == "ann"


def test_a_retry_is_ignored_by_consumers_that_handled_the_message() -> None:
    async def scene(room: Room) -> list[str]:
        await room.deliver(room.consumer(), APPROVED, replace(APPROVED, id=f"{APPROVED.id}:retry"))
        return room.handled

    assert in_room(scene) == [APPROVED.id]


def test_the_same_key_replays_a_retry_and_another_is_refused() -> None:
    async def scene(room: Room) -> tuple[Any, ...]:
        id_ = await bury(room)
        first = await room.dead.retry(ANN, id_, "key-1")
        again = await room.dead.retry(ANN, id_, "key-1")
        refusals = []
        for key in ("key-2", None):
            with pytest.raises(Refused) as refused:
                await room.dead.retry(ANN, id_, key)
            refusals.append(refused.value.code)
        waiting = await room.store.aask(Count("acme", job_index.OUTBOX))
        return first, again, refusals, waiting

    first, again, refusals, waiting = in_room(scene)
    assert (again.body, again.replayed, first.replayed) == (first.body, True, False)
    assert refusals == ["message_already_retried"] * 2
    assert waiting == 1


def test_twenty_retries_at_once_send_one_message() -> None:
    async def scene(room: Room) -> tuple[int, int]:
        id_ = await bury(room)
        answers = await asyncio.gather(
            *(room.dead.retry(ANN, id_, f"key-{number}") for number in range(20)), return_exceptions=True
        )
        taken = [each for each in answers if not isinstance(each, BaseException)]
        return len(taken), len((await room.document_store.scan(Scan("acme", job_index.OUTBOX, 10))).documents)

    assert in_room(scene) == (1, 1)


@pytest.mark.parametrize("tenant", ["other", "acme"])
def test_a_dead_letter_is_its_tenants_own(tenant: str) -> None:
    async def scene(room: Room) -> str:
        id_ = await bury(room)
        return str(await room.dead.get(tenant, id_ if tenant == "other" else "dead_x"))

    with pytest.raises(Refused) as refused:
        in_room(scene)
    assert refused.value.code == "message_not_found"


def test_without_a_key_a_retry_is_taken_once_and_never_replayed() -> None:
    async def scene(room: Room) -> str:
        id_ = await bury(room)
        await room.dead.retry(ANN, id_, None)
        with pytest.raises(Refused) as refused:
            await room.dead.retry(ANN, id_, None)
        return refused.value.code

    assert in_room(scene) == "message_already_retried"
