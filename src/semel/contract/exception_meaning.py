"""What an exception from a tool says about its effect."""

from __future__ import annotations

import errno
from enum import Enum

from semel.contract import transport
from semel.contract.result import ToolError, ToolResult
from semel.errors import BY_CODE, CallError, PartialSuccess

_UNREACHED = frozenset(
    (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.ETIMEDOUT, errno.EPIPE)
)

# Answers of a contract inside the tool that leave open whether *its* effect took place.
_UNSURE_CODES = frozenset(("OUTCOME_UNKNOWN", "OWNERSHIP_LOST", "STORE_CORRUPT"))


class Meaning(Enum):
    PARTIAL = "a part was done"
    REFUSED = "nothing happened"
    TRANSIENT = "the downstream did not answer, and may be asked again with the same key"
    UNKNOWN = "nobody knows"
    FAILED = "it failed"


# Of these one member is enough to leave a whole group open.
_OPEN = frozenset((Meaning.UNKNOWN, Meaning.TRANSIENT, Meaning.PARTIAL))


Kinds = tuple[type[BaseException], ...]


def meaning(error: BaseException, refused: Kinds, transient: Kinds, raises: Kinds = ()) -> Meaning:
    """What the exception means: by the contract's declarations first, then by the tables of known ones."""
    if isinstance(error, PartialSuccess):
        return Meaning.PARTIAL
    if isinstance(error, refused):
        return Meaning.REFUSED
    if isinstance(error, transient):
        return Meaning.TRANSIENT
    if type(error) in raises:
        return Meaning.FAILED
    if not isinstance(error, Exception) or leaves_open(error):
        return Meaning.UNKNOWN
    if isinstance(error, ExceptionGroup):
        # One member that leaves its effect open leaves that of the whole group open.
        meant = {meaning(member, refused, transient, raises) for member in error.exceptions}
        return Meaning.UNKNOWN if meant & _OPEN else Meaning.FAILED
    return Meaning.FAILED


def leaves_open(error: Exception) -> bool:
    """Whether nobody knows after it what happened, if the contract says nothing about it."""
    if isinstance(error, CallError):
        return error.retriable or error.code in _UNSURE_CODES
    if isinstance(error, TimeoutError | ConnectionError):
        return True
    if isinstance(error, OSError) and error.errno in _UNREACHED:
        return True
    return transport.leaves_open(error)


def open_answer(value: object) -> CallError | None:
    """The exception for a result that hands on what a call inside answered and that leaves the effect open.

    Codes of the tool's own say how it ended, however retriable they call themselves.
    """
    error = value.error if isinstance(value, ToolResult) else None
    if error is None or not _is_open(error):
        return None
    answer = error.exception()
    answer.retriable = type(answer).retriable  # it is the code that leaves it open
    return answer


def _is_open(error: ToolError) -> bool:
    ours = BY_CODE.get(error.code)
    return ours is not None and (ours.retriable or error.code in _UNSURE_CODES)
