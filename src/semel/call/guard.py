"""claim → effect → settle: the only decider, written once for synchronous and asynchronous callers.

It is a generator that yields wishes (drive.py) and never does I/O itself. Read `guarded` first: it is a
whole call; every other function here is a part of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, NoReturn

from semel import errors
from semel.call.drive import (
    ELAPSED,
    Ask,
    Await,
    CommitEffect,
    Deciding,
    Entered,
    Entering,
    Pause,
    Unrecorded,
    Wish,
)
from semel.call.guarded_call import Call
from semel.call.outcome import (
    compact,
    error_text,
    recorded_error,
    replayed_value,
    stored_error,
    stored_value,
)
from semel.contract.contract import Contract
from semel.contract.exception_meaning import Meaning, meaning
from semel.contract.http_answer import AnswerUnsure
from semel.contract.raised import is_answer
from semel.contract.result import CannotTell, DidNotHappen, Happened, ToolError, ToolResult
from semel.contract.transaction import ENDED_BY_TOOL, TransactionBroken
from semel.kernel import owner
from semel.kernel.keys import fingerprint
from semel.kernel.record import (
    OWNER_GONE,
    PROBE,
    SETTLED,
    CallRequest,
    Claim,
    Look,
    Park,
    Record,
    Release,
    Reply,
    Resolve,
    Retake,
    Settle,
    State,
    amendable,
    closed,
    doubtful,
    new,
    ours,
    settled_by,
)
from semel.ledger.running import NeverEntered
from semel.questions import approvals, calls
from semel.questions.approvals import Question

log = logging.getLogger("semel")

# Looked up once: a member of an enumeration takes as long as a small object.
_DONE = State.DONE

# What a tool, or who entered it, says of the end in words of its own.
_SAID_HOW = (ToolResult, Entered)

_REFUSED_LATER = "The tool was refused now, but an earlier entry may have taken effect."


# --- the result of a claim ------------------------------------------------------------------------
#
# `now_us` is the store's time at which the record stood so.


class Ours(NamedTuple):
    """The key is ours: the tool may be entered."""

    record: Record
    now_us: int


class Settled(NamedTuple):
    """The call has ended before: its outcome is the answer."""

    record: Record
    now_us: int


class Waiting(NamedTuple):
    """A person has to say yes first."""

    record: Record


class Doubtful(NamedTuple):
    """It may have happened: its owner said so, or its lease lapsed."""

    record: Record
    now_us: int


class Held(NamedTuple):
    """Somebody else is performing it, whose lease still lasts."""

    record: Record
    lease_left_s: float


ClaimResult = Ours | Settled | Waiting | Doubtful | Held


# --- the whole call -------------------------------------------------------------------------------


def guarded(call: Call) -> Deciding:
    """One guarded call from the claim to its answer; raises what the contract answers instead of a value.

    What every first call does is written out here. Whatever else may happen has a function of its own.
    """
    contract, running, keeper = call.contract, call.ledger.running, call.ledger.keeper
    _refuse(call)
    try:
        running.calls.add(call)
        call.fingerprint = fingerprint(contract.name, call.canonical)
        if call.looks_first and (settled := _settled_before(call, (yield Look(call.at)))):
            return replay(call, *settled)

        # Make the key ours.
        claim = _claim(call)
        call.token = claim.token
        try:
            record, now_us, _ = yield claim
        except errors.StoreUnavailable:
            _give_back(call, claim.token)
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
            value = yield from _after_exception(call, record, now_us, error, secrets)

        # Settle.
        if isinstance(value, _SAID_HOW):
            return (yield from _said_how(call, record, value, secrets))
        outcome, began = stored_value(contract, value, secrets), call.ledger.clock.monotonic()
        settle = new(Settle, (call.at, record.token, _DONE, outcome, contract.window_us, ""))
        try:
            reply = yield settle
        except BaseException as error:
            reply = yield from _finish_after(call, settle, error, began)
        _check_settled(call, settle, reply)
        if record.request.job_id:
            yield from _end_job(call, record, _DONE)
        return value
    except Exception:
        raise
    except BaseException as interrupt:
        _let_go(call, interrupt)
        raise
    finally:
        running.calls.discard(call)
        running.gone()


def unrecorded(call: Unrecorded, chance: Callable[[], float]) -> Deciding:
    """A call of a tool that keeps no record: validated, tried again where that is declared, nothing else."""
    try:
        value = yield call
    except call.contract.transient as error:
        value = yield from _further_tries(call.contract, error, chance, lambda _: True, lambda: call)
    return value.unwrap() if isinstance(value, ToolResult) else value


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


# --- claiming -------------------------------------------------------------------------------------


def _settled_before(call: Call, reply: Reply) -> Settled | None:
    """What a look at the key says, if the claim would be answered with the same; raises what that would."""
    record = reply.record
    if record is None or record.state not in SETTLED or closed(record, reply.now_us):
        call.ledger.expects_settlements = False
        return None
    call.record = record
    _check_same_action(call, record)
    return Settled(record, reply.now_us)


def _claim(call: Call) -> Claim:
    contract, ledger, step = call.contract, call.ledger, call.step
    clock, approval = ledger.clock, contract.approval
    # All from one draw, which costs as much as three: nobody learns the token from an id.
    chance = clock.token(2 if approval is None else 3)
    token = owner.token_of(chance[:16])
    request = new(
        CallRequest,
        (
            call.at,
            "rec_" + chance[16:32].hex(),
            contract.name,
            contract.version,
            call.fingerprint,
            compact(_stored_arguments(call)),
            ledger.sightings.terms(contract),
            "" if step is None else step.conversation,
            "[]" if step is None else step.path_text,
            "" if step is None else step.principal,
            "" if approval is None else "job_" + chance[32:].hex(),
        ),
    )
    if approval is None:
        return new(Claim, (request, token, contract.lease_us, False))
    # An approval given in the last minute can still be used for as long as the window.
    open_us = approval.expires_us() + contract.window_us
    return Claim(request, token, open_us, waiting=True)


def _stored_arguments(call: Call) -> bytes:
    arguments = call.contract.arguments
    stored = None if call.exact is None else arguments.dump_exactly(call.exact)
    return arguments.dump(call.arguments) if stored is None else stored


def _take(call: Call, command: Claim | Retake) -> Generator[Wish, Any, Reply]:
    """The reply to a command that may make the key ours. Where it is lost, what may be ours is given back."""
    call.begin(command.token)
    try:
        reply: Reply = yield command
    except errors.StoreUnavailable:
        _give_back(call, command.token)
        raise
    call.record = reply.record
    return reply


def _give_back(call: Call, token: bytes) -> None:
    """The reply to a claim was lost. The tool was not entered, so nobody has to find out whether it was."""
    _defer(call, _release_of(call, token))


def _met(
    call: Call, claim: Claim, record: Record | None, now_us: int
) -> Generator[Wish, Any, Ours | Settled]:
    """Somebody was here before: what follows, until the key is ours or the call is settled."""
    deadline = 0.0
    while True:
        match _claim_result(call, claim, record, now_us):
            case Ours() | Settled() as result:
                return result
            case Waiting(waiting):
                end = yield from _after_approval(call, waiting, new=waiting.token == claim.token)
            case Doubtful(doubtful, at_us):
                end = yield from _in_doubt(call, doubtful, at_us)
            case Held(held) if owner.is_gone(held.token):
                end = yield from _after_death(call, held)
            case Held() as held_by:
                deadline = deadline or (yield ELAPSED) + call.contract.wait_us / 1e6
                yield from _wait_for_owner(call, held_by, deadline)
                record, now_us, _ = yield from _take(call, claim)
                continue
        if end is not None:
            return end
        # Someone else was quicker, or the key is free again: claim once more, as a new attempt.
        claim = claim._replace(token=owner.token(call.ledger.clock))
        record, now_us, _ = yield from _take(call, claim)


def _claim_result(call: Call, claim: Claim, record: Record | None, now_us: int) -> ClaimResult:
    """What the key's record means for this call; raises if it is another action's, or waits for this call."""
    if ours(record, claim):
        return Ours(record, now_us)
    assert record is not None, "after a claim the key has a record, whoever's it is"
    call.end()
    _check_same_action(call, record)
    if record.state in SETTLED:
        return Settled(record, now_us)
    if record.state is State.WAITING:
        return Waiting(record)
    if record.lease_until is None or doubtful(record, now_us):
        return Doubtful(record, now_us)
    if call.is_within(record.token):
        raise _waits_for_itself(call)
    return Held(record, max(0.001, (record.lease_until - now_us) / 1e6))


def _let_go(call: Call, interrupt: BaseException) -> None:
    """An interrupted call holds no key: it gives back what it did not use, and leaves the rest in doubt."""
    token = call.token
    if token is None:
        return
    call.ledger.keeper.end(call)
    call.roll_back()
    if call.entered:
        note = ENDED_BY_TOOL if call.broken else f"the call ended with {type(interrupt).__name__}"
        _submit(call, Park(call.at, token, note))
    else:
        _submit(call, _release_of(call, token))


def _submit(call: Call, last_word: Settle | Park | Release) -> None:
    """Hand the last word to the store without waiting for its reply.

    For a caller that ends with an exception of its own, which nothing here replaces.
    """
    try:
        call.ledger.store.submit(last_word)
    except errors.SemelError as error:
        if not call.ledger.running.ended:  # else whoever closed the ledger saw to it
            log.warning("semel: %s of %s was not written: %s", type(last_word).__name__, call.key, error)
    call.end()


def _defer(call: Call, last_word: Settle | Park | Release) -> None:
    """Leave the last word to the keeper, which tries for as long as the lease: the store is away."""
    call.ledger.keeper.defer(last_word, call.contract.lease_us / 1e6)
    call.end()


def _release_of(call: Call, token: bytes) -> Release:
    return Release(call.at, token, call.contract.window_us)


def _check_same_action(call: Call, record: Record) -> None:
    request, contract = record.request, call.contract
    if request.tool != contract.name or request.fingerprint != call.fingerprint:
        raise errors.KeyReused()
    if request.version != contract.version:
        _check_version(record, contract.version)


def _check_version(record: Record, version: str) -> None:
    if record.request.version.partition(".")[0] != version.partition(".")[0]:
        raise errors.VersionMismatch(
            f"The key was claimed by version {record.request.version}, the tool is {version} and did not run."
        )


def _waits_for_itself(call: Call) -> errors.StepError:
    return errors.StepError(
        f"The tool {call.contract.name!r} made the very call that it is performing, which waits for itself; "
        "it did not run a second time.",
        corrective_action="Where another action is meant, make it in a step of its own: "
        "`with ledger.step(step=…):`.",
    )


def _wait_for_owner(call: Call, held: Held, deadline: float) -> Generator[Wish, Any, None]:
    record, lease_left_s = held
    patience_s = deadline - (yield ELAPSED)
    if call.ledger.running.above(call):
        raise errors.InFlight(
            "This very call is under way further up on this thread or task, which would wait for itself; "
            "the tool did not run a second time.",
            retry_after_s=round(min(lease_left_s, 1.0), 3),
        )
    if call.contract.in_flight == "refuse" or patience_s <= 0:
        raise errors.InFlight(retry_after_s=round(min(lease_left_s, 1.0), 3))
    yield Await(call.at, record.token, min(lease_left_s, patience_s))


# --- performing -----------------------------------------------------------------------------------


def _secrets(call: Call) -> list[str]:
    """What is struck out of the text of an error: read before the tool can change its arguments."""
    arguments = call.contract.arguments
    return arguments.secrets_of(call.passed) if arguments.guards else []


def _after_exception(
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
                return (yield from _tried_again(call, record, now_us, error))
            except BaseException as last:
                error = last
        keeper.end(call)
        call.roll_back()
        if isinstance(error, NeverEntered):
            _submit(call, _release_of(call, record.token))  # unless whoever closed the ledger has done it
            text, fix = error.args
            raise errors.StoreUnavailable(text, corrective_action=fix) from None
        return (yield from _failed(call, record, error, secrets, later=entered_before))
    finally:
        del error  # which knows this frame


def _no_try(contract: Contract) -> tuple[type[BaseException], ...]:
    return (NeverEntered, *contract.refused)


def _tried_again(call: Call, record: Record, now_us: int, error: BaseException) -> Generator[Wish, Any, Any]:
    contract = call.contract

    def may_enter_at(seconds: float) -> bool:
        elapsed_s = seconds - call.began
        return not (call.lost or call.broken) and _within_bounds(contract, record, now_us, elapsed_s)

    def anew() -> Call:
        # The tool may have changed the arguments that it got.
        call.passed = contract.arguments.restore(record.request.arguments, call.arguments)
        return call

    value = yield from _further_tries(contract, error, call.ledger.clock.random, may_enter_at, anew)
    call.ledger.keeper.end(call)
    return value


def _first_arguments(call: Call, record: Record) -> Generator[Wish, Any, dict[str, Any]]:
    try:
        _check_version(record, call.contract.version)
        return call.contract.arguments.restore(record.request.arguments, call.arguments)
    except errors.CallError:
        # They fit the tool no more, so nothing was entered: what we took is given back at once.
        yield from _finish(call, _release_of(call, record.token))
        raise


def _further_tries(
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
        tries += 1
        try:
            entering = anew()
        except errors.InvalidArguments:
            break  # what was accepted before the pause no longer is, a time in the future say
        try:
            return (yield entering)
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


def _said_how(call: Call, record: Record, value: ToolResult[Any] | Entered, secrets: list[str]) -> Deciding:
    """The end of a tool that said itself how it ended, or wrote into a transaction."""
    if isinstance(value, Entered):
        return (yield from _committed(call, record, value, secrets))
    if value.error is not None:
        return (yield from _settle_error(call, record, value.error, None, secrets))
    yield from _settle(call, record, State.DONE, stored_value(call.contract, value.value, secrets))
    return value.value


def _failed(call: Call, record: Record, error: BaseException, secrets: list[str], *, later: bool) -> Deciding:
    """What an exception of the tool leads to; `later` if this attempt entered it before. Always raises."""
    contract = call.contract
    if call.broken:
        yield from _park(call, record, error, ENDED_BY_TOOL)
        if not isinstance(error, Exception):
            raise error
        raise _ended_by_tool(record) from error
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
            return (yield from _settle_error(call, record, ToolError.of(error), error, secrets))
        case Meaning.FAILED:
            failure = ToolError("EFFECT_FAILED", error_text(error), details={"type": type(error).__name__})
            return (yield from _settle_error(call, record, failure, error, secrets))
        case Meaning.REFUSED if later:
            yield from _park(call, record, error)
            raise in_doubt_error(contract, record, _REFUSED_LATER) from error
        case Meaning.REFUSED:
            yield from _release(call, record, error)
            raise error
        case Meaning.TRANSIENT:
            yield from _park(call, record, error)
            raise in_doubt_error(contract, record) from error
        case Meaning.UNKNOWN:
            try:
                yield from _park(call, record, error)
            except errors.CallError:
                if isinstance(error, Exception):
                    raise
                # A cancelled or ending caller gets its own exception, whatever became of its record.
            raise error


def _release_rolled_back(call: Call, record: Record, error: BaseException) -> Generator[Wish, Any, None]:
    release = _release_of(call, record.token)
    if isinstance(error, GeneratorExit):
        # The caller's coroutine is being closed and may not be asked to wait.
        _submit(call, release)
        return
    try:
        yield from _finish(call, release)
    except errors.CallError:
        pass  # its lease lapses, and the next caller enters again: there is no doubt to clear


def _committed(call: Call, record: Record, entered: Entered, secrets: list[str]) -> Deciding:
    """Effect and settlement are committed together, or neither is and the key is free again."""
    try:
        settle, value = _settlement(call, record, entered.value, secrets)
        reply = yield CommitEffect(entered.transaction, settle)
    except errors.StoreUnavailable as away:
        reply = yield from _whether_committed(call, record, away)
    except TransactionBroken as broken:
        yield from _park(call, record, broken, ENDED_BY_TOOL)
        raise _ended_by_tool(record) from broken
    except BaseException:
        # Owner-checked: whichever of commit and release comes first, the other finds nothing to do.
        entered.transaction.roll_back()
        _submit(call, _release_of(call, record.token))
        raise
    _check_settled(
        call,
        settle,
        reply,
        "This call was silent past its lease and someone else went on; its own effect was rolled back.",
    )
    if record.request.job_id:
        yield from _end_job(call, record, settle.state)
    if settle.state is not State.DONE:
        assert settle.outcome is not None
        raise recorded_error(settle.outcome)
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
    reply = yield from _finish(call, _release_of(call, record.token))
    if reply.applied or reply.record is None or reply.record.state not in SETTLED:
        raise errors.StoreUnavailable(
            "The store did not commit, so what the tool wrote was rolled back."
        ) from away
    return reply


def _settle_error(
    call: Call, record: Record, failure: ToolError, cause: BaseException | None, secrets: list[str]
) -> Generator[Wish, Any, NoReturn]:
    state = State.PARTIAL if failure.code == errors.PartialSuccess.code else State.FAILED
    secrets = secrets or call.contract.arguments.secrets_of(call.arguments)
    own = cause if isinstance(cause, Exception) and is_answer(cause, call.contract.raises) else None
    outcome = stored_error(failure, secrets, own)
    yield from _settle(call, record, state, outcome)
    raise recorded_error(outcome, own=own) from cause


def _settle(call: Call, record: Record, state: State, outcome: bytes | None) -> Generator[Wish, Any, None]:
    settle = Settle(call.at, record.token, state, outcome, call.contract.window_us)
    _check_settled(call, settle, (yield from _finish(call, settle)))
    if record.request.job_id:
        yield from _end_job(call, record, state)


def _check_settled(call: Call, settle: Settle, reply: Reply, lost: str | None = None) -> None:
    """The settlement is on record, and kept for replays; OwnershipLost if somebody else's is."""
    settled = call.record = reply.record
    call.end()
    if settled is None or not (reply.applied or settled_by(settled, settle)):
        raise errors.OwnershipLost(lost)
    _remember(call, settled, reply.now_us)


def _end_job(call: Call, record: Record, state: State) -> Generator[Wish, Any, None]:
    """The job of a call that a person approved ends with it. If that fails, a sweeper does it."""
    call.end()
    try:
        yield from calls.settled(call.ledger.tenant, record.request.job_id, state, call.ledger.clock)
    except errors.SemelError as away:
        log.debug("semel: the job of an approved call is ended later: %s", away.code)


def _release(call: Call, record: Record, error: BaseException) -> Generator[Wish, Any, None]:
    reply = yield from _finish(call, _release_of(call, record.token))
    left = _still_ours(reply, record.token)
    if left.state is State.IN_DOUBT:
        raise in_doubt_error(call.contract, record, _REFUSED_LATER) from error


def _park(
    call: Call, record: Record, error: BaseException, note: str | None = None
) -> Generator[Wish, Any, None]:
    park = Park(call.at, record.token, note or _why_in_doubt(error))
    if isinstance(error, GeneratorExit):
        # The caller's coroutine is being closed and may not be asked to wait.
        _submit(call, park)
        return
    _still_ours((yield from _finish(call, park)), record.token)


def _why_in_doubt(error: BaseException) -> str:
    return str(error) if isinstance(error, AnswerUnsure) else f"the tool ended with {type(error).__name__}"


def _still_ours(reply: Reply, token: bytes) -> Record:
    if reply.record is None or reply.record.token != token:
        raise errors.OwnershipLost()
    return reply.record


def _finish(call: Call, command: Settle | Park | Release) -> Generator[Wish, Any, Reply]:
    """The reply to the last word of an attempt."""
    began = call.ledger.clock.monotonic()
    try:
        reply: Reply = yield command
    except BaseException as error:
        reply = yield from _finish_after(call, command, error, began)
    call.record = reply.record
    call.end()
    return reply


def _finish_after(
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
                _defer(call, command)
                text = "The tool ran, but the store did not take its outcome."
                raise in_doubt_error(call.contract, call.record, text) from error
            try:
                yield Pause(pause_s * (0.5 + call.ledger.clock.random() / 2))
            except BaseException:
                _defer(call, command)
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
        _submit(call, command)
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


def in_doubt_error(
    contract: Contract, record: Record | None = None, text: str | None = None
) -> errors.CallError:
    """The answer to a caller whose call is in doubt: retriable where a retry or the probe may clear it."""
    if contract.on_unknown in ("retry", "probe"):
        return errors.UpstreamUnavailable(text, retry_after_s=1.0)
    if record is None:
        return errors.OutcomeUnknown(text)
    return errors.OutcomeUnknown(text, record_id=record.request.id)


# --- replaying ------------------------------------------------------------------------------------


def replay(call: Call, record: Record, now_us: int) -> Any:
    """What the settled record says, as the first caller got it."""
    call.ledger.expects_settlements = True
    _remember(call, record, now_us)
    call.record, call.replayed = record, True
    call.ledger.counters.replayed(record, now_us)
    call.ledger.keeper.notice()
    return replayed_value(call.contract, record)


def _remember(call: Call, record: Record, now_us: int) -> None:
    call.settled = True
    # A record that its owner settled has no note, and is never amendable.
    if not call.keep or (record.note and amendable(record)):
        return  # read each time: another process may amend it, and tells nobody
    until_us = record.expires_at
    if until_us is not None:
        # The window is counted by the store's clock; the cache asks ours.
        until_us += call.ledger.clock.now_us() - now_us
    call.ledger.cache.put(call.key, record, until_us)


# --- in doubt -------------------------------------------------------------------------------------


def _in_doubt(call: Call, record: Record, now_us: int) -> Generator[Wish, Any, Ours | Settled | None]:
    """What the contract says about a call that may have happened; None to claim again."""
    contract = call.contract
    if contract.transaction_parameters and record.note == ENDED_BY_TOOL:
        raise _ended_by_tool(record)
    if contract.transaction_parameters:
        # Effect and settlement commit together, so there was no effect; a late owner's commit is refused.
        return (yield from _retake(call, record, None))
    policy = contract.on_unknown
    if policy == "retry" and not _downstream_remembers(contract, record, now_us):
        policy = "probe" if contract.declared.probe else "park"
    match policy:
        case "retry":
            return (yield from _retake(call, record, contract.downstream_us))
        case "rerun":
            return (yield from _retake(call, record, None))
        case "probe":
            return (yield from _probe(call, record))
        case _:
            raise _parked(record)


def _after_death(call: Call, record: Record) -> Generator[Wish, Any, Ours | Settled | None]:
    """The owner's process is gone, so its lease says nothing any more; None to claim again.

    Parked by the token that we saw: where the owner settled before it died, or somebody else went on, the
    store refuses, and the record says what follows.
    """
    reply: Reply = yield Park(call.at, record.token, OWNER_GONE)
    left = reply.record
    if left is None or left.token != record.token or left.state is not State.IN_DOUBT:
        return None
    call.record = left
    return (yield from _in_doubt(call, left, reply.now_us))


def _downstream_remembers(contract: Contract, record: Record, now_us: int) -> bool:
    assert contract.downstream_us is not None
    return record.entered_at is None or record.entered_at + contract.downstream_us > now_us


def _retake(call: Call, seen: Record, within_us: int | None) -> Generator[Wish, Any, Ours | None]:
    """The key is ours in place of the attempt that we saw; None if it is someone else's."""
    token = owner.token(call.ledger.clock)
    retake = Retake(call.at, seen.token, token, call.contract.lease_us, within_us)
    reply = yield from _take(call, retake)
    record = reply.record
    if not ours(record, retake):
        call.end()
        return None
    return Ours(record, reply.now_us)


def _probe(call: Call, record: Record) -> Generator[Wish, Any, Settled | None]:
    probe = call.contract.declared.probe
    assert probe is not None
    first = call.contract.arguments.restore(record.request.arguments, call.arguments)
    try:
        answer = yield Ask(probe, call.key, first)
    except Exception as error:
        raise _parked(record, f"the probe ended with {type(error).__name__}") from error
    secrets = call.contract.arguments.secrets_of(first)
    resolve = resolution(call.contract, record, answer, call.ledger.clock.token(), secrets)
    if resolve is None:
        raise _parked(record, "the probe cannot tell")
    reply = yield resolve
    settled = reply.record
    if settled is None or settled.state not in SETTLED:
        return None
    return Settled(settled, reply.now_us)


def resolution(
    contract: Contract, record: Record, answer: Any, token: bytes, secrets: Sequence[str] = ()
) -> Resolve | None:
    """What a probe's answer makes of the attempt that it was asked about; None if it cannot tell."""
    if isinstance(answer, Happened):
        outcome, happened = stored_value(contract, answer.result, secrets), True
    elif answer is DidNotHappen:
        outcome, happened = None, False
    else:
        if answer is not CannotTell:
            log.error(
                "semel: the probe of %s answered with %s, which is no answer", contract.name, type(answer)
            )
        return None
    return Resolve(record.request.at, record.token, token, happened, outcome, contract.window_us, PROBE)


def _parked(record: Record, why: str = "") -> errors.OutcomeUnknown:
    reason = why or record.note or "the lease lapsed"
    return errors.OutcomeUnknown(record_id=record.request.id, reason=reason, attempts=record.attempts)


def _ended_by_tool(record: Record) -> errors.OutcomeUnknown:
    return errors.OutcomeUnknown(
        "The tool ended the transaction that it was given: what it wrote may be committed or not, and is not "
        "recorded as done. Nobody enters again until a person has looked.",
        record_id=record.request.id,
        reason=ENDED_BY_TOOL,
        attempts=record.attempts,
    )


# --- waiting for a person -------------------------------------------------------------------------


def _after_approval(call: Call, record: Record, *, new: bool) -> Generator[Wish, Any, Ours | Settled | None]:
    """What follows for a call that waits for a person (`new`: since just now); None to claim again."""
    match (yield from _answered(call, record)):
        case "approved":
            return (yield from _retake(call, record, None))
        case "rejected":
            return (yield from _settle_error(call, record, _rejected(record), None, []))
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


def put_question(call: Call) -> Generator[Wish, Any, Question]:
    """The question about a call, put unless it was before; nothing runs. A no settles the key at once."""
    call.ledger.running.refuse(call)
    try:
        call.ledger.running.calls.add(call)
        call.fingerprint = fingerprint(call.contract.name, call.canonical)
        while True:
            claim = _claim(call)
            record, now_us, _ = yield from _take(call, claim)
            assert record is not None, "after a claim the key has a record, whoever's it is"
            call.end()
            _check_same_action(call, record)
            if record.state is not State.WAITING:
                if record.state in SETTLED:
                    _remember(call, record, now_us)
                return (yield from _past_question(call, record))
            question = yield from _open_question(call, record, new=record.token == claim.token)
            if question is not None:
                return question
    except Exception:
        raise
    except BaseException as interrupt:
        _let_go(call, interrupt)
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
        yield from _settle(call, record, State.FAILED, stored_error(_rejected(record), []))
    return Question.of(request, new=new)


def _past_question(call: Call, record: Record) -> Generator[Wish, Any, Question]:
    """What a person was asked about a call that was made, or is under way."""
    request = yield from approvals.earlier(call.ledger.tenant, record)
    if request is not None:
        return Question.of(request)
    arguments = approvals.shown_arguments(record)
    return Question("", record.request.tool, arguments, "not_asked", None, "")


def _rejected(record: Record) -> ToolError:
    return ToolError.of(errors.ApprovalRejected(job_id=record.request.job_id))
