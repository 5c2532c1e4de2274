"""SQLite on a disk that is full or read-only, and under a process that is killed in mid-commit."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from semel.audit.events import fold, told_by
from semel.errors import StoreUnavailable
from semel.kernel.record import Address, Record, State
from semel.stores.base import ListRecords, ReadEvents
from semel.stores.sqlite import SqliteStore
from tests.commands import AT, claim, look, settle
from tests.missing import cannot
from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent.parent

# Any user but root; the number is that of nobody on most systems, and nothing depends on its name.
SOMEBODY = 65_534


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of two megabytes."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        cannot("a small file system cannot be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def key(number: int) -> tuple[bytes, Address]:
    return number.to_bytes(16, "big"), AT._replace(key=f"key-{number}")


def fill(place: Path) -> Path:
    """Every free byte of the file system is taken."""
    ballast = place / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(b"\0" * 4_096) == 4_096:
                pass
        except OSError:
            pass
    return ballast


def assert_history_fits(store: SqliteStore) -> Sequence[Record]:
    records = store.ask(ListRecords("acme", limit=10_000))
    for record in records:
        told = store.ask(ReadEvents(record_id=record.request.id))
        assert fold(told) == told_by(record)
    return records


def test_a_full_disk_refuses_and_service_resumes_by_itself(small_disk) -> None:
    path = str(small_disk / "semel.db")
    with closing(SqliteStore(path)) as store:
        store.perform(claim(*key(0)))
        ballast = fill(small_disk)
        acknowledged = {0}
        with pytest.raises(StoreUnavailable, match=r"disk.*; the tool did not run"):  # noqa: PT012
            for number in range(1, 10_000):
                store.perform(claim(*key(number)))
                acknowledged.add(number)
        with pytest.raises(StoreUnavailable):
            asyncio.run(store.aperform(claim(*key(20_000))))
        assert store.perform(look(key(0)[1])).record is not None
        ballast.unlink()
        assert store.perform(settle(*key(0))).applied
        assert store.perform(claim(*key(30_000))).applied
        kept = {record.request.at.key for record in assert_history_fits(store)}
        assert kept == {f"key-{number}" for number in {*acknowledged, 30_000}}
    with closing(SqliteStore(path)) as again:
        assert len(assert_history_fits(again)) == len(kept)


def test_a_store_that_cannot_be_made_for_want_of_space_can_be_made_later(small_disk) -> None:
    ballast = fill(small_disk)
    path = str(small_disk / "semel.db")
    with pytest.raises(StoreUnavailable, match="disk"):
        SqliteStore(path)
    ballast.unlink()
    with closing(SqliteStore(path)) as store:
        assert store.perform(claim(*key(1))).applied


@pytest.fixture
def shared_place(tmp_path):
    """A directory that others may enter and read, not write; the runner's own are closed to them."""
    # What is imported late is imported now: where the library lies may be closed to them as well.
    assert attempt(str(tmp_path / "own.db")).endswith("written")
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o555)
        yield Path(place)
        Path(place).chmod(0o755)


def as_somebody(action) -> str:
    """What the action returns in a forked child that may do no more than any user."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(SOMEBODY)
                os.setuid(SOMEBODY)
            os.write(writing, action().encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, encoding="utf-8") as said:
        return said.read()


def attempt(path: str) -> str:
    """What came of opening, reading and writing, as far as it went."""
    said = ""
    try:
        store = SqliteStore(path)
        said += f"opened; found {store.perform(look()).record is not None}; "
        store.perform(claim(*key(2)))
        said += "written"
    except StoreUnavailable as error:
        said += error.message
    return said


def test_a_read_only_file_can_be_read_and_refuses_writes(shared_place) -> None:
    shared_place.chmod(0o755)
    path = shared_place / "semel.db"
    command = [sys.executable, "-m", "tests.faults.sqlite_process", "holds", str(path)]
    with subprocess.Popen(
        command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        owner.stdin.write("go\n")
        owner.stdin.flush()
        assert [owner.stdout.readline() for _ in range(2)] == ["ready\n", "holding\n"]
        for file in shared_place.iterdir():
            file.chmod(0o444)
        shared_place.chmod(0o555)
        said = as_somebody(lambda: attempt(str(path)))
        owner.stdin.write("enough\n")
    assert said == "opened; found True; The database cannot be written; the tool did not run."


def test_a_directory_that_may_not_be_written_is_refused(shared_place) -> None:
    path = str(shared_place / "semel.db")
    assert (
        as_somebody(lambda: attempt(path))
        == f"{path}: The database file cannot be opened; nothing was changed."
    )
    assert list(shared_place.iterdir()) == []


# --- killed in the middle ----------------------------------------------------------------------------


def killed_while_writing(path: str, calls: str, when: int, log: Path) -> list[str]:
    """What the process could still say before it was killed at its `when`-th such system call."""
    inject = f"inject={calls}:signal=KILL:when={when}"
    command = ["strace", "-f", "-o", str(log), "-e", f"trace={calls}", "-e", inject]
    command += [sys.executable, "-m", "tests.faults.sqlite_process", "writes", path, "40"]
    done = subprocess.run(command, cwd=ROOT, input="go\n", text=True, capture_output=True, timeout=PATIENCE_S)
    if "Operation not permitted" in done.stderr:
        cannot("strace may not trace here")
    assert "+++ killed by SIGKILL +++" in log.read_text()
    return done.stdout.split("\n")[1:]


def states_after(path: str) -> dict[str, State]:
    with closing(SqliteStore(path)) as store:
        states = {record.request.at.key: record.state for record in assert_history_fits(store)}
        assert store.perform(claim(*key(1_000))).applied
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    return states


# Syncs come one or two per commit, page writes a dozen: the numbers fall on the making of the file, the first
# commits, and commits in full swing, at different places within them.
@pytest.mark.parametrize(
    ("calls", "when"),
    [
        ("fdatasync", 3),
        ("fdatasync", 8),
        ("fdatasync", 21),
        ("fdatasync", 40),
        ("pwrite64", 9),
        ("pwrite64", 60),
        ("pwrite64", 133),
        ("pwrite64", 202),
        ("pwrite64", 271),
        ("pwrite64", 340),
    ],
)
def test_nothing_acknowledged_is_lost_and_nothing_is_half_done_after_a_kill(tmp_path, calls, when) -> None:
    if shutil.which("strace") is None:
        cannot("strace is not installed")
    path = str(tmp_path / "semel.db")
    said = killed_while_writing(path, calls, when, tmp_path / "strace.log")
    states = states_after(path)
    for line in filter(None, said):
        word, number = line.split()
        assert states[f"key-{number}"] in (
            (State.PENDING, State.DONE) if word == "claimed" else (State.DONE,)
        )
    # One call at a time: at most one transition was under way, and it is there or not.
    settled = sum(state is State.DONE for state in states.values())
    assert len(states) - settled <= 1
    assert settled + len(states) - len([line for line in said if line]) in (0, 1)
