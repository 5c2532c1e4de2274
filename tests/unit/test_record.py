"""Every transition of a record, allowed and refused."""

from __future__ import annotations

import pytest

from semel.kernel.record import (
    LEASE_LAPSED,
    REFUSED_LATER,
    SETTLED,
    Command,
    Record,
    State,
    amendable,
    apply,
    closed,
    doubtful,
    effective_state,
    lapsed,
    next_fence,
    ours,
    settled_by,
    sweep,
)
from tests.commands import (
    LEASE,
    SECOND,
    WINDOW,
    A,
    B,
    C,
    D,
    amend,
    asked,
    claim,
    look,
    park,
    release,
    renew,
    resolve,
    retake,
    settle,
)
from tests.fake_clock import START_US
from tests.situations import COMMANDS, COMMANDS_OF_OTHERS, SITUATIONS, SWEEP, Step


def play(*steps: Step) -> tuple[Record | None, int]:
    """The record after steps that all have to be allowed, and the time then."""
    record, now_us = None, START_US
    for step in steps:
        if isinstance(step, int):
            now_us += step
        elif isinstance(step, str):
            assert step == SWEEP
            assert record is not None
            record = sweep(record, now_us)
        else:
            record = apply(record, step, now_us)
            assert record is not None, f"{step} was refused"
    return record, now_us


def told(*steps: Step) -> Record:
    record, _ = play(*steps)
    assert record is not None
    return record


def refused(command: Command, *steps: Step) -> bool:
    record, now_us = play(*steps)
    return apply(record, command, now_us) is None


# A row is a situation, a column a command by the newest owner (claim and retake: by the next one), a cell the
# state that follows; "-": refused.
TABLE = """
situation                               | claim   | retake  | renew   | settle | park     | release  | happened | did not | amend
absent                                  | pending | -       | -       | -      | -        | -        | -        | - | -
pending                                 | -       | -       | pending | done   | in_doubt | released | -        | - | -
pending, with an earlier entry          | -       | -       | pending | done   | in_doubt | in_doubt | -        | - | -
lapsed                                  | -       | pending | pending | done   | in_doubt | released | done     | cleared | -
lapsed and swept                        | -       | pending | pending | done   | in_doubt | released | done     | cleared | -
lapsed, with an earlier entry           | -       | pending | pending | done   | in_doubt | in_doubt | done     | cleared | -
parked                                  | -       | pending | -       | done   | -        | released | done     | cleared | -
parked, with an earlier entry           | -       | pending | -       | done   | -        | in_doubt | done     | cleared | -
waiting                                 | -       | pending | -       | done   | -        | released | -        | - | -
approved                                | -       | -       | pending | done   | in_doubt | released | -        | - | -
done                                    | -       | -       | -       | -      | -        | -        | -        | - | -
failed                                  | -       | -       | -       | -      | -        | -        | -        | - | -
partial                                 | -       | -       | -       | -      | -        | -        | -        | - | -
rejected                                | -       | -       | -       | -      | -        | -        | -        | - | -
done for ever                           | -       | -       | -       | -      | -        | -        | -        | - | -
released                                | pending | -       | -       | -      | -        | -        | -        | - | -
released, before anybody entered        | pending | -       | -       | -      | -        | -        | -        | - | -
resolved: it happened                   | -       | -       | -       | -      | -        | -        | -        | - | done
resolved by a probe: it happened        | - | - | - | - | - | - | - | - | -
resolved: it happened, its window closed | pending | - | - | - | - | - | - | - | -
amended                                 | - | - | - | - | - | - | - | - | done
amended by somebody named probe         | - | - | - | - | - | - | - | - | done
resolved: it did not                    | pending | -       | -       | -      | -        | -        | -        | - | -
done, one microsecond before its window closes | - | -      | -       | -      | -        | -        | -        | - | -
done, its window closed                 | pending | -       | -       | -      | -        | -        | -        | - | -
released, its window closed             | pending | -       | -       | -      | -        | -        | -        | - | -
resolved: it did not, its window closed | pending | -       | -       | -      | -        | -        | -        | - | -
"""  # noqa: E501


def cells(table: str) -> list[tuple[str, str, str]]:
    head, *rows = ([cell.strip() for cell in line.split("|")] for line in table.strip().splitlines())
    return [(row[0], name, cell) for row in rows for name, cell in zip(head[1:], row[1:], strict=True)]


@pytest.mark.parametrize(("situation", "command", "expected"), cells(TABLE))
def test_what_the_newest_owner_may_do(situation, command, expected):
    record, now_us = play(*SITUATIONS[situation])
    after = apply(record, COMMANDS[command], now_us)
    assert ("-" if after is None else after.state) == expected


def test_the_table_has_a_row_for_every_situation():
    assert {situation for situation, _, _ in cells(TABLE)} == set(SITUATIONS)


@pytest.mark.parametrize("command", COMMANDS_OF_OTHERS)
@pytest.mark.parametrize("situation", SITUATIONS)
def test_nobody_else_changes_anything(situation, command):
    assert refused(COMMANDS_OF_OTHERS[command], *SITUATIONS[situation])


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_look_changes_nothing(situation):
    assert refused(look(), *SITUATIONS[situation])


# --- claim -----------------------------------------------------------------------------------------


def test_a_first_claim_enters_and_holds_a_lease():
    assert told(claim(A)) == Record(
        request=asked(A),
        state=State.PENDING,
        token=A,
        fence=START_US,
        attempts=1,
        entries=1,
        created_at=START_US,
        entered_at=START_US,
        lease_until=START_US + LEASE,
        settled_at=None,
        expires_at=None,
        outcome=None,
        note="",
        by="",
    )


def test_a_question_to_a_person_is_no_entry_and_stands_for_its_lease():
    assert told(claim(A, waiting=True)) == told(claim(A))._replace(
        state=State.WAITING,
        attempts=0,
        entries=0,
        entered_at=None,
        lease_until=None,
        expires_at=START_US + LEASE,
    )


def test_an_unanswered_question_can_be_asked_anew_when_it_is_too_old():
    question = claim(A, waiting=True)
    assert refused(claim(B), question, LEASE - 1)
    assert told(question, LEASE, claim(B)).token == B


def test_a_released_key_takes_what_the_next_caller_asks():
    record = told(claim(A), SECOND, release(A), SECOND, claim(B, arguments=b"other", fingerprint=b"g" * 32))
    assert record.request == asked(B, arguments=b"other", fingerprint=b"g" * 32, id=asked(A).id)
    assert (record.attempts, record.entries, record.created_at) == (2, 1, START_US)
    assert record.entered_at == START_US + 2 * SECOND


def test_a_cleared_key_keeps_what_the_first_caller_asked():
    cleared = (claim(A), SECOND, park(A), resolve(A, B, False), SECOND)
    record = told(*cleared, claim(C, arguments=b"reworded", principal="someone else"))
    assert record.request == asked(A)
    assert (record.attempts, record.entries, record.created_at) == (2, 1, START_US)
    assert record.entered_at == START_US + 2 * SECOND
    assert (record.note, record.by) == ("", "")


def test_a_cleared_key_refuses_another_payload():
    assert refused(claim(C, fingerprint=b"g" * 32), claim(A), park(A), resolve(A, B, False))


@pytest.mark.parametrize(
    "ended",
    [
        (claim(A), settle(A)),
        (claim(A), release(A)),
        (claim(A), park(A), resolve(A, B, False)),
        (claim(A), park(A), resolve(A, B, True)),
    ],
)
def test_after_its_window_a_key_begins_anew(ended):
    record = told(*ended, WINDOW, claim(C, fingerprint=b"g" * 32))
    later = START_US + WINDOW
    assert record == told(claim(C, fingerprint=b"g" * 32))._replace(
        fence=later, created_at=later, entered_at=later, lease_until=later + LEASE
    )


# --- fences ----------------------------------------------------------------------------------------


ENTRIES_AGAIN: dict[str, tuple[Step, ...]] = {
    "after a park": (park(A), retake(A, B)),
    "after a lapse": (LEASE, retake(A, B)),
    "after an approval": (release(A), claim(C, waiting=True), retake(C, B)),
    "after a release": (release(A), claim(B)),
    "after it was cleared": (park(A), resolve(A, C, False), claim(B)),
    "after its window": (settle(A), WINDOW, claim(B)),
}


@pytest.mark.parametrize("clock_step", [-WINDOW * 24, -1, 0, 1, WINDOW])
@pytest.mark.parametrize("again", ENTRIES_AGAIN)
def test_every_further_entry_has_a_higher_fence_whatever_the_clock_does(again, clock_step):
    *middle, last = ENTRIES_AGAIN[again]
    before, now_us = play(claim(A), *middle)
    assert before is not None
    assert isinstance(last, tuple)
    # The boundary of a lapse or a window is passed by the store's clock; keep it passed where it went back.
    passed = before._replace(
        lease_until=None if before.lease_until is None else now_us + clock_step,
        expires_at=None if before.expires_at is None else now_us + clock_step,
    )
    after = apply(passed, last, now_us + clock_step)
    assert after is not None
    assert after.fence > before.fence
    assert after.fence > told(claim(A)).fence


def test_a_fence_is_at_least_the_clock_so_that_a_lost_record_does_not_lower_it():
    assert next_fence(0, START_US) == START_US
    assert next_fence(START_US, START_US) == START_US + 1
    assert next_fence(START_US + 5, START_US) == START_US + 6


@pytest.mark.parametrize(
    "command", [renew(A), settle(A), park(A), release(A), resolve(A, B, True), resolve(A, B, False)]
)
def test_what_is_no_entry_leaves_fence_and_attempts_alone(command):
    before, now_us = play(claim(A), LEASE)
    assert before is not None
    after = apply(before, command, now_us)
    assert after is not None
    assert (after.fence, after.attempts) == (before.fence, before.attempts)


# --- retake ----------------------------------------------------------------------------------------


def test_a_retake_counts_the_entry_and_remembers_the_first():
    record = told(claim(A), SECOND, park(A, note="timeout"), SECOND, retake(A, B, lease_us=7))
    now_us = START_US + 2 * SECOND
    assert record == told(claim(A))._replace(
        token=B, fence=now_us, attempts=2, entries=2, lease_until=now_us + 7
    )


def test_a_retake_of_an_approved_question_is_the_first_entry():
    record = told(claim(A, waiting=True), SECOND, retake(A, B))
    now_us = START_US + SECOND
    assert record == told(claim(A))._replace(
        token=B, fence=now_us, entered_at=now_us, lease_until=now_us + LEASE
    )


def test_a_retake_has_to_come_before_the_first_entry_is_too_old():
    parked = (claim(A), park(A))
    assert told(*parked, WINDOW - 1, retake(A, B, within_us=WINDOW)).token == B
    assert refused(retake(A, B, within_us=WINDOW), *parked, WINDOW)


def test_the_age_is_counted_from_the_first_entry_not_from_the_last():
    again = (claim(A), park(A), WINDOW - 1, retake(A, B), park(B), 1)
    assert refused(retake(B, C, within_us=WINDOW), *again)


def test_the_age_of_a_cleared_key_is_counted_from_its_new_entry():
    again = (claim(A), park(A), resolve(A, B, False), WINDOW - 1, claim(C), park(C))
    assert told(*again, SECOND, retake(C, D, within_us=WINDOW)).token == D


def test_a_live_owner_is_not_replaced_until_its_lease_ends():
    assert refused(retake(A, B), claim(A), LEASE - 1)
    assert told(claim(A), LEASE, retake(A, B)).token == B


def test_of_two_who_retake_the_same_attempt_one_wins():
    assert refused(retake(A, C), claim(A), park(A), retake(A, B))


# --- renew -----------------------------------------------------------------------------------------


def test_a_renewal_moves_the_lease_and_nothing_else():
    record = told(claim(A), SECOND, renew(A))
    assert record == told(claim(A))._replace(lease_until=START_US + SECOND + LEASE)


def test_an_owner_that_was_marked_as_lapsed_may_come_back():
    assert told(claim(A), LEASE, SWEEP, renew(A)) == told(claim(A), LEASE, renew(A))


def test_an_owner_that_said_it_cannot_tell_does_not_come_back_by_a_heartbeat():
    assert refused(renew(A), claim(A), park(A))


# --- settle ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", sorted(SETTLED))
def test_settling_says_how_it_ended_and_for_how_long(state):
    record = told(claim(A), SECOND, settle(A, state=state, outcome=b"x", by="probe"))
    now_us = START_US + SECOND
    assert record == told(claim(A))._replace(
        state=state,
        lease_until=None,
        settled_at=now_us,
        expires_at=now_us + WINDOW,
        outcome=b"x",
        by="probe",
    )


def test_settled_for_ever_never_closes():
    record = told(claim(A), settle(A, window_us=None))
    assert record.expires_at is None
    assert not closed(record, 2**62)


def test_the_newest_owner_settles_from_in_doubt_and_leaves_no_note():
    record = told(claim(A), park(A), settle(A))
    assert (record.state, record.note) == (State.DONE, "")


def test_an_older_owner_does_not_settle():
    assert refused(settle(A), claim(A), park(A), retake(A, B))


def test_a_rejected_question_is_settled_without_an_entry():
    record = told(claim(A, waiting=True), settle(A, state=State.FAILED, by="ann"))
    assert (record.attempts, record.entries, record.entered_at, record.by) == (0, 0, None, "ann")


# --- park, release -----------------------------------------------------------------------------------


def test_parking_keeps_why():
    record = told(claim(A), park(A, note="timeout"))
    assert record == told(claim(A))._replace(state=State.IN_DOUBT, lease_until=None, note="timeout")


def test_parking_replaces_the_sweepers_guess():
    assert told(claim(A), LEASE, SWEEP, park(A, note="timeout")).note == "timeout"


def test_a_release_of_the_first_entry_frees_the_key_for_its_window():
    record = told(claim(A), SECOND, release(A))
    assert record == told(claim(A))._replace(
        state=State.RELEASED,
        entries=0,
        entered_at=None,
        lease_until=None,
        expires_at=START_US + SECOND + WINDOW,
    )


def test_a_release_of_a_later_entry_says_nothing_about_the_earlier_one():
    before = (claim(A), park(A), retake(A, B))
    record = told(*before, release(B))
    assert record == told(*before)._replace(state=State.IN_DOUBT, lease_until=None, note=REFUSED_LATER)


def test_after_a_release_the_next_entry_is_a_first_one_again():
    assert told(claim(A), release(A), claim(B), release(B)).state is State.RELEASED
    assert told(claim(A), park(A), resolve(A, B, False), claim(C), release(C)).state is State.RELEASED


# --- resolve -----------------------------------------------------------------------------------------


def test_resolved_as_happened_is_done_with_the_outcome_that_was_found():
    record = told(claim(A), park(A), SECOND, resolve(A, B, True, outcome=b"x"))
    now_us = START_US + SECOND
    assert record == told(claim(A))._replace(
        state=State.DONE,
        token=B,
        lease_until=None,
        settled_at=now_us,
        expires_at=now_us + WINDOW,
        outcome=b"x",
        note="resolved",
        by="ann",
    )


def test_resolved_as_not_happened_is_claimable_with_its_history_kept():
    record = told(claim(A), park(A), SECOND, resolve(A, B, False, outcome=b"ignored"))
    assert record == told(claim(A))._replace(
        state=State.CLEARED,
        token=B,
        entries=0,
        entered_at=None,
        lease_until=None,
        expires_at=START_US + SECOND + WINDOW,
        note="resolved",
        by="ann",
    )


@pytest.mark.parametrize("happened", [True, False])
@pytest.mark.parametrize("command", [renew(A), settle(A), park(A), release(A)])
def test_an_owner_that_returns_after_the_resolution_changes_nothing(command, happened):
    assert refused(command, claim(A), park(A), resolve(A, B, happened))
    assert refused(command, claim(A), LEASE, resolve(A, B, happened))


@pytest.mark.parametrize("happened", [True, False])
def test_nobody_resolves_what_an_owner_still_works_on(happened):
    assert refused(resolve(A, B, happened), claim(A), LEASE - 1)


def test_of_two_people_who_resolve_the_same_attempt_the_first_is_heard():
    assert refused(resolve(A, C, True), claim(A), park(A), resolve(A, B, False))


# --- amend -------------------------------------------------------------------------------------------


def test_an_amended_record_says_something_else_and_is_else_as_it_was():
    resolved = told(claim(A), park(A), SECOND, resolve(A, B, True))
    amended = told(
        claim(A), park(A), SECOND, resolve(A, B, True), SECOND, amend(B, C, outcome=b"x", by="cat")
    )
    assert amended == resolved._replace(token=C, outcome=b"x", note="amended", by="cat")
    assert not amendable(told(claim(A), settle(A)))
    assert [amendable(resolved), amendable(amended)] == [True, True]


def test_of_two_people_who_amend_what_they_saw_the_first_is_heard():
    assert refused(amend(B, D), claim(A), park(A), resolve(A, B, True), amend(B, C))
    assert not refused(amend(C, D), claim(A), park(A), resolve(A, B, True), amend(B, C))


# --- asking again --------------------------------------------------------------------------------------


REPEATS: dict[str, tuple[Step, ...]] = {
    "claim": (claim(A),),
    "question": (claim(A, waiting=True),),
    "retake": (claim(A), park(A), retake(A, B)),
    "settle": (claim(A), settle(A)),
    "park": (claim(A), park(A)),
    "release": (claim(A), release(A)),
    "resolve: happened": (claim(A), park(A), resolve(A, B, True)),
    "resolve: did not": (claim(A), park(A), resolve(A, B, False)),
    "amend": (claim(A), park(A), resolve(A, B, True), amend(B, C)),
}


@pytest.mark.parametrize("repeat", REPEATS)
def test_a_command_that_is_sent_twice_changes_the_record_once(repeat):
    *_, last = REPEATS[repeat]
    assert isinstance(last, tuple)
    assert refused(last, *REPEATS[repeat])
    assert refused(last, *REPEATS[repeat], SECOND)


def test_a_later_entry_that_is_released_twice_changes_the_record_once():
    assert refused(release(B), claim(A), park(A), retake(A, B), release(B))


def test_who_asks_again_reads_that_the_key_is_theirs():
    assert ours(told(claim(A)), claim(A))
    assert ours(told(claim(A), park(A), retake(A, B)), retake(A, B))
    assert not ours(None, claim(A))
    assert not ours(told(claim(A)), claim(B))
    assert not ours(told(claim(A), settle(A)), claim(A))
    assert not ours(told(claim(A), park(A), retake(A, B)), claim(A))


def test_who_settles_again_reads_that_it_is_settled_as_they_said():
    record = told(claim(A), settle(A))
    assert settled_by(record, settle(A))
    assert not settled_by(None, settle(A))
    assert not settled_by(record, settle(B))
    assert not settled_by(record, settle(A, state=State.FAILED))
    assert not settled_by(record, settle(A, outcome=b"else"))
    assert not settled_by(told(claim(A)), settle(A))


# --- reading time ---------------------------------------------------------------------------------------


def test_a_lease_ends_exactly_at_its_end():
    record = told(claim(A))
    assert [lapsed(record, START_US + LEASE - 1), lapsed(record, START_US + LEASE)] == [False, True]
    assert [doubtful(record, START_US + LEASE - 1), doubtful(record, START_US + LEASE)] == [False, True]


def test_a_window_closes_exactly_at_its_end():
    record = told(claim(A), settle(A))
    assert [closed(record, START_US + WINDOW - 1), closed(record, START_US + WINDOW)] == [False, True]


@pytest.mark.parametrize("steps", [(claim(A),), (claim(A), park(A)), (claim(A), LEASE, SWEEP)])
def test_what_is_pending_or_in_doubt_never_closes(steps):
    assert not closed(told(*steps), 2**62)


def test_a_parked_record_is_doubtful_and_a_settled_one_never():
    assert doubtful(told(claim(A), park(A)), START_US)
    assert not doubtful(told(claim(A), settle(A)), 2**62)
    assert not doubtful(told(claim(A, waiting=True)), 2**62)


def test_a_person_reads_a_lapsed_record_as_in_doubt_swept_or_not():
    record = told(claim(A))
    assert effective_state(record, START_US + LEASE - 1) is State.PENDING
    assert effective_state(record, START_US + LEASE) is State.IN_DOUBT
    assert effective_state(told(claim(A), settle(A)), 2**62) is State.DONE


LAPSED_SITUATIONS = ("lapsed", "lapsed, with an earlier entry")


def test_sweeping_marks_a_lapsed_record_once():
    record = told(claim(A))
    assert sweep(record, START_US + LEASE - 1) is None
    swept = sweep(record, START_US + LEASE)
    assert swept == record._replace(state=State.IN_DOUBT, lease_until=None, note=LEASE_LAPSED)
    assert swept is not None
    assert sweep(swept, 2**62) is None


@pytest.mark.parametrize("situation", sorted(set(SITUATIONS) - {"absent", *LAPSED_SITUATIONS}))
def test_sweeping_marks_nothing_but_what_lapsed(situation):
    record, now_us = play(*SITUATIONS[situation])
    assert record is not None
    assert sweep(record, now_us) is None
