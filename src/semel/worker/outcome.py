"""What is reported of an attempt: a result that can be kept, or an error in words."""

from __future__ import annotations

from typing import Any

import orjson
from pydantic_core import PydanticSerializationError, to_jsonable_python

from semel.contract.raised import contracts_answer
from semel.errors import SemelError
from semel.flow.run_progress import ATTEMPTS_MAX
from semel.kernel.keys import Uncanonical, canonical
from semel.kernel.limits import DEPTH_MAX, MESSAGE_CHARS_MAX, RESULT_BYTES_MAX
from semel.worker.job_source import JobReport
from semel.worker.traces import trace

# A gateway takes labels of this length.
_CODE_CHARS_MAX = 256

# The report on a report that was refused.
REFUSED = "RESULT_REFUSED"

# The result is a member of the body that carries it.
_DEPTH_MAX = DEPTH_MAX - 1


def succeeded(value: Any) -> JobReport:
    """The result as JSON; a failure that trying again does not mend if it cannot be kept."""
    try:
        # Models, dataclasses, dates and the like are written as pydantic writes them.
        plain = to_jsonable_python(value, inf_nan_mode="constants")
        canonical(plain, depth_max=_DEPTH_MAX)  # no NaN, no NUL, not too deep
        size = len(orjson.dumps(plain))
    except (PydanticSerializationError, Uncanonical, TypeError, ValueError, RecursionError) as why:
        return _unfit("RESULT_UNSTORABLE", f"The handler's result cannot be kept: {_text(why)}")
    if size > RESULT_BYTES_MAX:
        return _unfit(
            "RESULT_TOO_LARGE", f"The handler's result has {size} bytes; {RESULT_BYTES_MAX} are the most."
        )
    return JobReport("succeeded", plain)


def failed(error: BaseException) -> JobReport:
    """The exception's own code or its name, its text, where it came from, whether to try again."""
    code = getattr(error, "code", None)
    name = code if isinstance(code, str) and code else type(error).__name__
    answer = contracts_answer(error) or error
    retriable = bool(getattr(answer, "retriable", True))
    reported = {"code": name[:_CODE_CHARS_MAX], "message": _text(answer), "retriable": retriable}
    return JobReport("failed", error=reported | ({"traceback": where} if (where := trace(error)) else {}))


def refused(why: SemelError) -> JobReport:
    """The first report was not taken, whatever is in it: people are told that, and it is not tried again."""
    return _unfit(REFUSED, f"The handler's result was refused: {why.code}: {why.message}")


def is_final(report: JobReport, attempt: int) -> bool:
    """Whether the job ends with this report."""
    return report.error is None or not report.error["retriable"] or attempt >= ATTEMPTS_MAX


def _unfit(code: str, message: str) -> JobReport:
    error = {"code": code, "message": message[:MESSAGE_CHARS_MAX], "retriable": False}
    return JobReport("failed", error=error)


def _text(error: BaseException) -> str:
    """What it says, bounded, and as text that every store takes."""
    try:
        text = str(error)
    except Exception:  # one that cannot be printed is a failure all the same
        text = type(error).__name__
    return text.encode("utf-8", "replace").decode().replace("\0", "\\0")[:MESSAGE_CHARS_MAX]
