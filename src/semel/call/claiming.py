"""Making a key ours: the claim, what it found, and the wait for whoever holds the key."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

from semel import errors
from semel.call.guarded_call import Call
from semel.call.outcome import compact
from semel.call.settling import defer, release_of
from semel.call.wishes import ELAPSED, Await, Wish
from semel.kernel import owner
from semel.kernel.record import (
    SETTLED,
    CallRequest,
    Claim,
    Record,
    Reply,
    Retake,
    State,
    closed,
    doubtful,
    new,
    ours,
)


def claim_of(call: Call) -> Claim:
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


def take(call: Call, command: Claim | Retake) -> Generator[Wish, Any, Reply]:
    """The reply to a command that may make the key ours. Where it is lost, what may be ours is given back."""
    call.begin(command.token)
    try:
        reply: Reply = yield command
    except errors.StoreUnavailable:
        give_back(call, command.token)
        raise
    call.record = reply.record
    return reply


def give_back(call: Call, token: bytes) -> None:
    """The reply to a claim was lost. The tool was not entered, so nobody has to find out whether it was."""
    defer(call, release_of(call, token))


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


def claim_result(call: Call, claim: Claim, record: Record | None, now_us: int) -> ClaimResult:
    """What the key's record means for this call; raises if it is another action's, or waits for this call."""
    if ours(record, claim):
        return Ours(record, now_us)
    assert record is not None, "after a claim the key has a record, whoever's it is"
    call.end()
    check_same_action(call, record)
    if record.state in SETTLED:
        return Settled(record, now_us)
    if record.state is State.WAITING:
        return Waiting(record)
    if record.lease_until is None or doubtful(record, now_us):
        return Doubtful(record, now_us)
    if call.is_within(record.token):
        raise _waits_for_itself(call)
    return Held(record, max(0.001, (record.lease_until - now_us) / 1e6))


def settled_before(call: Call, reply: Reply) -> Settled | None:
    """What a look at the key says, if the claim would be answered with the same; raises what that would."""
    record = reply.record
    if record is None or record.state not in SETTLED or closed(record, reply.now_us):
        call.ledger.expects_settlements = False
        return None
    call.record = record
    check_same_action(call, record)
    return Settled(record, reply.now_us)


def check_same_action(call: Call, record: Record) -> None:
    request, contract = record.request, call.contract
    if request.tool != contract.name or request.fingerprint != call.fingerprint:
        raise errors.KeyReused()
    if request.version != contract.version:
        check_version(record, contract.version)


def check_version(record: Record, version: str) -> None:
    if record.request.version.partition(".")[0] != version.partition(".")[0]:
        raise errors.VersionMismatch(
            f"The key was claimed by version {record.request.version}, the tool is {version} and did not run."
        )


# --- while somebody else holds the key ------------------------------------------------------------


def wait_for_owner(call: Call, held: Held, deadline: float) -> Generator[Wish, Any, None]:
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


def _waits_for_itself(call: Call) -> errors.StepError:
    return errors.StepError(
        f"The tool {call.contract.name!r} made the very call that it is performing, which waits for itself; "
        "it did not run a second time.",
        corrective_action="Where another action is meant, make it in a step of its own: "
        "`with ledger.step(step=…):`.",
    )
