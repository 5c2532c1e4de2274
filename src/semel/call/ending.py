"""How a call ended, in the words and figures of `semel.instrumentation`."""

from __future__ import annotations

from semel.call.guarded_call import Call
from semel.call.step import current_visit
from semel.call.wishes import Unrecorded
from semel.instrumentation.hooks import Observed
from semel.instrumentation.numbers import ToolNumbers
from semel.kernel.clock import SYSTEM, Clock
from semel.kernel.record import Record
from semel.ledger.ledger import Ledger

Stages = tuple[float | None, float | None, float | None]
"""Seconds until the key was ours, in the tool, until the outcome was on record.

None for a stage to which it never came, and for all of them if nobody wants to know."""

_NONE: Stages = (None, None, None)


def tell(
    numbers: ToolNumbers,
    observed: Observed | None,
    prepared: Call | Unrecorded | Record | None,
    answer: str,
    replayed: bool,
    ledger: Ledger | None,
) -> None:
    """The call, which has just ended with this answer, is counted, and told to those who listen."""
    stages_s = stages_of(prepared)
    numbers.answered(answer, stages_s)
    if observed is not None:
        observed.end(answer, replayed, stages_s, retry_age_s(prepared, ledger))


def stages_of(prepared: Call | Unrecorded | Record | None) -> Stages:
    """Of a call that ends now."""
    if isinstance(prepared, Unrecorded) and prepared.began is not None:
        return None, SYSTEM.monotonic() - prepared.began, None
    if not isinstance(prepared, Call) or not prepared.timed:
        return _NONE
    now = prepared.ledger.clock.monotonic()
    if not prepared.entered:
        return now - prepared.asked_at, None, None
    left = getattr(prepared, "left", now)  # an interrupt may have come before it was set
    return prepared.began - prepared.asked_at, left - prepared.began, now - left


def retry_age_s(prepared: Call | Unrecorded | Record | None, ledger: Ledger | None) -> float | None:
    """How long ago the answer was settled that the call repeats; None if it repeats none."""
    if isinstance(prepared, Call):
        record = prepared.record if prepared.replayed else None
    else:
        record = prepared if isinstance(prepared, Record) else None
    if record is None:
        return None
    since_us = record.created_at if record.settled_at is None else record.settled_at
    return max(0, _clock(ledger).now_us() - since_us) / 1e6


def _clock(ledger: Ledger | None) -> Clock:
    """Of the ledger that was given, else of the step's."""
    visit = current_visit()
    if ledger is None and visit is not None:
        ledger = visit.step.ledger
    return SYSTEM if ledger is None else ledger.clock
