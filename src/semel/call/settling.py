"""The last word of an attempt: how it is settled, parked or released, until the store has it."""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import Any, NoReturn

from semel import errors
from semel.call.guarded_call import Call
from semel.call.outcome import recorded_error, stored_error, stored_value
from semel.call.wishes import ELAPSED, CommitEffect, Deciding, Entered, Pause, Wish
from semel.contract.contract import Contract
from semel.contract.http_answer import AnswerUnsure
from semel.contract.raised import is_answer
from semel.contract.result import ToolError, ToolResult
from semel.contract.transaction import ENDED_BY_TOOL, TransactionBroken
from semel.kernel.record import SETTLED, Park, Record, Release, Reply, Settle, State, amendable, settled_by
from semel.questions import calls

log = logging.getLogger("semel")

REFUSED_LATER = "The tool was refused now, but an earlier entry may have taken effect."


def settle(call: Call, record: Record, state: State, outcome: bytes | None) -> Generator[Wish, Any, None]:
    command = Settle(call.at, record.token, state, outcome, call.contract.window_us)
    check_settled(call, command, (yield from finish(call, command)))
    if record.request.job_id:
        yield from end_job(call, record, state)


def settle_error(
    call: Call, record: Record, failure: ToolError, cause: BaseException | None, secrets: list[str]
) -> Generator[Wish, Any, NoReturn]:
    state = State.PARTIAL if failure.code == errors.PartialSuccess.code else State.FAILED
    secrets = secrets or call.contract.arguments.secrets_of(call.arguments)
    own = cause if isinstance(cause, Exception) and is_answer(cause, call.contract.raises) else None
    outcome = stored_error(failure, secrets, own)
    yield from settle(call, record, state, outcome)
    raise recorded_error(outcome, own=own) from cause


def check_settled(call: Call, command: Settle, reply: Reply, lost: str | None = None) -> None:
    """The settlement is on record, and kept for replays; OwnershipLost if somebody else's is."""
    settled = call.record = reply.record
    call.end()
    if settled is None or not (reply.applied or settled_by(settled, command)):
        raise errors.OwnershipLost(lost)
    remember(call, settled, reply.now_us)


def remember(call: Call, record: Record, now_us: int) -> None:
    call.settled = True
    # A record that its owner settled has no note, and is never amendable.
    if not call.keep or (record.note and amendable(record)):
        return  # read each time: another process may amend it, and tells nobody
    until_us = record.expires_at
    if until_us is not None:
        # The window is counted by the store's clock; the cache asks ours.
        until_us += call.ledger.clock.now_us() - now_us
    call.ledger.cache.put(call.key, record, until_us)


def end_job(call: Call, record: Record, state: State) -> Generator[Wish, Any, None]:
    """The job of a call that a person approved ends with it. If that fails, a sweeper does it."""
    call.end()
    try:
        yield from calls.settled(call.ledger.tenant, record.request.job_id, state, call.ledger.clock)
    except errors.SemelError as away:
        log.debug("semel: the job of an approved call is ended later: %s", away.code)


def park(
    call: Call, record: Record, error: BaseException, note: str | None = None
) -> Generator[Wish, Any, None]:
    command = Park(call.at, record.token, note or _why_in_doubt(error))
    if isinstance(error, GeneratorExit):
        # The caller's coroutine is being closed and may not be asked to wait.
        submit(call, command)
        return
    _still_ours((yield from finish(call, command)), record.token)


def _why_in_doubt(error: BaseException) -> str:
    return str(error) if isinstance(error, AnswerUnsure) else f"the tool ended with {type(error).__name__}"


def release(call: Call, record: Record, error: BaseException) -> Generator[Wish, Any, None]:
    reply = yield from finish(call, release_of(call, record.token))
    left = _still_ours(reply, record.token)
    if left.state is State.IN_DOUBT:
        raise in_doubt_error(call.contract, record, REFUSED_LATER) from error


def _still_ours(reply: Reply, token: bytes) -> Record:
    if reply.record is None or reply.record.token != token:
        raise errors.OwnershipLost()
    return reply.record


# --- until the store has it -----------------------------------------------------------------------


def finish(call: Call, command: Settle | Park | Release) -> Generator[Wish, Any, Reply]:
    """The reply to the last word of an attempt."""
    began = call.ledger.clock.monotonic()
    try:
        reply: Reply = yield command
    except BaseException as error:
        reply = yield from finish_after(call, command, error, began)
    call.record = reply.record
    call.end()
    return reply


def finish_after(
    call: Call, command: Settle | Park | Release, error: BaseException, began: float
) -> Generator[Wish, Any, Reply]:
    """The reply to a last word that met this error, asked for again while the store is away.

    After the store's `settle_wait`, of which the first try is a part, the keeper goes on in the background,
    and the caller is told of the doubt.
    """
    give_up, pause_s = began + call.ledger.store.settle_wait_s, 0.01
    try:
        while True:
            _check_may_repeat(call, command, error)
            if (yield ELAPSED) + pause_s >= give_up:
                defer(call, command)
                text = "The tool ran, but the store did not take its outcome."
                raise in_doubt_error(call.contract, call.record, text) from error
            try:
                yield Pause(pause_s * (0.5 + call.ledger.clock.random() / 2))
            except BaseException:
                defer(call, command)
                raise
            pause_s = min(0.5, pause_s * 2)
            try:
                reply: Reply = yield command
                return reply
            except BaseException as again:
                error = again
    finally:
        del error  # which knows this frame


def _check_may_repeat(call: Call, command: Settle | Park | Release, error: BaseException) -> None:
    """The store is away, and may come back; else raises what follows from the error."""
    if not isinstance(error, Exception):
        # The caller is interrupted and may not wait; what its tool did has to be written all the same.
        submit(call, command)
        raise error
    if isinstance(error, errors.StoreCorrupt):
        raise errors.StoreCorrupt(
            "The tool ran, but its record is damaged, so what it did was not recorded."
        ) from error
    if not isinstance(error, errors.StoreUnavailable):
        raise error
    if call.ledger.running.ended:
        call.end()
        text = "The tool ran, but the ledger was closed before its outcome was recorded."
        raise in_doubt_error(call.contract, call.record, text) from error


# --- without waiting for it -----------------------------------------------------------------------


def let_go(call: Call, interrupt: BaseException) -> None:
    """An interrupted call holds no key: it gives back what it did not use, and leaves the rest in doubt.

    So does one that a mistake of ours ended. After an exception of the tool's own nothing is left to give.
    """
    token = call.token
    if token is None:
        return
    call.ledger.keeper.end(call)
    call.roll_back()
    if call.entered:
        note = ENDED_BY_TOOL if call.broken else f"the call ended with {type(interrupt).__name__}"
        submit(call, Park(call.at, token, note))
    else:
        submit(call, release_of(call, token))


def submit(call: Call, last_word: Settle | Park | Release) -> None:
    """Hand the last word to the store without waiting for its reply.

    For a caller that ends with an exception of its own, which nothing here replaces.
    """
    try:
        call.ledger.store.submit(last_word)
    except errors.SemelError as error:
        if not call.ledger.running.ended:  # else whoever closed the ledger saw to it
            log.warning("semel: %s of %s was not written: %s", type(last_word).__name__, call.key, error)
    call.end()


def defer(call: Call, last_word: Settle | Park | Release) -> None:
    """Leave the last word to the keeper, which tries for as long as the lease: the store is away."""
    call.ledger.keeper.defer(last_word, call.contract.lease_us / 1e6)
    call.end()


def release_of(call: Call, token: bytes) -> Release:
    return Release(call.at, token, call.contract.window_us)


# --- a tool that says how it ended ----------------------------------------------------------------


def said_how(call: Call, record: Record, value: ToolResult[Any] | Entered, secrets: list[str]) -> Deciding:
    """The end of a tool that said itself how it ended, or wrote into a transaction."""
    if isinstance(value, Entered):
        return (yield from _committed(call, record, value, secrets))
    if value.error is not None:
        return (yield from settle_error(call, record, value.error, None, secrets))
    yield from settle(call, record, State.DONE, stored_value(call.contract, value.value, secrets))
    return value.value


def _committed(call: Call, record: Record, entered: Entered, secrets: list[str]) -> Deciding:
    """Effect and settlement are committed together, or neither is and the key is free again."""
    try:
        command, value = _settlement(call, record, entered.value, secrets)
        reply = yield CommitEffect(entered.transaction, command)
    except errors.StoreUnavailable as away:
        reply = yield from _whether_committed(call, record, away)
    except TransactionBroken as broken:
        yield from park(call, record, broken, ENDED_BY_TOOL)
        raise ended_by_tool(record) from broken
    except BaseException:
        # Owner-checked: whichever of commit and release comes first, the other finds nothing to do.
        entered.transaction.roll_back()
        submit(call, release_of(call, record.token))
        raise
    check_settled(
        call,
        command,
        reply,
        "This call was silent past its lease and someone else went on; its own effect was rolled back.",
    )
    if record.request.job_id:
        yield from end_job(call, record, command.state)
    if command.state is not State.DONE:
        assert command.outcome is not None
        raise recorded_error(command.outcome)
    return value


def _settlement(call: Call, record: Record, value: Any, secrets: list[str]) -> tuple[Settle, Any]:
    """How the tool ended, as a command, and the value for its caller."""
    state, outcome = State.DONE, None
    secrets = secrets or call.contract.arguments.secrets_of(call.arguments)
    if isinstance(value, ToolResult) and value.error is not None:
        state = State.PARTIAL if value.error.code == errors.PartialSuccess.code else State.FAILED
        outcome = stored_error(value.error, secrets)
    else:
        value = value.value if isinstance(value, ToolResult) else value
        outcome = stored_value(call.contract, value, secrets)
    return Settle(call.at, record.token, state, outcome, call.contract.window_us), value


def _whether_committed(
    call: Call, record: Record, away: errors.StoreUnavailable
) -> Generator[Wish, Any, Reply]:
    """The reply after an unacknowledged commit: a release waits for it, and is refused if it came through."""
    reply = yield from finish(call, release_of(call, record.token))
    if reply.applied or reply.record is None or reply.record.state not in SETTLED:
        raise errors.StoreUnavailable(
            "The store did not commit, so what the tool wrote was rolled back."
        ) from away
    return reply


# --- what the caller is told ----------------------------------------------------------------------


def in_doubt_error(
    contract: Contract, record: Record | None = None, text: str | None = None
) -> errors.CallError:
    """The answer to a caller whose call is in doubt: retriable where a retry or the probe may clear it."""
    if contract.on_unknown in ("retry", "probe"):
        return errors.UpstreamUnavailable(text, retry_after_s=1.0)
    if record is None:
        return errors.OutcomeUnknown(text)
    return errors.OutcomeUnknown(text, record_id=record.request.id)


def ended_by_tool(record: Record) -> errors.OutcomeUnknown:
    return errors.OutcomeUnknown(
        "The tool ended the transaction that it was given: what it wrote may be committed or not, and is not "
        "recorded as done. Nobody enters again until a person has looked.",
        record_id=record.request.id,
        reason=ENDED_BY_TOOL,
        attempts=record.attempts,
    )
