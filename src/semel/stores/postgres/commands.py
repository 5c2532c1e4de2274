"""Commands as statements, one of them or many of a kind, and their rows as replies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any

from semel.kernel.record import (
    Address,
    Amend,
    Claim,
    Command,
    Look,
    Park,
    Record,
    Release,
    Renew,
    Reply,
    Resolve,
    Retake,
    Settle,
    apply,
)
from semel.stores.batching import QueuedCommand
from semel.stores.claimed_records import ClaimedRecords
from semel.stores.documents import Commit
from semel.stores.postgres import statements as sql
from semel.stores.postgres.documents import size_of, turn_of
from semel.stores.postgres.packing import array, digest, encoded, number, text, truth
from semel.stores.postgres.rows import record_at
from semel.stores.postgres.statements import CommandStep
from semel.stores.postgres.trouble import translated
from semel.stores.postgres.wire import PostgresConnection, Row

# Columns of an answer, which CommandToSend.take reads whole.
_ADDRESS, _NEWEST_EVENT = 1, 4

# What a step asks for, packed (`{asked ...}` in its file).
Values = Sequence[bytes | None]

_digest_of = attrgetter("digest")


def address_of(command: Any) -> Address:
    at: Address = command.request.at if type(command) is Claim else command.at
    return at


def _look(_: Look, _held: Record | None) -> Values:
    return ()


def _claim(command: Claim, _held: Record | None) -> Values:
    request, token, lease_us, waiting = command
    at, *named, fingerprint, arguments, terms, conversation, step, principal, job_id = request
    texts = encoded(*at, *named, terms, conversation, step, principal, job_id)
    return (*islice(texts, 6), fingerprint, arguments, *texts, token, number(lease_us), truth(waiting))


def _retake(command: Retake, _held: Record | None) -> Values:
    return command.seen, command.token, number(command.lease_us), number(command.within_us)


def _renew(command: Renew, _held: Record | None) -> Values:
    return command.token, number(command.lease_us)


def _settle(command: Settle, held: Record | None) -> Values:
    state, by = encoded(command.state, command.by)
    fence = None if held is None else held.fence
    return command.token, state, command.outcome, number(command.window_us), by, number(fence)


def _park(command: Park, _held: Record | None) -> Values:
    return command.token, text(command.note)


def _release(command: Release, _held: Record | None) -> Values:
    return command.token, number(command.window_us)


def _resolve(command: Resolve, _held: Record | None) -> Values:
    happened, window = truth(command.happened), number(command.window_us)
    return command.seen, command.token, happened, command.outcome, window, text(command.by)


def _amend(command: Amend, _held: Record | None) -> Values:
    return command.seen, command.token, command.outcome, text(command.by)


_STEPS: dict[type, tuple[CommandStep, Callable[[Any, Record | None], Values]]] = {
    Look: (sql.LOOK, _look),
    Claim: (sql.CLAIM, _claim),
    Retake: (sql.RETAKE, _retake),
    Renew: (sql.RENEW, _renew),
    Settle: (sql.SETTLE, _settle),
    Park: (sql.PARK, _park),
    Release: (sql.RELEASE, _release),
    Resolve: (sql.RESOLVE, _resolve),
    Amend: (sql.AMEND, _amend),
}


class CommandToSend(QueuedCommand):
    """A command, or a commit of documents, and whom it must not run beside: what has the same digest."""

    __slots__ = ("_held", "at", "digest", "size")

    def __init__(self, command: Command | Commit) -> None:
        super().__init__(command)
        if type(command) is Commit:
            self.at: Address | None = None
            self.digest = turn_of(command)
            self.size = size_of(command)
        else:
            self.at = at = address_of(command)
            self.digest = digest(at)
            self.size = 0

    def values(self, claimed: ClaimedRecords) -> Values:
        """What the step is asked with, the address first."""
        command = self.command
        self._held: Record | None = None  # the record, as this process knows it since its claim
        if type(command) is Settle:
            held = claimed.get(command.token)
            if held is not None and held.request.at == command.at:
                self._held = held
        return (self.digest, *_STEPS[type(command)][1](command, self._held))

    def take(self, row: Row, claimed: ClaimedRecords) -> None:
        """It is done by this row of an answer, unless the record changed under the statement.

        A record that refuses the command was read by the statement's own snapshot, so the reply is true of
        that moment. Where it would not refuse it, somebody was quicker: it asks again.
        """
        _, _, now_us, applied, _, _, id_, fence, whole = row
        try:
            if applied:
                self.answer = Reply(self._changed(now_us, id_, fence, whole, claimed), now_us, True)
            else:
                record = record_at(self.at, whole)
                if type(self.command) is not Look and apply(record, self.command, now_us) is not None:
                    return
                self.answer = Reply(record, now_us, False)
        except Exception as damage:
            self.error = translated(damage, self.command)
        self.done = True

    def _changed(
        self, now_us: int, id_: str, fence: int, whole: bytes | None, claimed: ClaimedRecords
    ) -> Record | None:
        """The record after the command. The answer leaves out what a claim has just begun, and what this
        process knows.
        """
        command = self.command
        kind = type(command)
        if whole is not None:
            record = record_at(self.at, whole)
        elif kind is Claim:
            record = _begun(command, now_us, id_, fence)
        else:
            record = apply(self._held, command, now_us)
        if kind is Settle:
            claimed.pop(command.token, None)
        elif record is not None and (kind is Claim or kind is Retake):
            claimed.keep(record)
        return record


def _begun(command: Claim, now_us: int, id_: str, fence: int) -> Record | None:
    record = apply(None, command, now_us)
    assert record is not None
    if record.request.id != id_:
        record = record._replace(request=record.request._replace(id=id_))
    return record if record.fence == fence else record._replace(fence=fence)


class Commands:
    """Commands of one kind at different addresses, and the statements that carry them out."""

    repeatable = True  # what was applied is known by its token

    def __init__(self, batch: Sequence[CommandToSend], claimed: ClaimedRecords) -> None:
        self._batch = batch
        self._claimed = claimed
        self.open = True  # whether some are not done yet
        self.newest_event = 0

    def run(self, link: PostgresConnection, common: Values) -> None:
        """One statement for all that are open. Some may stay open: the record changed under the statement."""
        commands = [queued for queued in self._batch if not queued.done]
        if len(commands) == 1:
            self._run_alone(commands[0], link, common)
            self.open = not commands[0].done
        else:
            self._run_together(commands, link, common)
            self.open = not all(queued.done for queued in commands)

    def _run_alone(self, queued: CommandToSend, link: PostgresConnection, common: Values) -> None:
        step = _STEPS[type(queued.command)][0]
        (row,) = link.run_numbered(step.one, (*common, *queued.values(self._claimed)))
        self._take(queued, row)

    def _run_together(self, commands: list[CommandToSend], link: PostgresConnection, common: Values) -> None:
        step = _STEPS[type(commands[0].command)][0]
        # Always in this order, so that two statements that want the same rows never deadlock.
        commands.sort(key=_digest_of)
        columns = zip(*[queued.values(self._claimed) for queued in commands], strict=True)
        by_digest = {queued.digest: queued for queued in commands}
        for row in link.run_numbered(step.many, (*common, *map(array, step.types, columns))):
            self._take(by_digest[row[_ADDRESS]], row)

    def _take(self, queued: CommandToSend, row: Row) -> None:
        newest_event = row[_NEWEST_EVENT]
        if newest_event is not None and newest_event > self.newest_event:
            self.newest_event = newest_event
        queued.take(row, self._claimed)
