"""claim → effect → settle: the only decider, written once for synchronous and asynchronous callers.

It is a generator that yields wishes (wishes.py) and never does I/O itself. Read `guarded` first: it is a
whole call. What follows where one leaves its straight way is read in the modules that it calls: claiming,
failing, settling, doubt, question.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from semel import errors
from semel.call.claiming import (
    Doubtful,
    Held,
    Ours,
    Settled,
    Waiting,
    check_version,
    claim_of,
    claim_result,
    give_back,
    settled_before,
    take,
    wait_for_owner,
)
from semel.call.doubt import after_death, in_doubt
from semel.call.failing import after_exception, failed, further_tries
from semel.call.guarded_call import Call
from semel.call.outcome import replayed_value, stored_value
from semel.call.question import after_approval
from semel.call.settling import (
    check_settled,
    end_job,
    finish,
    finish_after,
    let_go,
    release_of,
    remember,
    said_how,
)
from semel.call.wishes import ELAPSED, Deciding, Entered, Unrecorded, Wish
from semel.contract.exception_meaning import open_answer
from semel.contract.result import ToolResult
from semel.kernel import owner
from semel.kernel.keys import fingerprint
from semel.kernel.record import Claim, Look, Record, Settle, State, new, ours

# Looked up once: a member of an enumeration takes as long as a small object.
_DONE = State.DONE

# What a tool, or who entered it, says of the end in words of its own.
_SAID_HOW = (ToolResult, Entered)


def guarded(call: Call) -> Deciding:
    """One guarded call from the claim to its answer; raises what the contract answers instead of a value.

    What every first call does is written out here. Whatever else may happen has a function of its own.
    """
    contract, running, keeper = call.contract, call.ledger.running, call.ledger.keeper
    _refuse(call)
    try:
        running.calls.add(call)
        call.fingerprint = fingerprint(contract.name, call.canonical)
        if call.looks_first and (settled := settled_before(call, (yield Look(call.at)))):
            return replay(call, *settled)

        # Make the key ours.
        claim = claim_of(call)
        call.token = claim.token
        try:
            record, now_us, _ = yield claim
        except errors.StoreUnavailable:
            give_back(call, claim.token)
            raise
        call.record = record
        if not ours(record, claim):
            held = yield from _met(call, claim, record, now_us)
            if type(held) is Settled:
                return replay(call, *held)
            record, now_us = held

        # Enter the tool under its fence, with a heartbeat.
        if record.attempts > 1 or record.request.job_id:
            call.passed = yield from _first_arguments(call, record)
        secrets = _secrets(call) if call.exact is None else []
        call.fence = record.fence
        try:
            # Begun and ended inside, so that a call that is interrupted just there is not kept alive by it.
            keeper.begin(call)
            running.enter(call)
            value = yield call
            keeper.end(call)
        except BaseException as error:
            value = yield from after_exception(call, record, now_us, error, secrets)

        # Settle.
        if isinstance(value, _SAID_HOW):
            return (yield from _said_how(call, record, value, secrets))
        outcome, began = stored_value(contract, value, secrets), call.ledger.clock.monotonic()
        settle = new(Settle, (call.at, record.token, _DONE, outcome, contract.window_us, ""))
        try:
            reply = yield settle
        except BaseException as error:
            reply = yield from finish_after(call, settle, error, began)
        check_settled(call, settle, reply)
        if record.request.job_id:
            yield from end_job(call, record, _DONE)
        return value
    except errors.SemelError:
        raise
    except BaseException as interrupt:
        let_go(call, interrupt)
        raise
    finally:
        running.calls.discard(call)
        running.gone()


def _refuse(call: Call) -> None:
    """Raises if this call must not begin: on this ledger not at all, or not now."""
    store = call.ledger.store
    if call.contract.transaction_parameters and not store.transactional:
        raise errors.ContractError(
            f"The tool {call.contract.name!r} takes a Transaction, which the {store.name} store "
            "cannot give; it did not run.",
            corrective_action="Open the ledger in the database that the tool writes to.",
        )
    call.ledger.running.refuse(call)


def _secrets(call: Call) -> list[str]:
    """What is struck out of the text of an error: read before the tool can change its arguments."""
    arguments = call.contract.arguments
    return arguments.secrets_of(call.passed) if arguments.guards else []


def _said_how(call: Call, record: Record, value: ToolResult[Any] | Entered, secrets: list[str]) -> Deciding:
    """As the tool says; an open answer that it hands on means the same returned as raised."""
    error = open_answer(value.value if isinstance(value, Entered) else value)
    if error is None:
        return (yield from said_how(call, record, value, secrets))
    call.roll_back()
    return (yield from failed(call, record, error, secrets, later=False))


def _first_arguments(call: Call, record: Record) -> Generator[Wish, Any, dict[str, Any]]:
    try:
        check_version(record, call.contract.version)
        return call.contract.arguments.restore(record.request.arguments, call.arguments)
    except errors.CallError:
        # They fit the tool no more, so nothing was entered: what we took is given back at once.
        yield from finish(call, release_of(call, record.token))
        raise


def _met(
    call: Call, claim: Claim, record: Record | None, now_us: int
) -> Generator[Wish, Any, Ours | Settled]:
    """Somebody was here before: what follows, until the key is ours or the call is settled."""
    deadline = 0.0
    while True:
        match claim_result(call, claim, record, now_us):
            case Ours() | Settled() as result:
                return result
            case Waiting(waiting):
                end = yield from after_approval(call, waiting, new=waiting.token == claim.token)
            case Doubtful(doubtful, at_us):
                end = yield from in_doubt(call, doubtful, at_us)
            case Held(held) if owner.is_gone(held.token):
                end = yield from after_death(call, held)
            case Held() as held_by:
                deadline = deadline or (yield ELAPSED) + call.contract.wait_us / 1e6
                yield from wait_for_owner(call, held_by, deadline)
                record, now_us, _ = yield from take(call, claim)
                continue
        if end is not None:
            return end
        # Someone else was quicker, or the key is free again: claim once more, as a new attempt.
        claim = claim._replace(token=owner.token(call.ledger.clock))
        record, now_us, _ = yield from take(call, claim)


def replay(call: Call, record: Record, now_us: int) -> Any:
    """What the settled record says, as the first caller got it."""
    call.ledger.expects_settlements = True
    remember(call, record, now_us)
    call.record, call.replayed = record, True
    call.ledger.counters.replayed(record, now_us)
    call.ledger.keeper.notice()
    return replayed_value(call.contract, record)


def unrecorded(call: Unrecorded, chance: Callable[[], float]) -> Deciding:
    """A call of a tool that keeps no record: validated, tried again where that is declared, nothing else."""
    try:
        value = yield call
    except call.contract.transient as error:
        value = yield from further_tries(call.contract, error, chance, lambda _: True, lambda: call)
    return value.unwrap() if isinstance(value, ToolResult) else value
