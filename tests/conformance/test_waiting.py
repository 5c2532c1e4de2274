"""Who waits is woken, who is cancelled leaves nothing half done, and threads and loops share one store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from semel.kernel.clock import SYSTEM
from semel.kernel.record import Address, Command, State
from semel.stores.base import ReadEvents, Store, Sweep
from tests.commands import (
    AT,
    LEASE,
    SECOND,
    A,
    B,
    C,
    claim,
    look,
    park,
    release,
    renew,
    resolve,
    retake,
    settle,
)
from tests.fake_clock import PATIENCE_S, FakeClock
from tests.stores import Kind

OTHER = Address("acme", "tool", "another key")


@pytest.fixture
def store(kind: Kind, tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    store = kind.open(tmp_path, clock, True)
    yield store
    store.close()


WAKING: dict[str, tuple[Command, ...]] = {
    "settle": (claim(A), settle(A)),
    "park": (claim(A), park(A)),
    "release": (claim(A), release(A)),
    "resolve": (claim(A), park(A), resolve(A, B, True)),
    "retake": (claim(A, waiting=True), retake(A, B)),
}


@pytest.mark.parametrize("commands", WAKING.values(), ids=WAKING)
def test_a_thread_that_waits_is_woken_by_a_change(store, commands):
    *before, change = commands
    for command in before:
        store.perform(command)
    waiter = store.waiters.add(AT)
    with ThreadPoolExecutor(1) as pool:
        woken = pool.submit(waiter.wait, SYSTEM, PATIENCE_S)
        store.perform(change)
        assert woken.result()


@pytest.mark.parametrize("commands", WAKING.values(), ids=WAKING)
def test_a_task_that_waits_is_woken_by_a_change_from_another_task(store, commands):
    *before, change = commands

    async def scene() -> bool:
        for command in before:
            await store.aperform(command)
        waiter = store.waiters.add(AT, asyncio.get_running_loop())
        waiting = asyncio.create_task(waiter.await_change(SYSTEM, PATIENCE_S))
        await store.aperform(change)
        return await waiting

    assert asyncio.run(scene())


def test_a_task_that_waits_is_woken_by_a_thread(store):
    store.perform(claim(A))

    async def scene() -> bool:
        waiter = store.waiters.add(AT, asyncio.get_running_loop())
        await asyncio.to_thread(store.perform, settle(A))
        return await waiter.await_change(SYSTEM, PATIENCE_S)

    assert asyncio.run(scene())


def test_everyone_who_waits_is_woken_by_one_change(store):
    store.perform(claim(A))
    waiters = [store.waiters.add(AT) for _ in range(20)]
    store.perform(settle(A))
    assert all(waiter.wait(SYSTEM, PATIENCE_S) for waiter in waiters)
    assert not store.waiters


def test_who_waits_is_told_when_a_sweep_marks_the_record(store, clock):
    store.perform(claim(A))
    waiter = store.waiters.add(AT)
    clock.advance(LEASE / SECOND)
    store.ask(Sweep())
    assert waiter.wait(SYSTEM, PATIENCE_S)


def test_nobody_is_woken_by_another_key_or_by_a_command_that_changed_nothing(store):
    store.perform(claim(A))
    waiter = store.waiters.add(AT)
    for command in (claim(A, OTHER), settle(A, OTHER), claim(B), settle(B), look(), park(C)):
        store.perform(command)
    assert not waiter.wait(SYSTEM, 0)
    assert store.waiters.addresses() == [AT]
    store.waiters.remove(AT, waiter)
    assert not store.waiters


# --- cancellation, commands without a reply ---------------------------------------------------------------


def test_a_command_whose_caller_is_cancelled_is_carried_out_all_the_same(store):
    async def scene() -> None:
        task = asyncio.create_task(store.aperform(claim(A)))
        await asyncio.sleep(0)  # It is on its way now.
        task.cancel()
        await asyncio.wait([task])
        reply = await store.aperform(look())
        assert reply.record is not None
        assert reply.record.token == A

    asyncio.run(scene())


def test_a_cancelled_caller_does_not_disturb_the_others(store):
    places = [Address("acme", "tool", f"key-{number}") for number in range(40)]

    async def scene() -> None:
        tasks = [asyncio.create_task(store.aperform(claim(A, at))) for at in places]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.result().applied for task in tasks[1::2])
        for at in places:
            assert (await store.aperform(look(at))).record is not None

    asyncio.run(scene())


def test_a_command_without_a_reply_is_carried_out_in_its_turn(store):
    store.perform(claim(A))
    store.submit(park(A))
    store.submit(retake(A, B))
    store.submit(settle(B))
    # A further command of this caller comes after those; what it reads is what they left.
    assert store.perform(renew(B)).record.state is State.DONE
    assert [event.kind for event in store.ask(ReadEvents())] == ["claimed", "parked", "retaken", "settled"]


def test_a_question_is_answered_after_what_its_caller_submitted_before(store):
    for number in range(20):
        at = Address("acme", "tool", f"key-{number}")
        store.perform(claim(A, at))
        store.submit(settle(A, at))
        assert store.ask(ReadEvents(limit=100))[-1].kind == "settled"


def test_a_task_that_is_being_cancelled_can_still_release_its_claim(store):
    async def scene() -> None:
        await store.aperform(claim(A))
        store.submit(release(A))
        reply = await store.aperform(claim(B))
        assert (reply.applied, reply.record.token) == (True, B)

    asyncio.run(scene())


# --- many at once -----------------------------------------------------------------------------------------


def test_of_many_threads_that_claim_one_key_one_gets_it(store):
    start = threading.Barrier(16)

    def enter(number: int) -> bool:
        start.wait()
        return store.perform(claim(bytes([number]) * 16)).applied

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(enter, range(16))) == 1
    assert len(store.ask(ReadEvents())) == 1


def test_of_many_tasks_that_claim_one_key_one_gets_it(store):
    async def scene() -> list[bool]:
        replies = await asyncio.gather(*(store.aperform(claim(bytes([number]) * 16)) for number in range(64)))
        return [reply.applied for reply in replies]

    assert sum(asyncio.run(scene())) == 1
    assert len(store.ask(ReadEvents())) == 1


def test_several_loops_and_threads_use_one_store_at_once(store):
    """Each of 4 loops and 4 threads settles its own 25 keys and reads the others' claims of a shared one."""
    start = threading.Barrier(8)

    def place(worker: int, number: int) -> Address:
        return Address("acme", "tool", f"{worker}-{number}")

    def by_thread(worker: int) -> int:
        start.wait()
        shared = store.perform(claim(bytes([worker]) * 16)).applied
        for number in range(25):
            assert store.perform(claim(A, place(worker, number))).applied
            assert store.perform(settle(A, place(worker, number))).applied
        return shared

    async def in_loop(worker: int) -> int:
        async def one(number: int) -> bool:
            claimed = await store.aperform(claim(A, place(worker, number)))
            return claimed.applied and (await store.aperform(settle(A, place(worker, number)))).applied

        shared = (await store.aperform(claim(bytes([worker]) * 16))).applied
        assert all(await asyncio.gather(*map(one, range(25))))
        return shared

    def by_loop(worker: int) -> int:
        start.wait()
        return asyncio.run(in_loop(worker))

    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(by_thread if worker % 2 else by_loop, worker) for worker in range(8)]
        assert sum(answer.result() for answer in answers) == 1
    kinds = [event.kind for event in store.ask(ReadEvents())]
    assert (kinds.count("claimed"), kinds.count("settled")) == (201, 200)
