"""Frameworks without an interrupt: the program asks the person after the turn, and then runs it again."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import semel
from semel import agents
from semel.questions.approvals import Question
from tests.agents import calling_again
from tests.agents.script import Job

# `undecorated="guard"` guards them too; the contract class_="read" is how they say it.
SILENT = {
    "test_a_plain_function_that_says_that_it_only_reads_is_not_guarded": "plain functions say nothing here"
}

_WHY = "the program names the turns; what was said in them cannot be seen"

# What takes the history: where the program names the turns, it gives the same name again while a turn has
# something unfinished.
UNTOLD = {
    "test_what_a_turn_left_in_doubt_goes_on_in_the_next_one": _WHY,
    "test_repeat_says_what_equal_calls_are": _WHY,
    "test_however_often_calls_may_repeat_what_is_in_doubt_does_not": _WHY,
}

UNSEEN = {**UNTOLD, **SILENT}


def kept(job: Job, ledger: semel.Ledger, turn: agents.Turn) -> list[dict[str, Any]]:
    """What the turn left to a person, also in a file."""
    asked = [
        asdict(Question.of(ledger.approvals.get(each.job_id))) for each in turn.unfinished if each.job_id
    ]
    if asked:
        (job.folder / "asked").write_text(json.dumps(asked))
    return asked


def answer(job: Job, ledger: semel.Ledger) -> None:
    """What the person said is decided; whatever stands, the turn goes on with it."""
    if job.verdict is None:
        return
    for question in json.loads((job.folder / "asked").read_text()):
        with agents.unless_decided():
            agents.decide(ledger, question, job.verdict, **calling_again.only(job, "approver"))
