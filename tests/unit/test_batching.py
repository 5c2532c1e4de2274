"""Many callers, few batches: who carries out what, with a store that only writes down what it was given."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest

from semel.errors import SemelError, StoreUnavailable
from semel.kernel.record import apply
from semel.kernel.waiting import Flag, on_main_thread
from semel.stores.base import Waiters
from semel.stores.batching import BATCH_MAX, Batcher, QueuedCommand
from semel.stores.claimed_records import ClaimedRecords
from tests.commands import claim
from tests.faults.interrupting import Moment, interrupted_at, moments_of

PATIENCE_S = 30.0


class Notes(Batcher[QueuedCommand]):
    """Answers every command with itself, one batch at a time; "bad" fails whatever batch it is in."""

    thread_name = "semel-notes"
    unit = "note"

    def __init__(self) -> None:
        super().__init__(Waiters(), 1)
        self.batches: list[list[Any]] = []
        self.by_main: list[list[Any]] = []
        self.go = Flag()
        self.go.set()

    def _take_alone(self, queued: QueuedCommand) -> bool:
        queued.batch = [queued]
        return True

    def _take(self) -> list[QueuedCommand]:
        return [self._queue.popleft() for _ in range(min(len(self._queue), BATCH_MAX))]

    def _set_free(self, batch: list[QueuedCommand]) -> None:
        pass

    def _carry_out(self, batch: list[QueuedCommand]) -> None:
        commands = [queued.command for queued in batch]
        (self.by_main if on_main_thread() else self.batches).append(commands)
        self.go.wait()
        if "bad" in commands:
            raise ValueError("bad")
        for queued in batch:
            queued.answer, queued.done = queued.command, True

    def _one_is_to_blame(self, error: Exception) -> bool:
        return True

    def _error_of(self, error: Exception, command: Any) -> SemelError:
        return StoreUnavailable(f"{command} failed")

    def ask(self, command: Any) -> Any:
        return self.perform(QueuedCommand(command))

    def close(self) -> bool:
        return self._end(PATIENCE_S)


@pytest.fixture
def notes():
    notes = Notes()
    yield notes
    notes.go.set()
    notes.close()


class Asking(threading.Thread):
    """A thread that asks once; `answer` is what it was answered, or raised."""

    def __init__(self, notes: Notes, command: Any) -> None:
        super().__init__(daemon=True)
        self._notes, self._command = notes, command
        self.answer: Any = None
        self.start()

    def run(self) -> None:
        try:
            self.answer = self._notes.ask(self._command)
        except SemelError as error:
            self.answer = error

    def end(self) -> Any:
        self.join(PATIENCE_S)
        assert not self.is_alive()
        return self.answer


def until(happened) -> None:
    ended = threading.Event()
    for _ in range(int(PATIENCE_S / 0.001)):
        if happened():
            return
        ended.wait(0.001)
    pytest.fail("it did not happen")


def held_up(notes: Notes, *commands: Any) -> list[Asking]:
    """Threads that ask these, in this order: the first is under way, the others wait for it."""
    notes.go.clear()
    threads = []
    for number, command in enumerate(commands):
        threads.append(Asking(notes, command))
        until(lambda: len(notes._queue) == number and notes._running)  # noqa: B023
    return threads


def test_a_caller_alone_runs_its_command_on_its_own_thread(notes) -> None:
    before = threading.active_count()
    assert notes.ask(1) == 1
    assert notes.by_main == [[1]]
    assert threading.active_count() == before


def test_whoever_waits_shares_the_next_batch_and_one_of_them_runs_it(notes) -> None:
    before = threading.active_count()
    threads = held_up(notes, 1, 2, 3, 4)
    assert threading.active_count() == before + 4  # the callers, and nobody else
    notes.go.set()
    assert [thread.end() for thread in threads] == [1, 2, 3, 4]
    assert notes.batches == [[1], [2, 3, 4]]


def test_one_that_fails_does_not_hurt_the_others_of_its_batch(notes) -> None:
    threads = held_up(notes, 1, 2, "bad", 4)
    notes.go.set()
    answers = [thread.end() for thread in threads]
    assert answers[:2] + answers[3:] == [1, 2, 4]
    assert answers[2].message == "bad failed"


def test_the_main_thread_runs_nothing_of_others(notes) -> None:
    threads = held_up(notes, "first")

    def join_in() -> None:
        until(lambda: len(notes._queue) == 1)
        threads.append(Asking(notes, "last"))
        until(lambda: len(notes._queue) == 2)
        notes.go.set()

    others = threading.Thread(target=join_in, daemon=True)
    others.start()
    assert notes.ask("main") == "main"
    others.join(PATIENCE_S)
    assert [thread.end() for thread in threads] == ["first", "last"]
    assert notes.by_main == []
    assert notes.batches == [["first"], ["main", "last"]]


def test_what_tasks_ask_in_one_tick_goes_together_and_not_on_their_thread(notes) -> None:
    async def ask_all() -> list[int]:
        return await asyncio.gather(*(notes.aperform(QueuedCommand(number)) for number in range(20)))

    assert asyncio.run(ask_all()) == list(range(20))
    assert notes.by_main == []
    assert notes.batches == [list(range(20))]


class FirstTickInterrupted(Notes):
    interrupted = False

    def _tick(self) -> None:
        if not self.interrupted:
            self.interrupted = True
            raise KeyboardInterrupt
        super()._tick()


def test_a_call_for_a_thread_that_an_interrupt_swallowed_is_made_good_by_the_next() -> None:
    notes, loop = FirstTickInterrupted(), asyncio.new_event_loop()

    async def ask(command: Any) -> Any:
        return await asyncio.wait_for(notes.aperform(QueuedCommand(command)), PATIENCE_S)

    first = loop.create_task(ask("first"))
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    assert loop.run_until_complete(ask("second")) == "second"
    assert loop.run_until_complete(first) == "first"
    assert notes.batches == [["first", "second"]]
    loop.close()
    notes.close()


def test_what_was_submitted_is_carried_out_before_it_ends_and_nothing_is_taken_after(notes) -> None:
    threads = held_up(notes, 1)
    for number in range(5):
        notes.submit(QueuedCommand(number))
    closer = threading.Thread(target=notes.close, daemon=True)
    closer.start()
    until(lambda: notes._closed)
    with pytest.raises(StoreUnavailable, match="closed"):
        notes.ask(2)
    notes.go.set()
    closer.join(PATIENCE_S)
    assert not closer.is_alive()
    assert threads[0].end() == 1
    assert notes.batches == [[1], [0, 1, 2, 3, 4]]
    assert not notes.owed
    assert not notes.close()


@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize("behind", [0, 2])
def test_an_interrupt_at_any_moment_of_a_call_strands_nobody(before, behind, notes) -> None:
    def ask() -> None:
        notes.ask("main")

    def play(run) -> None:
        """It runs while so many are before it, and others come behind it; then all go on."""
        threads, through = held_up(notes, *range(before)), threading.Event()

        def join_in() -> None:
            until(lambda: (len(notes._queue) == before and notes._running) or through.is_set())
            for number in range(behind):
                threads.append(Asking(notes, before + number))
            until(lambda: len(notes._queue) == before + behind or through.is_set())
            notes.go.set()

        others = threading.Thread(target=join_in, daemon=True)
        others.start()
        run()
        through.set()
        others.join(PATIENCE_S)
        assert [thread.end() for thread in threads] == list(range(before + behind))
        assert Asking(notes, "after").end() == "after"
        until(lambda: not notes._running and not notes._queue)

    moments: list[Moment] = []
    play(lambda: moments.extend(moments_of(ask)))
    assert len(moments) > 10
    for moment in moments:
        play(lambda moment=moment: interrupted_at(moment, ask))


def test_threads_that_keep_more_records_than_there_is_room_for_do_not_disturb_each_other() -> None:
    records, errors = ClaimedRecords(), []
    claimed = apply(None, claim(), 1)
    assert claimed is not None

    def keep(first: int) -> None:
        try:
            for number in range(first, first + 20_000):
                records.keep(claimed._replace(token=number.to_bytes(16, "big")))
        except Exception as error:
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=keep, args=(first,)) for first in (0, 20_000, 40_000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
    finally:
        sys.setswitchinterval(interval)
    assert errors == []
    assert len(records) < 2_000
