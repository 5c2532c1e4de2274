"""A call that a person has to approve: what follows from the answer, and the question alone."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from semel import errors
from semel.call.claiming import Ours, Settled, check_same_action, claim_of, take
from semel.call.doubt import retake
from semel.call.guarded_call import Call
from semel.call.outcome import stored_error
from semel.call.settling import let_go, remember, settle, settle_error
from semel.call.wishes import Wish
from semel.contract.result import ToolError
from semel.kernel.keys import fingerprint
from semel.kernel.record import SETTLED, Record, Release, State
from semel.questions import approvals
from semel.questions.approvals import Question


def after_approval(call: Call, record: Record, *, new: bool) -> Generator[Wish, Any, Ours | Settled | None]:
    """What follows for a call that waits for a person (`new`: since just now); None to claim again."""
    match (yield from _answered(call, record)):
        case "approved":
            return (yield from retake(call, record, None))
        case "rejected":
            return (yield from settle_error(call, record, _rejected(record), None, []))
        case "expired" | "cancelled" | None:
            # There is no open question any more: the waiting record goes, and the call is new.
            yield Release(call.at, record.token, call.contract.window_us)
            return None
        case _:
            raise errors.ApprovalRequired(job_id=record.request.job_id, new=new)


def _answered(call: Call, record: Record) -> Generator[Wish, Any, str | None]:
    """The status of the question; None if the contract no longer asks, and nobody has answered."""
    store, tenant, approval = call.ledger.store, call.ledger.tenant, call.contract.approval
    if approval is None:
        return (yield from approvals.answer(tenant, record))
    return (yield from approvals.question(store, tenant, record, approval)).status


def _rejected(record: Record) -> ToolError:
    return ToolError.of(errors.ApprovalRejected(job_id=record.request.job_id))


# --- the question alone ---------------------------------------------------------------------------


def put_question(call: Call) -> Generator[Wish, Any, Question]:
    """The question about a call, put unless it was before; nothing runs. A no settles the key at once."""
    call.ledger.running.refuse(call)
    try:
        call.ledger.running.calls.add(call)
        call.fingerprint = fingerprint(call.contract.name, call.canonical)
        while True:
            claim = claim_of(call)
            record, now_us, _ = yield from take(call, claim)
            assert record is not None, "after a claim the key has a record, whoever's it is"
            call.end()
            check_same_action(call, record)
            if record.state is not State.WAITING:
                if record.state in SETTLED:
                    remember(call, record, now_us)
                return (yield from _past_question(call, record))
            question = yield from _open_question(call, record, new=record.token == claim.token)
            if question is not None:
                return question
    except Exception:
        raise
    except BaseException as interrupt:
        let_go(call, interrupt)
        raise
    finally:
        call.ledger.running.calls.discard(call)
        call.ledger.running.gone()


def _open_question(call: Call, record: Record, *, new: bool) -> Generator[Wish, Any, Question | None]:
    """How the question about a waiting call stands; None if it is over unanswered, and the call is new."""
    approval = call.contract.approval
    assert approval is not None, "who does not ask is refused"
    request = yield from approvals.question(call.ledger.store, call.ledger.tenant, record, approval)
    if request.status in ("expired", "cancelled"):
        yield Release(call.at, record.token, call.contract.window_us)
        return None
    if request.status == "rejected":
        yield from settle(call, record, State.FAILED, stored_error(_rejected(record), []))
    return Question.of(request, new=new)


def _past_question(call: Call, record: Record) -> Generator[Wish, Any, Question]:
    """What a person was asked about a call that was made, or is under way."""
    request = yield from approvals.earlier(call.ledger.tenant, record)
    if request is not None:
        return Question.of(request)
    arguments = approvals.shown_arguments(record)
    return Question("", record.request.tool, arguments, "not_asked", None, "")
