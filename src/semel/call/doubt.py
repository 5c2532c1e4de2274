"""A call that may have happened: what the contract says, and what a probe answered."""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from typing import Any

from semel import errors
from semel.call.claiming import Ours, Settled, take
from semel.call.guarded_call import Call
from semel.call.outcome import stored_value
from semel.call.settling import ended_by_tool
from semel.call.wishes import Ask, Wish
from semel.contract.contract import Contract
from semel.contract.result import CannotTell, DidNotHappen, Happened
from semel.contract.transaction import ENDED_BY_TOOL
from semel.kernel import owner
from semel.kernel.record import OWNER_GONE, PROBE, SETTLED, Park, Record, Reply, Resolve, Retake, State, ours

log = logging.getLogger("semel")


def in_doubt(call: Call, record: Record, now_us: int) -> Generator[Wish, Any, Ours | Settled | None]:
    """What the contract says about a call that may have happened; None to claim again."""
    contract = call.contract
    if contract.transaction_parameters and record.note == ENDED_BY_TOOL:
        raise ended_by_tool(record)
    if contract.transaction_parameters:
        # Effect and settlement commit together, so there was no effect; a late owner's commit is refused.
        return (yield from retake(call, record, None))
    policy = contract.on_unknown
    if policy == "retry" and not _downstream_remembers(contract, record, now_us):
        policy = "probe" if contract.declared.probe else "park"
    match policy:
        case "retry":
            return (yield from retake(call, record, contract.downstream_us))
        case "rerun":
            return (yield from retake(call, record, None))
        case "probe":
            return (yield from _probe(call, record))
        case _:
            raise _parked(record)


def after_death(call: Call, record: Record) -> Generator[Wish, Any, Ours | Settled | None]:
    """The owner's process is gone, so its lease says nothing any more; None to claim again.

    Parked by the token that we saw: where the owner settled before it died, or somebody else went on, the
    store refuses, and the record says what follows.
    """
    reply: Reply = yield Park(call.at, record.token, OWNER_GONE)
    left = reply.record
    if left is None or left.token != record.token or left.state is not State.IN_DOUBT:
        return None
    call.record = left
    return (yield from in_doubt(call, left, reply.now_us))


def _downstream_remembers(contract: Contract, record: Record, now_us: int) -> bool:
    assert contract.downstream_us is not None
    return record.entered_at is None or record.entered_at + contract.downstream_us > now_us


def retake(call: Call, seen: Record, within_us: int | None) -> Generator[Wish, Any, Ours | None]:
    """The key is ours in place of the attempt that we saw; None if it is someone else's."""
    token = owner.token(call.ledger.clock)
    command = Retake(call.at, seen.token, token, call.contract.lease_us, within_us)
    reply = yield from take(call, command)
    record = reply.record
    if not ours(record, command):
        call.end()
        return None
    return Ours(record, reply.now_us)


def _parked(record: Record, why: str = "") -> errors.OutcomeUnknown:
    reason = why or record.note or "the lease lapsed"
    return errors.OutcomeUnknown(record_id=record.request.id, reason=reason, attempts=record.attempts)


# --- probes ---------------------------------------------------------------------------------------


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
