"""Real races, written down by those who raced, and judged: could one atomic record have answered so?"""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from semel.audit.events import fold, told_by
from semel.kernel import record
from semel.kernel.clock import SYSTEM
from semel.kernel.record import Look, State
from semel.stores.base import ReadEvents, Store
from tests.handles import AsyncStoreHandle, StoreHandle
from tests.model.linearizability import History, Recorder, check
from tests.model.racer import KEYS, QUESTIONS_PER_KEY, Racer, place
from tests.model.record_model import STARTED, RecordModel
from tests.stores import KINDS, SPREAD, Kind

RACERS = 16
# About once in every command, which is some twenty lines long.
GIVE_WAY = 0.05
LIBRARY = str(Path(record.__file__).parent)
ROOT = Path(__file__).resolve().parent.parent.parent

RACED = (*KINDS, SPREAD)

kinds = pytest.mark.parametrize("kind", RACED, ids=lambda kind: kind.name)
shared_kinds = pytest.mark.parametrize(
    "kind", [kind for kind in RACED if kind.shared], ids=lambda kind: kind.name
)


def race_in_processes(kind: Kind, place: Path, histories: Path, seed: int) -> None:
    """Afterwards sixteen processes, which began together, have left their histories."""
    command = [sys.executable, "-m", "tests.model.racer", kind.name, str(place)]
    racers = [
        subprocess.Popen(
            [*command, str(histories / f"p{number}.jsonl"), f"p{number}", str(seed * RACERS + number)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number in range(RACERS)
    ]
    try:
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == b"ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write(b"go\n")
            racer.stdin.flush()
        assert [racer.wait() for racer in racers] == [0] * RACERS
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()


def race_in_threads(store: Store, histories: Path, seed: int) -> None:
    """Afterwards sixteen threads, every other one with an event loop, have left their histories."""
    start = threading.Barrier(RACERS)

    def race(number: int) -> None:
        handle = AsyncStoreHandle(store) if number % 2 else StoreHandle(store)
        with Recorder(histories / f"t{number}.jsonl", f"t{number}") as recorder:
            start.wait()
            Racer(handle, recorder, f"t{number}", seed * RACERS + number).run()
        handle.leave()

    with restless_threads(seed), ThreadPoolExecutor(RACERS) as pool:
        for _ in pool.map(race, range(RACERS)):
            pass


@contextmanager
def restless_threads(seed: int) -> Iterator[None]:
    """New threads give way at any line of the store: left alone they hardly ever meet inside a step."""
    chance, usual = random.Random(seed), threading.gettrace()

    def give_way(frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(LIBRARY):
            return None
        if chance.random() < GIVE_WAY:
            time.sleep(0)
        return give_way

    threading.settrace(give_way)
    try:
        yield
    finally:
        threading.settrace(usual)


def judge(histories: Path) -> History:
    """The whole history, which one atomic record for each key can have produced."""
    history = History.read(*sorted(histories.glob("*.jsonl")))
    assert len(history) == RACERS * KEYS * QUESTIONS_PER_KEY
    assert all(op.answered for op in history)
    verdict = check(history, RecordModel())
    assert verdict, str(verdict)
    assert_that_it_was_a_race(history)
    return history


def assert_that_it_was_a_race(history: History) -> None:
    """A history in which nobody met anybody would prove nothing."""
    for name, answer in (
        ("claim", STARTED),
        ("retake", True),
        ("settle", True),
        ("park", True),
        ("release", True),
    ):
        assert any(op.name == name and op.result == answer for op in history), name
        assert any(op.name == name and op.result != answer for op in history), name
    by_start = sorted(history, key=lambda op: op.start_ns)
    assert any(
        one.key == other.key and one.process != other.process and other.start_ns < (one.end_ns or 0)
        for one, other in itertools.pairwise(by_start)
    )


def assert_that_the_events_tell_the_same(store: Store) -> None:
    for number in range(KEYS):
        found = store.perform(Look(place(f"key-{number}"))).record
        assert found is not None
        events = store.ask(ReadEvents(record_id=found.request.id))
        assert fold(events) == told_by(found)
        fences = [event.fence for event in events if event.kind in ("claimed", "retaken")]
        assert fences == sorted(set(fences))
        assert sum(event.state == State.DONE for event in events) <= 1


@kinds
def test_what_sixteen_threads_and_loops_saw_is_linearizable(kind, tmp_path):
    threads_race(kind, tmp_path, seed=1)


@shared_kinds
def test_what_sixteen_processes_saw_is_linearizable(kind, tmp_path):
    processes_race(kind, tmp_path, seed=1)


@pytest.mark.slow
@kinds
@pytest.mark.parametrize("seed", range(2, 40))
def test_what_sixteen_threads_and_loops_saw_is_linearizable_again_and_again(kind, seed, tmp_path):
    threads_race(kind, tmp_path, seed)


@pytest.mark.slow
@shared_kinds
@pytest.mark.parametrize("seed", range(2, 40))
def test_what_sixteen_processes_saw_is_linearizable_again_and_again(kind, seed, tmp_path):
    processes_race(kind, tmp_path, seed)


def threads_race(kind: Kind, directory: Path, seed: int) -> None:
    histories = directory / "histories"
    histories.mkdir()
    store = kind.open(directory, SYSTEM, True)
    try:
        race_in_threads(store, histories, seed)
        judge(histories)
        assert_that_the_events_tell_the_same(store)
    finally:
        store.close()


def processes_race(kind: Kind, directory: Path, seed: int) -> None:
    histories = directory / "histories"
    histories.mkdir()
    # Opened here first: the racers look for the server of their parent.
    store = kind.open(directory, SYSTEM, True)
    try:
        race_in_processes(kind, directory, histories, seed)
        judge(histories)
        assert_that_the_events_tell_the_same(store)
    finally:
        store.close()
