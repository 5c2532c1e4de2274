"""A SQLite file under two names, or one that goes while it is open: its log would not be shared.

Every process here is a real one, as are the links and mounts. An effect is a line that a process writes after
its claim was acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import semel
from semel import tool_contract
from semel.errors import OpenError, StoreCorrupt
from semel.stores.sqlite import SqliteStore, file_identity
from semel.stores.sqlite.file_identity import FileIdentity, mount_points
from tests.commands import AT, claim, look, renew, settle
from tests.fake_clock import FakeClock
from tests.faults.checks import until
from tests.missing import cannot
from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent.parent
KEYS = 4


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "a place"  # its blank is written \040 where the kernel lists mounts
    place.mkdir()
    return place / "semel.db"


def key(number: int) -> tuple[bytes, semel.kernel.record.Address]:
    return number.to_bytes(16, "big"), AT._replace(key=f"key-{number}")


# --- two names -------------------------------------------------------------------------------------


@contextmanager
def hard_link(path: Path) -> Iterator[Path]:
    other = path.parent.parent / "linked.db"
    os.link(path, other)
    yield other


@contextmanager
def link_beside_it(path: Path) -> Iterator[Path]:
    other = path.with_name("other.db")
    os.link(path, other)
    yield other


@contextmanager
def bind_mount(path: Path) -> Iterator[Path]:
    other = path.parent.parent / "another place" / "mounted.db"
    other.parent.mkdir()
    other.touch()
    if shutil.which("mount") is None or subprocess.run(["mount", "--bind", path, other]).returncode:
        cannot("nothing can be mounted here")
    try:
        yield other
    finally:
        subprocess.run(["umount", other], check=True)


@contextmanager
def symbolic_link(path: Path) -> Iterator[Path]:
    other = path.parent.parent / "points.db"
    other.symlink_to(path)
    yield other


@contextmanager
def mounted_directory(path: Path) -> Iterator[Path]:
    other = path.parent.parent / "another place"
    other.mkdir()
    if shutil.which("mount") is None or subprocess.run(["mount", "--bind", path.parent, other]).returncode:
        cannot("nothing can be mounted here")
    try:
        yield other / path.name
    finally:
        subprocess.run(["umount", other], check=True)


def started(path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.faults.sqlite_process", "enters", str(path), str(KEYS)]
    process = subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    return process


def lines_of(process: subprocess.Popen[str]) -> list[str]:
    """What it wrote until it was through or refused to open."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.strip())
        if line == "through\n":
            break
    return lines[1:]


def ended(process: subprocess.Popen[str]) -> None:
    process.communicate("enough\n", timeout=PATIENCE_S)
    assert process.returncode == 0


def effects(*processes: list[str]) -> int:
    return sum(line.startswith("effect ") for lines in processes for line in lines)


OTHER_NAMES = [hard_link, bind_mount]


@pytest.mark.parametrize("other_name", OTHER_NAMES)
def test_a_process_that_comes_by_a_second_name_has_no_effect(path, other_name) -> None:
    directly = started(path)
    first = lines_of(directly)
    with other_name(path) as other:
        second_process = started(other)
        second = lines_of(second_process)
        ended(second_process)
    ended(directly)
    assert (effects(first), effects(second)) == (KEYS, 0)
    assert len(second) == 1
    assert second[0].startswith("refused OpenError")


@pytest.mark.parametrize("other_name", OTHER_NAMES)
def test_of_two_processes_that_open_two_names_at_once_only_one_has_effects(path, other_name) -> None:
    SqliteStore(str(path)).close()
    with other_name(path) as other:
        both = [started(other), started(path)]
        lines = [lines_of(process) for process in both]
        for process in both:
            ended(process)
    assert effects(lines[0]) == 0
    # A second link shows at both of its names; a mount only where it is.
    assert effects(lines[1]) == (KEYS if other_name is bind_mount else 0)


@pytest.mark.parametrize("other_name", [*OTHER_NAMES, link_beside_it])
def test_the_refusal_names_the_reason_and_the_fix(path, other_name) -> None:
    SqliteStore(str(path)).close()
    with other_name(path) as other, pytest.raises(OpenError, match="write-ahead log") as refusal:
        SqliteStore(str(other))
    assert "irectory" in refusal.value.corrective_action


@pytest.mark.parametrize("same_name", [symbolic_link, mounted_directory])
def test_a_symbolic_link_and_a_mounted_directory_share_the_log(path, same_name) -> None:
    directly = started(path)
    first = lines_of(directly)
    with same_name(path) as other:
        second_process = started(other)
        second = lines_of(second_process)
        ended(second_process)
    ended(directly)
    assert (first[-1], second) == ("through", ["through"])
    assert effects(first) == KEYS


def test_a_symbolic_link_to_a_second_name_is_a_second_name(path) -> None:
    SqliteStore(str(path)).close()
    with bind_mount(path) as mounted, symbolic_link(mounted) as pointing, pytest.raises(OpenError):
        SqliteStore(str(pointing))


def test_mount_points_are_read_as_they_are_written() -> None:
    lines = (
        "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw\n"
        "37 35 98:0 /a /with\\040blank\\011tab\\134040 rw - ext3 /dev/root rw\n"
    )
    assert mount_points(lines) == {"/mnt2", "/with blank\ttab\\040"}


# --- while it is open ------------------------------------------------------------------------------


def moved(path: Path) -> Callable[[], object]:
    elsewhere = path.with_name("moved.db")
    path.rename(elsewhere)
    return lambda: elsewhere.rename(path)


def directory_moved(path: Path) -> Callable[[], object]:
    elsewhere = path.parent.with_name("moved place")
    path.parent.rename(elsewhere)
    return lambda: elsewhere.rename(path.parent)


def replaced(path: Path) -> Callable[[], object]:
    elsewhere = path.with_name("moved.db")
    path.rename(elsewhere)
    shutil.copyfile(elsewhere, path)
    return lambda: elsewhere.rename(path)


def linked(path: Path) -> Callable[[], object]:
    other = path.with_name("linked.db")
    os.link(path, other)
    return other.unlink


def log_moved(path: Path) -> Callable[[], object]:
    log, elsewhere = path.with_name("semel.db-wal"), path.with_name("moved-wal")
    log.rename(elsewhere)
    return lambda: elsewhere.rename(log)


def index_moved(path: Path) -> Callable[[], object]:
    index, elsewhere = path.with_name("semel.db-shm"), path.with_name("moved-shm")
    index.rename(elsewhere)
    return lambda: elsewhere.rename(index)


MOVES = [moved, directory_moved, replaced, linked, log_moved, index_moved]


@pytest.mark.parametrize("move", MOVES)
def test_what_happens_to_an_open_file_is_noticed_before_the_next_claim_and_heals(path, move) -> None:
    with closing(SqliteStore(str(path))) as store:
        assert store.perform(claim(*key(1))).applied
        put_back = move(path)
        with pytest.raises(StoreCorrupt, match="the tool did not run"):
            store.perform(claim(*key(2)))
        with pytest.raises(StoreCorrupt, match="the tool did not run"):
            asyncio.run(store.aperform(claim(*key(3))))
        with pytest.raises(StoreCorrupt, match="the outcome was not recorded"):
            store.perform(settle(*key(1)))
        put_back()
        assert store.perform(settle(*key(1))).applied
        assert store.perform(claim(*key(2))).applied
        assert store.perform(look(key(3)[1])).record is None


def removed(path: Path) -> None:
    path.unlink()


def removed_with_its_log(path: Path) -> None:
    for file in path.parent.iterdir():
        file.unlink()


def log_removed(path: Path) -> None:
    path.with_name("semel.db-wal").unlink()


def index_removed(path: Path) -> None:
    path.with_name("semel.db-shm").unlink()


def log_and_index_removed(path: Path) -> None:
    log_removed(path)
    index_removed(path)


@pytest.mark.parametrize(
    "remove", [removed, removed_with_its_log, log_removed, index_removed, log_and_index_removed]
)
def test_a_removed_file_or_log_is_noticed_before_the_next_claim(path, remove) -> None:
    with closing(SqliteStore(str(path))) as store:
        assert store.perform(claim(*key(1))).applied
        remove(path)
        with pytest.raises(StoreCorrupt, match="the tool did not run"):
            store.perform(claim(*key(2)))


def quiet(store: SqliteStore) -> None:
    """The store has looked at its log since anything last happened in the directory, and trusts that."""
    until(lambda: store.perform(renew(*key(1))).applied and store._place._seen_ns, "a look that was trusted")


@pytest.mark.parametrize("move", MOVES)
def test_what_happens_in_a_directory_that_was_quiet_is_noticed_at_once_and_heals(path, move) -> None:
    with closing(SqliteStore(str(path))) as store:
        assert store.perform(claim(*key(1))).applied
        quiet(store)
        put_back = move(path)
        with pytest.raises(StoreCorrupt, match="the outcome was not recorded"):
            store.perform(settle(*key(1)))
        put_back()
        assert store.perform(settle(*key(1))).applied


@pytest.mark.parametrize("remove", [removed, log_removed, index_removed, log_and_index_removed])
def test_what_is_removed_from_a_directory_that_was_quiet_is_noticed_at_once(path, remove) -> None:
    with closing(SqliteStore(str(path))) as store:
        assert store.perform(claim(*key(1))).applied
        quiet(store)
        remove(path)
        with pytest.raises(StoreCorrupt, match="the outcome was not recorded"):
            store.perform(settle(*key(1)))


def test_the_log_of_a_quiet_directory_is_not_looked_at_again(path, monkeypatch) -> None:
    looked_at = []
    with closing(SqliteStore(str(path))) as store:
        assert store.perform(claim(*key(1))).applied
        quiet(store)
        monkeypatch.setattr(file_identity, "_look_at", lambda path, _: looked_at.append(path))
        assert store.perform(settle(*key(1))).applied
        assert looked_at == []
        path.with_name("another file").touch()
        assert store.perform(claim(*key(2))).applied
        assert looked_at == [f"{path}-wal", f"{path}-shm"]


@pytest.mark.parametrize(
    ("changed_ns", "tells"),
    [
        (8_999_999_999, True),
        (9_900_000_001, False),  # within the tick of a clock, perhaps
        (10_000_000_001, False),
        (5_120_000_000, False),  # a clock of whole hundredths, perhaps
        (0, False),
    ],
)
def test_a_directory_tells_only_if_another_change_would_have_another_time(path, changed_ns, tells) -> None:
    path.touch()
    place = FileIdentity(str(path), FakeClock(10_000_000))
    assert place._tells(changed_ns) is tells


@pytest.mark.parametrize("remove", [log_removed, index_removed, log_and_index_removed])
def test_a_process_that_comes_after_the_log_was_removed_repeats_no_effect(path, remove) -> None:
    before = started(path)
    first = lines_of(before)
    remove(path)
    after = started(path)
    second = lines_of(after)
    ended(after)
    ended(before)
    assert (effects(first), effects(second)) == (KEYS, 0)
    # The last to close wrote down what it knew: nothing is lost.
    again = started(path)
    assert effects(lines_of(again)) == 0
    ended(again)


def test_a_process_that_opens_a_file_that_was_moved_under_another_repeats_no_effect(path) -> None:
    before = started(path)
    first = lines_of(before)
    elsewhere = path.with_name("moved.db")
    path.rename(elsewhere)
    after = started(elsewhere)
    second = lines_of(after)
    ended(after)
    ended(before)
    assert (effects(first), effects(second)) == (KEYS, 0)


def test_a_tool_does_not_run_on_a_file_that_is_gone(path) -> None:
    runs = []

    @tool_contract(class_="write-non-idempotent")
    def refund(number: int) -> int:
        runs.append(number)
        return number

    with semel.open(f"sqlite:///{path}") as ledger:
        with ledger.step(conversation="c", step="1"):
            assert refund(1) == 1
        path.unlink()
        with ledger.step(conversation="c", step="2"), pytest.raises(StoreCorrupt, match="removed"):
            refund(2)
        with ledger.step(conversation="c", step="1"):
            assert refund(1) == 1
    assert runs == [1]


def test_an_effect_that_commits_with_its_record_is_rolled_back_when_the_file_is_gone(path) -> None:
    with closing(SqliteStore(str(path))) as store:
        assert store.perform(claim(*key(1))).applied
        transaction = store.begin(asynchronous=False)
        put_back = moved(path)
        with pytest.raises(StoreCorrupt, match="the outcome was not recorded"):
            transaction.settle(settle(*key(1)))
        with pytest.raises(StoreCorrupt):
            store.begin(asynchronous=False)
        put_back()
        assert store.perform(settle(*key(1))).applied


# --- no false alarm --------------------------------------------------------------------------------


def test_a_file_that_others_open_and_close_all_the_time_is_where_it_was(path) -> None:
    for number in range(10, 12):
        with closing(SqliteStore(str(path))) as store:
            assert store.perform(claim(*key(number))).applied
            SqliteStore(str(path)).close()
            process = started(path)
            lines_of(process)
            assert store.perform(settle(*key(number))).applied
            ended(process)
            assert store.perform(claim(*key(100 + number))).applied


def test_a_connection_that_was_opened_anew_has_a_log_of_its_own(path) -> None:
    with closing(SqliteStore(str(path))) as store:
        assert store.perform(claim(*key(1))).applied
        # As before a fork: the last connection goes, and its log with it.
        assert store.pause(float("inf"))
        assert not Path(f"{path}-wal").exists()
        path.with_name("taken").touch()  # lest the next log gets the number of this one
        store.resume()
        assert store.perform(claim(*key(2))).applied


def test_a_file_that_was_left_by_a_kill_is_opened_with_its_log(path) -> None:
    killed = started(path)
    assert effects(lines_of(killed)) == KEYS
    killed.kill()
    killed.communicate(timeout=PATIENCE_S)
    again = started(path)
    assert lines_of(again) == ["through"]
    ended(again)


def test_a_copy_without_its_index_is_opened(path) -> None:
    process = started(path)
    assert effects(lines_of(process)) == KEYS
    copy = path.with_name("copy.db")
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
    with closing(SqliteStore(str(copy))) as store:
        assert store.perform(look(key(0)[1])).record is not None
        assert store.perform(claim(*key(9))).applied
    ended(process)


# --- who may read it -------------------------------------------------------------------------------


def test_a_new_file_is_readable_by_its_owner_only(path) -> None:
    with closing(SqliteStore(str(path))) as store:
        assert store.perform(claim(*key(1))).applied
        modes = {file.name: oct(file.stat().st_mode & 0o777) for file in path.parent.iterdir()}
    assert modes == {"semel.db": "0o600", "semel.db-wal": "0o600", "semel.db-shm": "0o600"}


def test_the_mode_of_a_file_that_was_there_is_its_owners_business(path) -> None:
    SqliteStore(str(path)).close()
    path.chmod(0o640)
    SqliteStore(str(path)).close()
    assert path.stat().st_mode & 0o777 == 0o640
