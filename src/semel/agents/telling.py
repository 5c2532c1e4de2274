"""What a contract answers, as a message for the model."""

from __future__ import annotations

from semel.contract.raised import contracts_answer
from semel.contract.result import ToolError
from semel.errors import BY_CODE, CallError, NoStep


def tell(error: CallError | ToolError) -> str:
    """The contract's answer for the model. NO_STEP is the author's mistake: it is raised, not told."""
    answer = error if isinstance(error, ToolError) else ToolError.of(error)
    if answer.code == NoStep.code:
        raise answer.exception() if isinstance(error, ToolError) else error
    return answer.for_model


def told_by_engine(error: BaseException) -> str | None:
    """What a contract said to the model, in what an engine raises for its step that failed; None if nothing.

    In Temporal's error it is the first of the details.
    """
    cause: BaseException | None = error
    while cause is not None:
        answer = contracts_answer(cause)
        if answer is not None:
            return tell(answer)
        details = getattr(cause, "details", ())
        if details and isinstance(details[0], str) and details[0].partition(":")[0] in BY_CODE:
            return details[0]
        cause = cause.__cause__
    return None


# Not retriable, and not over either: the effect may be there.
_IN_DOUBT = frozenset(("OUTCOME_UNKNOWN", "OWNERSHIP_LOST", "STORE_CORRUPT"))


def is_told(text: str) -> bool:
    """Whether `tell` made it."""
    return text.partition(":")[0] in BY_CODE


def is_unfinished(message: str) -> bool:
    """Whether a message that `tell` made says that its action has not come to an end."""
    code = message.partition(":")[0]
    return code in _IN_DOUBT or (code in BY_CODE and BY_CODE[code].retriable)
