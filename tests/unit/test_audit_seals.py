"""Who seals, when, and what is noticed once somebody reached into the file: with a kept head, everything."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import semel
from semel.audit.verify import Verification, verify
from semel.cli import main
from semel.errors import ApprovalRequired
from semel.ledger.ledger import Ledger
from semel.stores.base import ReadEvents, ReadSeals
from semel.stores.memory import MemoryStore
from semel.stores.sqlite import SqliteStore
from semel.testing import Crash, FakeClock, FlakyStore, crashing
from tests.tools import a_step, declared


@declared(window="24h")
def pay(to: str) -> str:
    return f"paid {to}"


@declared(approval=semel.Approval())
def transfer(to: str) -> str:
    return f"transferred to {to}"


@declared(approval=semel.Approval())
def issue(shares: int) -> int:
    return shares


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "touched.db"


def opened(path: Path, clock: FakeClock) -> Ledger:
    return semel.open(f"sqlite:///{path}", tenant="acme", clock=clock)


@pytest.fixture
def filed(path: Path, clock: FakeClock) -> Iterator[Ledger]:
    with opened(path, clock) as ledger:
        yield ledger


def calls(ledger: Ledger, count: int, first: int = 0) -> None:
    """So many settled calls: two events each."""
    for number in range(first, first + count):
        with a_step(ledger, f"step-{number}"):
            pay(f"person-{number}")


def touch(path: Path, *statements: str) -> None:
    """Change the file as someone with an editor would; each statement must change something."""
    with sqlite3.connect(path) as connection:
        for statement in statements:
            assert connection.execute(statement).rowcount > 0, statement
    connection.close()


def judged(path: Path, clock: FakeClock, heads: tuple[bytes, ...] = ()) -> Verification:
    """What a verification says that comes minutes later; it writes nothing."""
    clock.advance("5m")
    store = SqliteStore(str(path), clock=clock)
    try:
        return verify(store, tenants=("acme",), heads=heads)
    finally:
        store.close()


# --- who seals ----------------------------------------------------------------------------------------


def test_a_ledger_that_closes_within_its_first_second_leaves_nothing_unsealed(
    path: Path, clock: FakeClock
) -> None:
    with opened(path, clock) as ledger:
        calls(ledger, 2)
    found = judged(path, clock)
    assert (found.whole, found.seals, found.events, found.unsealed) == (True, 1, 4, 0)


def test_an_event_that_is_changed_after_such_a_close_is_named(path: Path, clock: FakeClock) -> None:
    with opened(path, clock) as ledger:
        calls(ledger, 3)
    touch(path, "UPDATE semel_events SET by_whom = 'nobody' WHERE seq = 4")
    [broken] = judged(path, clock).breaks
    assert (broken.seal, broken.seq, broken.wrong) == (1, 4, "changed")
    assert "event 4 was changed" in broken.text


def test_all_events_that_were_changed_under_a_seal_are_named(path: Path, clock: FakeClock) -> None:
    with opened(path, clock) as ledger:
        calls(ledger, 3)
    touch(path, "UPDATE semel_events SET note = note || 'x' WHERE seq IN (2, 5)")
    [broken] = judged(path, clock).breaks
    assert "events 2, 5 were changed" in broken.text


def test_a_changed_seal_is_told_from_changed_events(path: Path, clock: FakeClock) -> None:
    with opened(path, clock) as ledger:
        calls(ledger, 1)
    touch(path, "UPDATE semel_seals SET hash = zeroblob(32)")
    [broken] = judged(path, clock).breaks
    assert (broken.seq, broken.wrong) == (None, "changed")
    assert "its events are as they were" in broken.text


def test_a_decision_and_a_resolution_are_sealed_when_the_ledger_closes(path: Path, clock: FakeClock) -> None:
    with opened(path, clock) as ledger, a_step(ledger, "1"), pytest.raises(ApprovalRequired):
        transfer("ann")
    with opened(path, clock) as ledger:
        [question] = ledger.approvals.list()
        ledger.approvals.approve(question.job_id, by="ben")
    found = judged(path, clock)
    assert (found.whole, found.unsealed, found.questions) == (True, 0, 1)


def test_a_running_ledger_seals_three_times_a_minute(ledger: Ledger, clock: FakeClock) -> None:
    calls(ledger, 1)
    for _ in range(3):
        clock.advance("20s")
        ledger.keeper.run_once()
    assert ledger.store.ask(ReadSeals())
    assert verify(ledger.store).unsealed == 0


def test_a_ledger_that_only_read_seals_nothing(path: Path, clock: FakeClock) -> None:
    with opened(path, clock) as ledger:
        with a_step(crashing(ledger, "before settle"), "1"), pytest.raises(Crash):
            pay("ann")
        ledger.keeper.abandon()
    with opened(path, clock) as reader:
        assert len(reader.records.list()) == 1
    assert judged(path, clock).seals == 0


def test_a_store_that_is_away_does_not_hold_up_the_close(clock: FakeClock) -> None:
    flaky = FlakyStore(MemoryStore(clock=clock))
    ledger = Ledger(flaky, tenant="acme")
    calls(ledger, 1)
    flaky.down = True
    ledger.close()
    flaky.down = False
    assert flaky.ask(ReadSeals()) == []


def test_a_store_without_audit_has_nothing_to_seal(path: Path, clock: FakeClock) -> None:
    with semel.open(f"sqlite:///{path}?audit=off", tenant="acme", clock=clock) as ledger:
        calls(ledger, 1)
    store = SqliteStore(str(path), clock=clock)
    assert store.ask(ReadSeals()) == []
    store.close()


# --- what an unsealed tail means ----------------------------------------------------------------------


def test_events_without_a_seal_are_a_finding_after_a_minute_and_not_before(
    filed: Ledger, clock: FakeClock
) -> None:
    calls(filed, 2)
    clock.advance("60s")
    found = verify(filed.store)
    assert (found.whole, found.unsealed) == (True, 4)
    clock.advance("1s")
    [broken] = verify(filed.store).breaks
    assert (broken.seal, broken.seq, broken.wrong) == (1, 1, "unsealed")
    assert "4 events" in broken.text


def test_a_log_whose_seals_were_all_removed_is_not_whole(path: Path, clock: FakeClock) -> None:
    with opened(path, clock) as ledger:
        calls(ledger, 2)
    touch(path, "DELETE FROM semel_seals", "UPDATE semel_events SET by_whom = 'nobody' WHERE seq = 2")
    found = judged(path, clock)
    assert [broken.wrong for broken in found.breaks] == ["missing", "unsealed"]


def test_seals_that_were_removed_and_made_anew_by_the_next_ledger_are_not_those_that_were_made(
    path: Path, clock: FakeClock
) -> None:
    with opened(path, clock) as ledger:
        calls(ledger, 2)
    touch(
        path,
        "DELETE FROM semel_seals",
        "DELETE FROM semel_traces",
        "UPDATE semel_events SET by_whom = 'no' WHERE seq = 2",
    )
    with opened(path, clock) as ledger:
        calls(ledger, 1, first=2)
    found = judged(path, clock)
    assert found.unsealed == 0
    [broken] = found.breaks
    assert (broken.seal, broken.wrong) == (1, "changed")
    assert "not the one that was made first" in broken.text


def test_the_last_seals_are_missed_when_they_are_gone(path: Path, clock: FakeClock) -> None:
    for first in range(3):
        with opened(path, clock) as ledger:
            calls(ledger, 1, first=first)
    touch(path, "DELETE FROM semel_seals WHERE number > 1")
    missing, unsealed = judged(path, clock).breaks
    assert (missing.seal, missing.wrong, missing.text) == (
        *(2, "missing"),
        "Seals 2–3 were made, and removed since.",
    )
    assert (unsealed.seal, unsealed.seq) == (2, 3)


def test_the_first_seals_are_missed_when_they_are_gone(path: Path, clock: FakeClock) -> None:
    for first in range(3):
        with opened(path, clock) as ledger:
            calls(ledger, 1, first=first)
    touch(path, "DELETE FROM semel_seals WHERE number < 3")
    assert (judged(path, clock).breaks[0].seal, judged(path, clock).breaks[0].wrong) == (1, "missing")


# --- against a head that was kept elsewhere -----------------------------------------------------------


def rewrite(path: Path) -> None:
    """Whoever owns the file: an event is changed, and everything that was ever said of it is removed."""
    touch(
        path,
        "UPDATE semel_events SET by_whom = 'no' WHERE seq = 2",
        "DELETE FROM semel_seals",
        "DELETE FROM semel_traces",
        "DELETE FROM semel_documents WHERE tenant = '_seals'",
        "DELETE FROM semel_places WHERE tenant = '_seals'",
    )


def kept_head(path: Path, clock: FakeClock) -> bytes:
    head = judged(path, clock).head
    assert head is not None
    return head.hash


def test_a_log_that_was_rewritten_as_a_whole_passes_unless_its_head_was_kept(
    path: Path, clock: FakeClock
) -> None:
    with opened(path, clock) as ledger:
        calls(ledger, 2)
    head = kept_head(path, clock)
    rewrite(path)
    with opened(path, clock) as ledger:
        calls(ledger, 1, first=2)
    assert judged(path, clock).whole
    [broken] = judged(path, clock, (head,)).breaks
    assert broken.wrong == "missing"
    assert head.hex() in broken.text


def test_a_log_that_was_cut_off_passes_unless_its_head_was_kept(path: Path, clock: FakeClock) -> None:
    with opened(path, clock) as ledger:
        calls(ledger, 1)
    with opened(path, clock) as ledger:
        calls(ledger, 1, first=1)
    head = kept_head(path, clock)
    touch(
        path,
        "DELETE FROM semel_seals WHERE number = 2",
        "DELETE FROM semel_events WHERE seq > 2",
        "DELETE FROM semel_records WHERE step LIKE '%step-1%'",
        "DELETE FROM semel_documents WHERE tenant = '_seals' AND id = 'leaves/0/2'",
        "DELETE FROM semel_places WHERE tenant = '_seals' AND id = 'leaves/0/2'",
    )
    assert judged(path, clock).whole
    assert not judged(path, clock, (head,)).whole


def test_a_head_that_was_kept_is_in_the_chain_however_long_it_grew(path: Path, clock: FakeClock) -> None:
    heads = []
    for first in range(3):
        with opened(path, clock) as ledger:
            calls(ledger, 1, first=first)
        heads.append(kept_head(path, clock))
    found = judged(path, clock, tuple(heads))
    assert found.whole
    assert [seal.number for seal in found.kept.values()] == [1, 2, 3]


def verified(path: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ("audit", "verify", "--url", f"sqlite:///{path}", *words))


def test_the_command_prints_the_head_and_takes_it_back(path: Path) -> None:
    with semel.open(f"sqlite:///{path}") as ledger:
        calls(ledger, 1)
    printed = json.loads(verified(path, "--json").stdout)["head"]
    again = verified(path, "--head", printed["hash"])
    assert again.exit_code == 0, again.output
    assert "The chain contains the head that was kept: it is seal 1" in again.stdout
    assert again.stdout.splitlines()[-2] == f"Head: seal 1, {printed['hash']}"
    strange = verified(path, "--head", "0" * 64)
    assert strange.exit_code == 1
    assert strange.stdout.startswith("MISSING  No seal has the hash 0000")


@pytest.mark.parametrize("head", ["", "12ab", "x" * 64])
def test_what_is_no_head_is_a_mistake_of_usage(path: Path, head: str) -> None:
    result = verified(path, "--head", head)
    assert result.exit_code == 2
    assert "64 hex digits" in result.output


def test_the_command_itself_writes_nothing(path: Path, clock: FakeClock) -> None:
    with opened(path, clock) as ledger:
        with a_step(crashing(ledger, "before settle"), "1"), pytest.raises(Crash):
            pay("ann")
        ledger.keeper.abandon()
    verified(path)
    store = SqliteStore(str(path), clock=clock)
    assert (len(store.ask(ReadEvents())), store.ask(ReadSeals())) == (1, [])
    store.close()


# --- questions ----------------------------------------------------------------------------------------


def asked(path: Path, clock: FakeClock, verb: str | None = None) -> None:
    with opened(path, clock) as ledger:
        with a_step(ledger, "1"), pytest.raises(ApprovalRequired):
            transfer("ann")
        if verb is not None:
            [question] = ledger.approvals.list()
            getattr(ledger.approvals, verb)(question.job_id, by="ben", reason="checked")


@pytest.mark.parametrize("verb", [None, "approve", "reject"])
def test_an_untouched_question_is_what_its_events_tell(
    path: Path, clock: FakeClock, verb: str | None
) -> None:
    asked(path, clock, verb)
    found = judged(path, clock)
    assert (found.whole, found.questions) == (True, 1), found.differences


def test_a_number_that_readers_of_json_round_is_no_difference(path: Path, clock: FakeClock) -> None:
    with opened(path, clock) as ledger, a_step(ledger, "1"), pytest.raises(ApprovalRequired):
        issue(1 << 70)
    assert judged(path, clock).whole


def edit(path: Path, old: str, new: str) -> None:
    """The question's document with one text for another."""
    with sqlite3.connect(path) as connection:
        [(id_, body)] = connection.execute(
            "SELECT id, body FROM semel_documents WHERE id LIKE 'job_%'"
        ).fetchall()
        changed = bytes(body).replace(old.encode(), new.encode())
        assert changed != bytes(body)
        connection.execute("UPDATE semel_documents SET body = ? WHERE id = ?", (changed, id_))
    connection.close()


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('"status":"rejected"', '"status":"approved"', "status is 'approved', by its events 'rejected'"),
        ('"by":"ben"', '"by":"cat"', "decided by is 'cat', by its events 'ben'"),
        ('"reason":"checked"', '"reason":"whatever"', "reason is 'whatever', by its events 'checked'"),
        ('"to":"ann"', '"to":"eve"', "what was asked is not what the person saw"),
    ],
)
def test_an_edited_decision_is_a_finding(path: Path, clock: FakeClock, old: str, new: str, text: str) -> None:
    asked(path, clock, "reject")
    edit(path, old, new)
    [difference] = judged(path, clock).differences
    assert text in difference.text


@pytest.mark.parametrize("arguments", ['{"to":"eve"}', "no JSON"])
def test_a_call_whose_arguments_are_not_those_that_were_approved_is_a_finding(
    path: Path, clock: FakeClock, arguments: str
) -> None:
    asked(path, clock, "approve")
    touch(path, f"UPDATE semel_records SET arguments = CAST('{arguments}' AS BLOB)")
    [difference] = judged(path, clock).differences
    assert "the call's arguments are not what the person saw" in difference.text


def test_a_question_that_was_removed_while_it_waited_is_missed(path: Path, clock: FakeClock) -> None:
    asked(path, clock)
    touch(
        path,
        "DELETE FROM semel_documents WHERE id LIKE 'job_%'",
        "DELETE FROM semel_places WHERE id LIKE 'job_%'",
    )
    [difference] = judged(path, clock).differences
    assert "the question is not there" in difference.text


def test_a_question_whose_events_were_removed_differs(path: Path, clock: FakeClock) -> None:
    asked(path, clock, "approve")
    touch(path, "DELETE FROM semel_events WHERE scope = 'approval'")
    texts = [difference.text for difference in judged(path, clock).differences]
    assert len(texts) == 1
    assert "it has no events" in texts[0]


def test_a_damaged_question_is_a_finding_and_no_crash(path: Path, clock: FakeClock) -> None:
    asked(path, clock, "approve")
    edit(path, "{", "[")
    [difference] = judged(path, clock).differences
    assert "damaged" in difference.text
