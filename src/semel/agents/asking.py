"""What a person is asked about a call, and what they said: the ledger's question, and its one decision."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from semel.contract.result import ToolError
from semel.errors import ApprovalError, CallError
from semel.ledger.ledger import Ledger
from semel.questions.approvals import Question
from semel.questions.deciding import Decided

# Who decided, where neither the answer nor the program names anybody.
UNNAMED = "unnamed person"


def question(ledger: Ledger, error: CallError | ToolError) -> Question:
    """What a person is asked, for APPROVAL_REQUIRED; ApprovalError for an answer that asks nobody."""
    job_id = error.details.get("job_id")
    if job_id is None:
        raise ApprovalError(
            f"{error.code} asks nobody.", corrective_action="Put a question for APPROVAL_REQUIRED only."
        )
    return Question.of(ledger.approvals.get(str(job_id)))


def decide(
    ledger: Ledger, question: Question | Mapping[str, Any], verdict: Any, approver: str = UNNAMED
) -> Decided:
    """The person's answer is the ledger's decision, on exactly what the question shows; the first one stands.

    The verdict is True or "approve", False or "reject", or {"approved": …, "by": …, "reason": …}; who decides
    is its `by`, else `approver`. ApprovalError, and nothing is decided, if it is none of these or comes too
    late; and if it has a `job_hash`, which is of another question.
    """
    shown = asdict(question) if isinstance(question, Question) else question
    if not isinstance(shown, Mapping) or not {"job_id", "job_hash"} <= shown.keys():
        raise ApprovalError(
            "What is to be decided is no question of a ledger's; nothing was decided.",
            corrective_action="Hand over the question as it was shown, with its job_id and job_hash.",
        )
    answer = _verdict(verdict)
    decide_so = ledger.approvals.approve if answer["approved"] else ledger.approvals.reject
    return decide_so(
        shown["job_id"],
        by=str(answer.get("by") or approver),
        reason=str(answer.get("reason") or ""),
        job_hash=answer.get("job_hash") or shown["job_hash"],
    )


def _verdict(given: Any) -> Mapping[str, Any]:
    if isinstance(given, Mapping) and isinstance(given.get("approved"), bool):
        return given
    if given is True or given == "approve":
        return {"approved": True}
    if given is False or given == "reject":
        return {"approved": False}
    raise ApprovalError(
        f"{given!r:.100} is no decision; nothing was decided.",
        corrective_action='Answer True, "approve", False, "reject" or {"approved": …, "by": …, "reason": …}.',
    )


async def aquestion(ledger: Ledger, error: CallError | ToolError) -> Question:
    return await asyncio.to_thread(question, ledger, error)


async def adecide(
    ledger: Ledger, question: Question | Mapping[str, Any], verdict: Any, approver: str = UNNAMED
) -> Decided:
    return await asyncio.to_thread(decide, ledger, question, verdict, approver)


# After these the next call reads what is on file, or puts the question anew.
_DECIDED_OTHERWISE = frozenset(
    ("approval_already_resolved", "approval_expired", "approval_not_actionable", "job_not_found")
)


@contextmanager
def unless_decided() -> Iterator[None]:
    """A decision that comes after another one, or too late, changes nothing, and is no error here."""
    try:
        yield
    except ApprovalError as refusal:
        if refusal.code not in _DECIDED_OTHERWISE:
            raise
