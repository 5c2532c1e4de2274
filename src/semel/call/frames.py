"""What a caller sees of an exception: the frames of its own code and of the tool's, and next to none of ours.

Only exceptions pay for it; a call that returns does not come by here.
"""

from __future__ import annotations

import os
from types import TracebackType

from semel.call.outcome import OwnFailure
from semel.contract.raised import mark_recorded
from semel.errors import SemelError, StoreCorrupt, StoreUnavailable

# Where a call passes through. Other rooms have tools of their own, which are shown as everybody's.
_PACKAGE = os.path.dirname(os.path.dirname(__file__))
_OURS = tuple(
    os.path.join(_PACKAGE, room) + os.sep for room in ("call", "contract", "kernel", "ledger", "stores")
)


def shown(error: Exception) -> BaseException:
    """The exception for whoever called the tool plainly: an answer of the tool's own is that itself."""
    if isinstance(error, OwnFailure):
        mark_recorded(error.own, error.message)
        _leave(error.own, _users(error.own))
        return error.own
    first = error.__traceback__  # of the wrapper that raises it again
    users = _users(error)
    if first is not None and (isinstance(error, SemelError) or (users and users[-1].tb_next is None)):
        _leave(error, [first, *users])
        _shorten_cause(error)
    # Else we raised it ourselves, by mistake, and all of it is wanted.
    return error


def _shorten_cause(error: Exception) -> None:
    cause = error.__cause__
    if cause is not None and not isinstance(error, StoreUnavailable | StoreCorrupt):
        _leave(cause, _users(cause))


def _users(error: BaseException) -> list[TracebackType]:
    """The entries of its traceback that are of code outside of these rooms."""
    entries, each = [], error.__traceback__
    while each is not None:
        if not each.tb_frame.f_code.co_filename.startswith(_OURS):
            entries.append(each)
        each = each.tb_next
    return entries


def _leave(error: BaseException, entries: list[TracebackType]) -> None:
    """Only these are left of its traceback."""
    for number, entry in enumerate(entries):
        entry.tb_next = entries[number + 1] if number + 1 < len(entries) else None
    # Past the class's own `__setattr__`: an exception that is a frozen dataclass lets nobody assign.
    BaseException.with_traceback(error, entries[0] if entries else None)
