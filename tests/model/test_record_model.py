"""The record model keeps a record's promises from every state that two owners can lead it to."""

from __future__ import annotations

from itertools import product
from typing import Any

from tests.model.linearizability import Op
from tests.model.record_model import ABSENT, STARTED, Question, Record, RecordModel, apply, every_question

QUESTIONS = every_question(("a", "b"))


def reachable() -> set[Record]:
    """Every record that some sequence of questions leads to."""
    found, fresh = {ABSENT}, [ABSENT]
    while fresh:
        record = fresh.pop()
        new = {apply(record, name, args)[0] for name, args in QUESTIONS} - found
        found |= new
        fresh.extend(new)
    return found


def run(*questions: Question) -> list[Any]:
    """The answers to questions asked one after the other."""
    record, answers = ABSENT, []
    for name, args in questions:
        record, answer = apply(record, name, args)
        answers.append(answer)
    return answers


def test_what_the_model_calls_a_read_never_changes_a_record() -> None:
    model, reads = RecordModel(), 0
    for record, (name, args) in product(reachable(), QUESTIONS):
        after, answer = apply(record, name, args)
        if model.only_reads(Op("p1", name, args, answer, 0, 1)):
            assert after == record
            reads += 1
    assert reads > 0


def test_the_same_question_again_gets_the_same_answer_while_nobody_else_asks() -> None:
    changed = 0
    for record, (name, args) in product(reachable(), QUESTIONS):
        after, answer = apply(record, name, args)
        if name == "retake" and args[0] == args[1]:
            continue  # Entering again in one's own place is a new entry each time, not a repetition.
        assert apply(after, name, args)[1] == answer
        changed += after != record
    assert changed > 0


def test_a_settled_record_never_changes() -> None:
    settled = [record for record in reachable() if record.state == "done"]
    assert settled
    for record, (name, args) in product(settled, QUESTIONS):
        assert apply(record, name, args)[0] == record


def test_a_released_key_is_claimed_anew() -> None:
    answers = run(("claim", ("a",)), ("release", ("a",)), ("claim", ("b",)), ("look", ()))
    assert answers == [STARTED, True, STARTED, ("pending", "b", None)]


def test_a_release_after_a_second_entry_leaves_the_record_in_doubt() -> None:
    answers = run(
        ("claim", ("a",)), ("park", ("a",)), ("retake", ("b", "a")), ("release", ("b",)), ("look", ())
    )
    assert answers == [STARTED, True, True, True, ("in_doubt", "b", None)]


def test_only_the_newest_owner_settles_also_from_in_doubt() -> None:
    parked = (("claim", ("a",)), ("park", ("a",)))
    assert run(*parked, ("settle", ("a", "ok")), ("look", ()))[2:] == [True, ("done", "a", "ok")]
    assert run(*parked, ("retake", ("b", "a")), ("settle", ("a", "ok")))[2:] == [True, False]


def test_a_second_settle_with_another_outcome_is_told_no() -> None:
    settles = (
        ("settle", ("a", "ok")),
        ("settle", ("a", "ok")),
        ("settle", ("a", "no")),
        ("settle", ("b", "ok")),
    )
    assert run(("claim", ("a",)), *settles)[1:] == [True, True, False, False]


def test_of_two_retakes_of_the_same_doubt_one_wins() -> None:
    answers = run(
        ("claim", ("a",)), ("park", ("a",)), ("retake", ("b", "a")), ("retake", ("c", "a")), ("look", ())
    )
    assert answers[2:] == [True, False, ("pending", "b", None)]


def test_a_claim_never_takes_over_what_is_in_doubt() -> None:
    answers = run(("claim", ("a",)), ("park", ("a",)), ("claim", ("b",)), ("claim", ("a",)))
    assert answers[2:] == [("other", "in_doubt", "a")] * 2


def test_a_retake_that_saw_an_older_owner_is_told_no() -> None:
    retaken = (("claim", ("a",)), ("park", ("a",)), ("retake", ("b", "a")), ("park", ("b",)))
    assert run(*retaken, ("retake", ("c", "a")), ("retake", ("c", "b")))[4:] == [False, True]


def test_a_release_is_repeated_to_its_owner_only() -> None:
    assert run(("claim", ("a",)), ("release", ("a",)), ("release", ("a",)), ("release", ("b",)))[2:] == [
        True,
        False,
    ]
