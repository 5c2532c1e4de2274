"""The log says when it was touched, and shows keys that were made in the wrong place."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

import semel
from semel.audit import duplicates
from semel.audit.duplicate_report import find_duplicates
from semel.audit.verify import verify
from semel.stores.base import SealEvents
from semel.stores.sqlite import SqliteStore
from semel.testing import FakeClock


@semel.tool_contract(class_="write-non-idempotent", lease="60s", window="24h")
def send(to: str) -> str:
    if to == "nobody":
        raise TimeoutError
    return f"sent to {to}"


@semel.tool_contract(class_="write-non-idempotent", refused=(ValueError,))
def refuse(to: str) -> str:
    raise ValueError(to)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "semel.db"


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request, path: Path, clock: FakeClock) -> Iterator[semel.Ledger]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{path}"
    with semel.open(url, tenant="acme", clock=clock) as opened:
        yield opened


@pytest.fixture
def filed(path: Path, clock: FakeClock) -> Iterator[semel.Ledger]:
    """A ledger on a file that a test may touch behind its back."""
    with semel.open(f"sqlite:///{path}", tenant="acme", clock=clock) as opened:
        yield opened


def call(ledger: semel.Ledger, step: str, to: str = "ann", conversation: str = "c-1") -> None:
    with ledger.step(conversation=conversation, step=step):
        send(to=to)


def calls(ledger: semel.Ledger, count: int) -> None:
    """So many settled calls: two events each."""
    for number in range(count):
        call(ledger, f"step-{number}", to=f"person-{number}")


def seal(ledger: semel.Ledger, limit: int = 1_000) -> None:
    assert ledger.store.ask(SealEvents(limit)) is not None


def touch(path: Path, statement: str, *parameters: object) -> None:
    """Change the file as someone with an editor would; it must change something."""
    with sqlite3.connect(path) as connection:
        assert connection.execute(statement, parameters).rowcount > 0
    connection.close()


# --- the chain --------------------------------------------------------------------------------------------


def test_an_untouched_log_is_whole_and_its_unsealed_tail_is_counted(ledger: semel.Ledger) -> None:
    calls(ledger, 3)
    seal(ledger, limit=4)
    found = verify(ledger.store)
    assert found.whole
    assert (found.seals, found.events, found.unsealed, found.compared) == (1, 6, 2, 3)
    assert found.head is not None
    assert found.head.number == 1


def test_verifying_writes_nothing(filed: semel.Ledger) -> None:
    calls(filed, 2)
    assert isinstance(filed.store, SqliteStore)
    before = filed.store.commits
    assert verify(filed.store).seals == 0
    assert filed.store.commits == before


def test_an_empty_log_is_whole(ledger: semel.Ledger) -> None:
    assert verify(ledger.store).whole


@pytest.mark.parametrize("seq", [5, 6, 8])
def test_one_flipped_byte_is_found_in_the_seal_that_covers_it(
    filed: semel.Ledger, path: Path, seq: int
) -> None:
    calls(filed, 6)
    for _ in range(3):
        seal(filed, limit=4)
    with sqlite3.connect(path) as connection:
        [digest] = connection.execute("SELECT digest FROM semel_events WHERE seq = ?", (seq,)).fetchone()
    connection.close()
    touch(path, "UPDATE semel_events SET digest = ? WHERE seq = ?", bytes([digest[0] ^ 1]) + digest[1:], seq)
    [broken] = verify(filed.store).breaks
    assert (broken.seal, broken.wrong) == (2, "changed")


def test_a_deleted_event_is_named(filed: semel.Ledger, path: Path) -> None:
    calls(filed, 4)
    seal(filed)
    touch(path, "DELETE FROM semel_events WHERE seq = 5")
    [broken] = verify(filed.store).breaks
    assert (broken.seal, broken.seq, broken.wrong) == (1, 5, "missing")


def test_a_deleted_last_event_of_a_seal_is_named(filed: semel.Ledger, path: Path) -> None:
    calls(filed, 2)
    seal(filed)
    touch(path, "DELETE FROM semel_events WHERE seq = 4")
    [broken] = verify(filed.store).breaks
    assert (broken.seq, broken.wrong) == (4, "missing")


def test_an_added_event_is_named(filed: semel.Ledger, path: Path) -> None:
    calls(filed, 2)
    seal(filed)
    with sqlite3.connect(path) as connection:
        row = list(connection.execute("SELECT * FROM semel_events WHERE seq = 1").fetchone())
        connection.execute(f"INSERT INTO semel_events VALUES ({','.join('?' * len(row))})", [0, *row[1:]])
    connection.close()
    broken = verify(filed.store).breaks[0]
    assert (broken.seal, broken.seq, broken.wrong) == (1, 0, "added")


def test_a_deleted_seal_is_named(filed: semel.Ledger, path: Path) -> None:
    calls(filed, 3)
    for _ in range(3):
        seal(filed, limit=2)
    touch(path, "DELETE FROM semel_seals WHERE number = 2")
    first = verify(filed.store).breaks[0]
    assert (first.seal, first.wrong) == (2, "missing")


def test_a_rewritten_seal_is_found(filed: semel.Ledger, path: Path) -> None:
    calls(filed, 2)
    seal(filed)
    touch(path, "UPDATE semel_seals SET hash = ? WHERE number = 1", b"x" * 32)
    assert verify(filed.store).breaks[0].wrong == "changed"


def test_a_damaged_event_is_a_break_and_no_crash(filed: semel.Ledger, path: Path) -> None:
    calls(filed, 2)
    seal(filed)
    touch(path, "UPDATE semel_events SET digest = 'text' WHERE seq = 2")
    [broken] = verify(filed.store).breaks
    assert "2" in broken.text
    assert broken.wrong == "changed"


def test_events_that_were_dropped_for_their_age_are_no_break(ledger: semel.Ledger, clock: FakeClock) -> None:
    calls(ledger, 2)
    ledger.sweeper.run_once()
    clock.advance("401d")
    call(ledger, "late")
    ledger.sweeper.run_once()
    ledger.sweeper.run_once()
    found = verify(ledger.store)
    assert found.whole, (found.breaks, found.differences)
    assert found.dropped == 1


# --- records against events -------------------------------------------------------------------------------


def test_a_record_that_was_changed_by_hand_differs_from_its_events(filed: semel.Ledger, path: Path) -> None:
    call(filed, "1")
    touch(path, "UPDATE semel_records SET state = 'failed'")
    [difference] = verify(filed.store).differences
    assert difference.record_id == filed.records.list()[0].request.id
    assert "state" in difference.text


def test_an_outcome_that_was_changed_by_hand_differs(filed: semel.Ledger, path: Path) -> None:
    call(filed, "1")
    touch(path, "UPDATE semel_records SET outcome = ?", b'"sent to bob"')
    assert "digest" in verify(filed.store).differences[0].text


def test_a_record_that_was_deleted_is_missed(filed: semel.Ledger, path: Path) -> None:
    call(filed, "1")
    touch(path, "DELETE FROM semel_records")
    found = verify(filed.store)
    assert found.difference_count == 1
    assert not found.whole


def test_a_record_without_events_differs(path: Path, clock: FakeClock) -> None:
    with semel.open(f"sqlite:///{path}?audit=off", tenant="acme", clock=clock) as unaudited:
        call(unaudited, "1")
        [difference] = verify(unaudited.store, tenants=("acme",)).differences
    assert "audit=off" in difference.text


@pytest.mark.parametrize("swept", [True, False])
def test_a_key_that_was_claimed_anew_after_its_window_is_whole(
    ledger: semel.Ledger, clock: FakeClock, swept: bool
) -> None:
    call(ledger, "1")
    seal(ledger)
    clock.advance("25h")
    if swept:
        ledger.sweeper.run_once()
    call(ledger, "1")
    found = verify(ledger.store)
    assert found.whole, found.differences
    assert found.compared == 2


def test_doubt_release_and_resolution_are_whole(ledger: semel.Ledger) -> None:
    with pytest.raises(TimeoutError):
        call(ledger, "1", to="nobody")
    [record] = ledger.records.list()
    ledger.records.resolve(record.request.id, "did_not_happen", by="ann")
    with pytest.raises(TimeoutError):
        call(ledger, "1", to="nobody")
    with pytest.raises(ValueError, match="x"), ledger.step(conversation="c", step="2"):
        refuse(to="x")
    found = verify(ledger.store)
    assert found.whole, found.differences


# --- keys made in the wrong place -------------------------------------------------------------------------


def test_a_step_that_is_named_anew_on_every_attempt_shows_up(ledger: semel.Ledger, clock: FakeClock) -> None:
    for attempt in range(3):
        call(ledger, f"refund-{attempt}")
        clock.advance("5s")
    found = find_duplicates(ledger.store, "acme")
    assert (found.calls, found.count) == (3, 2)
    tool = found.tools["send"]
    assert tool.same_conversation == 2
    assert [(pair.first.step, pair.second.step) for pair in tool.examples] == [
        ('["refund-0"]', '["refund-1"]'),
        ('["refund-1"]', '["refund-2"]'),
    ]
    assert "named anew" in tool.meaning


def test_conversations_that_are_made_anew_are_told_apart(ledger: semel.Ledger) -> None:
    call(ledger, "1", conversation="a")
    call(ledger, "1", conversation="b")
    assert "conversation's id" in find_duplicates(ledger.store, "acme").tools["send"].meaning


def test_what_is_no_duplicate_is_not_reported(ledger: semel.Ledger, clock: FakeClock) -> None:
    call(ledger, "1", to="ann")
    call(ledger, "1", to="ann")  # a replay
    call(ledger, "2", to="bob")  # another action
    clock.advance("61s")
    call(ledger, "3", to="ann")  # long after
    with semel.Ledger(ledger.store, tenant="other").step(conversation="c", step="9"):
        send(to="ann")  # somebody else's
    assert find_duplicates(ledger.store, "acme").count == 0


def test_how_soon_is_a_choice(ledger: semel.Ledger, clock: FakeClock) -> None:
    call(ledger, "1")
    clock.advance("90s")
    call(ledger, "2")
    assert find_duplicates(ledger.store, "acme", within="60s").count == 0
    assert find_duplicates(ledger.store, "acme", within="90s").count == 1


def test_a_released_key_that_is_claimed_again_is_the_same_key(ledger: semel.Ledger) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="ann"), ledger.step(conversation="c", step="1"):
            refuse(to="ann")
    found = find_duplicates(ledger.store, "acme")
    assert (found.calls, found.count) == (2, 0)


def test_a_flood_is_bounded_and_said(ledger: semel.Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "HELD_MAX", 4)
    calls(ledger, 8)
    assert find_duplicates(ledger.store, "acme").flooded
