"""One SQLite file under many processes: opening, racing, forking, and a log that does not grow for ever."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from semel.audit.events import fold, told_by
from semel.kernel.record import State
from semel.stores.base import CountRecords, ListRecords, ReadEvents
from semel.stores.sqlite import SqliteStore
from tests.commands import AT, claim, look, settle
from tests.missing import cannot
from tests.patience import PATIENCE_S

PROCESSES = 16
ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "semel.db")


def started(work: str, path: str, count: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.faults.sqlite_process", work, path, str(count)]
    return subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def all_at_once(work: str, path: str, count: int = 0) -> list[list[str]]:
    """What each of the processes said, started together."""
    processes = [started(work, path, count) for _ in range(PROCESSES)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=PATIENCE_S)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0] * PROCESSES
    return said


def test_processes_that_open_a_new_file_at_once_agree_on_it(path) -> None:
    said = all_at_once("opens", path)
    assert len({tuple(lines) for lines in said}) == 1
    with closing(SqliteStore(path)) as store:
        assert said[0] == [f"secret {store.secret_key.hex()}"]


def test_every_key_that_processes_race_for_has_one_owner_and_a_short_log(path) -> None:
    keys = 60
    with closing(SqliteStore(path)) as store:
        said = all_at_once("claims", path, keys)
        won = [line.split()[1:] for lines in said for line in lines]
        assert sorted(int(number) for number, _ in won) == list(range(keys))
        for number, token in won:
            record = store.perform(look(AT._replace(key=f"key-{number}"))).record
            assert record is not None
            assert record.state is State.DONE
            assert record.outcome == bytes.fromhex(token)
            told = store.ask(ReadEvents(record_id=record.request.id))
            assert fold(told) == told_by(record)
        events = store.ask(ReadEvents())
        assert [event.seq for event in events] == list(range(1, 2 * keys + 1))


def test_the_log_stays_short_while_processes_write_and_read_without_pause(path) -> None:
    # Several times as many pages as a checkpoint waits for.
    stores = [SqliteStore(path, durability="normal") for _ in range(2)]
    try:
        stop = threading.Event()
        reader = threading.Thread(target=lambda: [stores[1].perform(look()) for _ in iter(stop.is_set, True)])
        reader.start()
        for number in range(1_500):
            token, at = number.to_bytes(16, "big"), AT._replace(key=f"key-{number}")
            stores[number % 2].perform(claim(token, at))
            stores[number % 2].perform(settle(token, at))
        stop.set()
        reader.join()
        # A log of all of it would be 50 MB.
        assert os.stat(f"{path}-wal").st_size < 16 << 20
    finally:
        for store in stores:
            store.close()


def in_child(action) -> None:
    """Runs the action in a forked child; fails if it raised or hung."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            action()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_fork_in_the_middle_of_commits_leaves_both_sides_a_working_store(path) -> None:
    with closing(SqliteStore(path)) as store:
        stop, done = threading.Event(), [0] * 8

        def write(thread: int) -> None:
            while not stop.is_set():
                token = (thread << 64 | done[thread]).to_bytes(16, "big")
                at = AT._replace(key=f"{thread}-{done[thread]}")
                assert store.perform(claim(token, at)).applied
                assert store.perform(settle(token, at)).applied
                done[thread] += 1

        threads = [threading.Thread(target=write, args=(number,)) for number in range(len(done))]
        for thread in threads:
            thread.start()
        try:
            for fork in range(12):
                in_child(lambda fork=fork: use_in_child(store, fork))
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        expected = sum(done) + 12 * 3
        assert store.ask(CountRecords()) == {State.DONE: expected}
        for record in store.ask(ListRecords("acme", limit=50)):
            told = store.ask(ReadEvents(record_id=record.request.id))
            assert fold(told) == told_by(record)
    with closing(SqliteStore(path)) as again:
        assert {finding.level for finding in again.findings()} <= {"ok"}


def use_in_child(store: SqliteStore, fork: int) -> None:
    import asyncio

    for number in range(3):
        token, at = os.urandom(16), AT._replace(key=f"child-{fork}-{number}")
        assert store.perform(claim(token, at)).applied
        assert asyncio.run(store.aperform(settle(token, at))).applied
    store.close()


def test_a_fork_holds_no_open_file_of_the_store(path) -> None:
    if not Path("/proc/self/fd").exists():
        cannot("needs /proc to see open files")
    with closing(SqliteStore(path)) as store:
        store.perform(claim(b"A" * 16))
        store.perform(look())
        in_child(lambda: open_files_are_none(path))
        assert store.perform(settle(b"A" * 16)).applied


def open_files_are_none(path: str) -> None:
    targets = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_link(fd)]
    assert [target for target in targets if target.startswith(path)] == []


def _is_link(fd: str) -> bool:
    return os.path.islink(f"/proc/self/fd/{fd}")
