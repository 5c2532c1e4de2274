"""Commands as statements, one of them or many of a kind, and their rows as replies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from semel.stores.batching import ClaimedRecords
from semel.stores.postgres import statements as sql
from semel.stores.postgres.packing import array, encoded, number, text, truth
from semel.stores.postgres.rows import record_at
from semel.stores.postgres.statements import CommandStep
from semel.stores.postgres.trouble import Failure
from semel.stores.postgres.wire import PostgresConnection, Row

# What a step asks for of one command (`{asked ...}` in its file), without the address.
Values = Sequence[bytes | None]


def address_of(command: Any) -> Address:
    at: Address = command.request.at if type(command) is Claim else command.at
    return at


def _look(_: Look, _held: Record | None) -> Values:
    return ()


def _claim(command: Claim, _held: Record | None) -> Values:
    request, token, lease_us, waiting = command
    at, id_, tool, version, fingerprint, arguments, terms, conversation, step, principal, job_id = request
    *named, terms_, conversation_, step_, principal_, job_id_ = encoded(
        *at, id_, tool, version, terms, conversation, step, principal, job_id
    )
    return (
        *named, fingerprint, arguments, terms_, conversation_, step_, principal_, job_id_, token,
        number(lease_us), truth(waiting),
    )  # fmt: skip


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


class CommandRow:
    """A command on its way: what this process knows of its record, and what became of it."""

    __slots__ = ("_claimed", "_command", "_held", "digest", "reply")

    def __init__(self, command: Command, digest: bytes, claimed: ClaimedRecords) -> None:
        self._command = command
        self._claimed = claimed
        self._held: Record | None = None
        self.digest = digest
        self.reply: Reply | Exception | None = None

    def values(self) -> Values:
        """What the step is asked with, the address first."""
        command = self._command
        if type(command) is Settle:
            held = self._claimed.get(command.token)
            self._held = held if held is not None and held.request.at == command.at else None
        pack = _STEPS[type(command)][1]
        return (self.digest, *pack(command, self._held))

    def answer(self, row: Row) -> int:
        """It has its reply, unless the record changed under the statement: then it asks again.

        A record that refuses the command was read by the statement's own snapshot, so the reply is true of
        that moment. Where it would not refuse it, somebody was quicker. Returns the newest event's number.
        """
        _, now_us, applied, newest_event, _, id_, fence, whole = row
        try:
            if applied:
                self.reply = Reply(self._changed(now_us, id_, fence, whole), now_us, True)
            else:
                self.reply = self._refused(now_us, whole)
        except Exception as damage:
            self.reply = damage
        return newest_event or 0

    def _refused(self, now_us: int, whole: bytes | None) -> Reply | None:
        command = self._command
        record = record_at(address_of(command), whole)
        refused = type(command) is Look or apply(record, command, now_us) is None
        return Reply(record, now_us, False) if refused else None

    def _changed(self, now_us: int, id_: str, fence: int, whole: bytes | None) -> Record:
        """The record after the command. Most of it need not be sent where a claim began it, or where this
        process has it since its claim.
        """
        command = self._command
        if whole is not None:
            record = record_at(address_of(command), whole)
        elif type(command) is Claim:
            record = _begun(command, now_us, id_, fence)
        else:
            record = apply(self._held, command, now_us)
        assert record is not None
        if type(command) is Claim or type(command) is Retake:
            self._claimed.keep(record)
        elif type(command) is Settle:
            self._claimed.pop(command.token, None)
        return record


def _begun(command: Claim, now_us: int, id_: str, fence: int) -> Record:
    record = apply(None, command, now_us)
    assert record is not None
    if record.request.id != id_:
        record = record._replace(request=record.request._replace(id=id_))
    return record if record.fence == fence else record._replace(fence=fence)


class LoneCommand:
    """One command, asked as plain values."""

    newest_commit = 0  # it writes no document
    repeatable = True  # what was applied is known by its token

    def __init__(self, command: Command, digest: bytes, claimed: ClaimedRecords) -> None:
        self._step = _STEPS[type(command)][0].one
        self._row = CommandRow(command, digest, claimed)
        self.newest_event = 0

    @property
    def replies(self) -> Sequence[Reply | Exception | None]:
        return (self._row.reply,)

    @property
    def open(self) -> bool:
        """Whether it has no reply yet."""
        return self._row.reply is None

    def run(self, link: PostgresConnection, common: Values) -> None:
        """One statement. It may stay open: the record changed under the statement."""
        row = link.ask_numbered(self._step, (*common, *self._row.values()))
        self.newest_event = self._row.answer(row)


class CommandRows:
    """Commands of one kind at different addresses, asked together as arrays, and what became of them."""

    newest_commit = 0  # none of them writes a document
    repeatable = True  # what was applied is known by its token

    def __init__(
        self, commands: Sequence[Command], digests: Sequence[bytes], claimed: ClaimedRecords
    ) -> None:
        self._step = _STEPS[type(commands[0])][0]
        self._rows = [
            CommandRow(command, digest, claimed) for command, digest in zip(commands, digests, strict=True)
        ]
        self.newest_event = 0

    @property
    def replies(self) -> Sequence[Reply | Exception | None]:
        return [row.reply for row in self._rows]

    @property
    def open(self) -> bool:
        """Whether some have no reply yet."""
        return any(row.reply is None for row in self._rows)

    def run(self, link: PostgresConnection, common: Values) -> None:
        """One statement for all that are open. Some may stay open: the record changed under the statement."""
        asked = {row.digest: row for row in self._rows if row.reply is None}
        # Always in this order, so that two statements that want the same rows never deadlock.
        columns = zip(*(asked[digest].values() for digest in sorted(asked)), strict=True)
        arrays = [array(type_, column) for type_, column in zip(self._step.types, columns, strict=True)]
        for row in link.ask(self._step.many, (*common, *arrays)):
            if row[0] not in asked:
                link.close()
                raise Failure("the answer is to another question", lost=True)
            self.newest_event = max(self.newest_event, asked[row[0]].answer(row))
