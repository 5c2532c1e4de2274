"""How a call's outcome is written into its record, and read back as the first caller got it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import orjson
from pydantic_core import from_json

from semel import errors
from semel.contract import secrecy
from semel.contract.contract import Contract
from semel.contract.exception_meaning import Kinds
from semel.contract.raised import as_data, left_out, rebuilt
from semel.contract.result import ToolError
from semel.contract.values import Unstorable
from semel.kernel.limits import MESSAGE_CHARS_MAX, RESULT_BYTES_MAX
from semel.kernel.record import Record, State

log = logging.getLogger("semel")

# Looked up once, because every replay comes by here.
_DONE = State.DONE


def stored_value(contract: Contract, value: Any, secrets: Sequence[str] = ()) -> bytes | None:
    """The value as it will be replayed; None if it cannot be kept: it happened all the same."""
    try:
        data = contract.values.dump(value)
        if secrets and secrecy.holds(from_json(data), secrets):
            raise Unstorable("it contains a secret argument")
    except Unstorable as reason:
        log.warning("semel: the result of %s is not kept: %s", contract.name, reason)
        return None
    except Exception as error:  # whatever the code of its class does: that it happened has to be recorded
        log.error("semel: the result of %s is not kept: %s", contract.name, type(error).__name__)
        return None
    return compact(data)


def compact(data: bytes) -> bytes:
    """The same bytes in a buffer of their length: orjson's own is kilobytes longer."""
    return b"%b" % data


class OwnFailure(errors.EffectFailed):
    """The tool failed with an exception that its contract lists as an answer, which plain callers get."""

    def __init__(self, like: errors.CallError, own: BaseException) -> None:
        super().__init__(like.message, corrective_action=like.corrective_action, **like.details)
        self.own = own


def stored_error(failure: ToolError, secrets: list[str], own: Exception | None = None) -> bytes:
    """The failure as it will be replayed, without the secrets of the call; `own` is rebuilt then."""
    body: dict[str, Any] = {
        "code": failure.code if failure.code in errors.BY_CODE else cleaned(failure.code, secrets),
        "message": cleaned(failure.message, secrets),
        "retriable": failure.retriable,
        "corrective_action": cleaned(failure.corrective_action, secrets),
    }
    if own is not None:
        body |= _own(own, secrets)
    try:
        whole = body | {"details": dict(failure.details)}
        data = orjson.dumps(whole, default=str, option=orjson.OPT_NON_STR_KEYS)
    except Exception:  # whatever what is in them does
        data = b""
    if not 0 < len(data) <= RESULT_BYTES_MAX or secrecy.holds(orjson.loads(data)["details"], secrets):
        # Details that cannot be kept are dropped; that it failed is kept in any case.
        data = orjson.dumps(body | {"details": {}})
    return data


def _own(own: Exception, secrets: list[str]) -> dict[str, Any]:
    """What is kept to rebuild it; people are told what a replay will lack."""
    raised, name = as_data(own, secrets), type(own).__qualname__
    if raised is None or len(orjson.dumps(raised)) > RESULT_BYTES_MAX // 2:
        log.warning("semel: %s cannot be rebuilt, so replays raise EffectFailed", name)
        return {}
    if lost := left_out(own, raised):
        log.warning("semel: %s will be replayed without %s: no plain data", name, ", ".join(lost))
    return {"raised": raised}


def replayed_value(contract: Contract, record: Record) -> Any:
    """The settled value; raises what was settled instead of one."""
    if record.state is not _DONE:
        raise _replayed(recorded_error(record.outcome, contract.raises))
    if record.outcome is None:
        raise _replayed(errors.ResultUnavailable())
    try:
        return contract.values.load(record.outcome)
    except ValueError as misfit:
        raise _replayed(_unreadable(record.outcome)) from misfit


def recorded_error(
    outcome: bytes | None, raises: Kinds = (), own: BaseException | None = None
) -> errors.CallError:
    """The exception that a failed or partial record stands for; `own` is what the tool has just raised."""
    try:
        body = orjson.loads(outcome or b"")
        error = ToolError(
            code=body["code"],
            message=body["message"],
            retriable=body["retriable"],
            corrective_action=body["corrective_action"],
            details=body["details"],
        ).exception()
        if own is None and raises and "raised" in body:
            own = rebuilt(body["raised"], raises)
        return error if own is None else OwnFailure(error, own)
    except (ValueError, KeyError, TypeError):
        return errors.StoreCorrupt()


def error_text(error: BaseException) -> str:
    """One line for a person: the exception's kind and text."""
    if isinstance(error, errors.EffectFailed):  # of a tool inside this one, which said it so
        return error.message
    try:
        text = str(error)
    except Exception:  # one that cannot be printed is a failure all the same
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def cleaned(text: str, secrets: list[str]) -> str:
    """A text as it may be kept and shown: without secrets, valid, and no longer than a person reads."""
    text = secrecy.struck(text, secrets)
    # A lone surrogate in an error text must not keep the failure from being recorded.
    return text[:MESSAGE_CHARS_MAX].encode(errors="replace").decode()


def _unreadable(outcome: bytes) -> errors.CallError:
    try:
        from_json(outcome)
    except ValueError:
        return errors.StoreCorrupt()
    return errors.ResultUnavailable(
        "It happened, but the kept value does not fit the tool's present result type."
    )


def _replayed(error: errors.CallError) -> errors.CallError:
    error.replayed = True
    return error
