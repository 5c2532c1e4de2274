"""What follows when the tool raises: a further try, or what its contract says of the exception."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import Any

from semel import errors
from semel.call.guarded_call import Call
from semel.call.outcome import error_text
from semel.call.settling import (
    REFUSED_LATER,
    ended_by_tool,
    finish,
    in_doubt_error,
    park,
    release,
    release_of,
    settle_error,
    submit,
)
from semel.call.wishes import ELAPSED, Deciding, Entering, Pause, Wish
from semel.contract.contract import Contract
from semel.contract.exception_meaning import Meaning, meaning, open_answer
from semel.contract.result import ToolError
from semel.contract.transaction import ENDED_BY_TOOL
from semel.kernel.record import Record
from semel.ledger.running import NeverEntered

log = logging.getLogger("semel")


def after_exception(
    call: Call, record: Record, now_us: int, error: BaseException, secrets: list[str]
) -> Generator[Wish, Any, Any]:
    """The value of a further try, where the contract grants one; else raises what the exception leads to."""
    contract, keeper, entered_before = call.contract, call.ledger.keeper, False
    try:
        if (
            call.entered
            and isinstance(error, contract.transient)
            and not isinstance(error, _no_try(contract))
        ):
            entered_before = True
            try:
                value = yield from _tried_again(call, record, now_us, error)
            except BaseException as last:
                error = last
            else:
                if (open_end := open_answer(value)) is None:
                    return value
                error = open_end
        keeper.end(call)
        call.roll_back()
        if isinstance(error, NeverEntered):
            submit(call, release_of(call, record.token))  # unless whoever closed the ledger has done it
            text, fix = error.args
            raise errors.StoreUnavailable(text, corrective_action=fix) from None
        return (yield from failed(call, record, error, secrets, later=entered_before))
    finally:
        del error  # which knows this frame


def _no_try(contract: Contract) -> tuple[type[BaseException], ...]:
    return (NeverEntered, *contract.refused)


def failed(call: Call, record: Record, error: BaseException, secrets: list[str], *, later: bool) -> Deciding:
    """What an exception of the tool leads to; `later` if this attempt entered it before. Always raises."""
    contract = call.contract
    if call.broken:
        yield from park(call, record, error, ENDED_BY_TOOL)
        if not isinstance(error, Exception):
            raise error
        raise ended_by_tool(record) from error
    meant = meaning(error, contract.refused, contract.transient, contract.raises)
    if contract.transaction_parameters and (
        meant is not Meaning.FAILED or isinstance(error, errors.CallError | errors.ContractError)
    ):
        # What it wrote was rolled back, so nothing happened, whatever the exception may mean elsewhere.
        yield from _release_rolled_back(call, record, error)
        raise error
    match meant:
        case Meaning.PARTIAL:
            assert isinstance(error, errors.PartialSuccess)
            return (yield from settle_error(call, record, ToolError.of(error), error, secrets))
        case Meaning.FAILED:
            failure = ToolError("EFFECT_FAILED", error_text(error), details={"type": type(error).__name__})
            return (yield from settle_error(call, record, failure, error, secrets))
        case Meaning.REFUSED if later:
            yield from park(call, record, error)
            raise in_doubt_error(contract, record, REFUSED_LATER) from error
        case Meaning.REFUSED:
            yield from release(call, record, error)
            raise error
        case Meaning.TRANSIENT:
            yield from park(call, record, error)
            raise in_doubt_error(contract, record) from error
        case Meaning.UNKNOWN:
            try:
                yield from park(call, record, error)
            except errors.CallError:
                if isinstance(error, Exception):
                    raise
                # A cancelled or ending caller gets its own exception, whatever became of its record.
            raise error


def _release_rolled_back(call: Call, record: Record, error: BaseException) -> Generator[Wish, Any, None]:
    command = release_of(call, record.token)
    if isinstance(error, GeneratorExit):
        # The caller's coroutine is being closed and may not be asked to wait.
        submit(call, command)
        return
    try:
        yield from finish(call, command)
    except errors.CallError:
        pass  # its lease lapses, and the next caller enters again: there is no doubt to clear


# --- further tries --------------------------------------------------------------------------------


def _tried_again(call: Call, record: Record, now_us: int, error: BaseException) -> Generator[Wish, Any, Any]:
    contract = call.contract

    def may_enter_at(seconds: float) -> bool:
        elapsed_s = seconds - call.began
        is_open = not (call.lost or call.broken or call.ledger.running.ended)
        return is_open and _within_bounds(contract, record, now_us, elapsed_s)

    def anew() -> Call:
        # The tool may have changed the arguments that it got.
        call.passed = contract.arguments.restore(record.request.arguments, call.arguments)
        return call

    value = yield from further_tries(contract, error, call.ledger.clock.random, may_enter_at, anew)
    call.ledger.keeper.end(call)
    return value


def further_tries(
    contract: Contract,
    error: BaseException,
    chance: Callable[[], float],
    may_enter_at: Callable[[float], bool],
    anew: Callable[[], Entering],
) -> Generator[Wish, Any, Any]:
    """The tool's value after a first try that failed transiently; with the same key and arguments."""
    tries = 1
    while tries < contract.attempts:
        try:
            pause_s = contract.backoff_s(tries, chance())
        except Exception as wrong:
            log.error(
                "semel: backoff= of %s ended with %s: no further try", contract.name, type(wrong).__name__
            )
            break
        if not may_enter_at((yield ELAPSED) + pause_s):
            break
        yield Pause(pause_s)
        if not may_enter_at((yield ELAPSED)):
            break  # it took longer, or somebody went on or the ledger was closed meanwhile
        tries += 1
        try:
            entering = anew()
        except errors.InvalidArguments:
            break  # what was accepted before the pause no longer is, a time in the future say
        try:
            return (yield entering)
        except NeverEntered:
            break  # that one did not run; what the one before has left stands
        except contract.transient as again:
            if isinstance(again, contract.refused):
                raise
            error = again
    raise error


def _within_bounds(contract: Contract, record: Record, now_us: int, elapsed_s: float) -> bool:
    """Whether one more entry begins while the downstream remembers the key, and within the run limit."""
    assert record.entered_at is not None
    since_first_us = now_us - record.entered_at + elapsed_s * 1e6
    remembered = contract.downstream_us is None or since_first_us < contract.downstream_us
    return remembered and elapsed_s * 1e6 < contract.run_limit_us
