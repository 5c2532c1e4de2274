"""Commands of one kind as one statement, however many there are, and its rows as their replies."""

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
from semel.stores.postgres.packing import binaries, numbers, texts, truths
from semel.stores.postgres.rows import record_at
from semel.stores.postgres.statements import Statement
from semel.stores.postgres.trouble import Failure
from semel.stores.postgres.wire import PostgresConnection, Rows

Packed = list[bytes]

# Columns of an answer (answer.sql): where the record begins, and some of its own.
_POSITION, _NOW, _APPLIED, _NEWEST_EVENT, _RECORD = 0, 1, 2, 3, 5
_ID, _STATE, _FENCE = _RECORD + 3, _RECORD + 13, _RECORD + 15
_ATTEMPTS, _CREATED_AT = _RECORD + 16, _RECORD + 18


def address_of(command: Any) -> Address:
    at: Address = command.request.at if type(command) is Claim else command.at
    return at


def _look(_: Sequence[Look]) -> Packed:
    return []


def _claim(commands: Sequence[Claim]) -> Packed:
    requests = [command.request for command in commands]
    return [
        texts([each.at.tenant for each in requests]),
        texts([each.at.scope for each in requests]),
        texts([each.at.key for each in requests]),
        texts([each.id for each in requests]),
        texts([each.tool for each in requests]),
        texts([each.version for each in requests]),
        binaries([each.fingerprint for each in requests]),
        binaries([each.arguments for each in requests]),
        texts([each.terms for each in requests]),
        texts([each.conversation for each in requests]),
        texts([each.step for each in requests]),
        texts([each.principal for each in requests]),
        texts([each.job_id for each in requests]),
        binaries([command.token for command in commands]),
        numbers([command.lease_us for command in commands]),
        truths([command.waiting for command in commands]),
    ]


def _retake(commands: Sequence[Retake]) -> Packed:
    return [
        binaries([command.seen for command in commands]),
        binaries([command.token for command in commands]),
        numbers([command.lease_us for command in commands]),
        numbers([command.within_us for command in commands]),
    ]


def _renew(commands: Sequence[Renew]) -> Packed:
    return [
        binaries([command.token for command in commands]),
        numbers([command.lease_us for command in commands]),
    ]


def _settle(commands: Sequence[Settle]) -> Packed:
    return [
        binaries([command.token for command in commands]),
        texts([command.state.value for command in commands]),
        binaries([command.outcome for command in commands]),
        numbers([command.window_us for command in commands]),
        texts([command.by for command in commands]),
    ]


def _park(commands: Sequence[Park]) -> Packed:
    return [
        binaries([command.token for command in commands]),
        texts([command.note for command in commands]),
    ]


def _release(commands: Sequence[Release]) -> Packed:
    return [
        binaries([command.token for command in commands]),
        numbers([command.window_us for command in commands]),
    ]


def _resolve(commands: Sequence[Resolve]) -> Packed:
    return [
        binaries([command.seen for command in commands]),
        binaries([command.token for command in commands]),
        truths([command.happened for command in commands]),
        binaries([command.outcome for command in commands]),
        numbers([command.window_us for command in commands]),
        texts([command.by for command in commands]),
    ]


def _amend(commands: Sequence[Amend]) -> Packed:
    return [
        binaries([command.seen for command in commands]),
        binaries([command.token for command in commands]),
        binaries([command.outcome for command in commands]),
        texts([command.by for command in commands]),
    ]


_STEPS: dict[type, tuple[Statement, Callable[[Any], Packed]]] = {
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


class CommandRows:
    """Commands of one kind at different addresses, and what became of them."""

    newest_commit = 0  # none of them writes a document
    repeatable = True  # what was applied is known by its token

    def __init__(
        self, commands: Sequence[Command], digests: Sequence[bytes], claimed: ClaimedRecords
    ) -> None:
        self._commands = commands
        self._digests = digests
        self._claimed = claimed
        self.replies: list[Reply | Exception | None] = [None] * len(commands)
        self.newest_event = 0

    @property
    def open(self) -> list[int]:
        """Positions of those that have no reply yet."""
        return [number for number, reply in enumerate(self.replies) if reply is None]

    def run(self, link: PostgresConnection, common: Sequence[bytes | None]) -> None:
        """One statement for all that are open. Some may stay open: the record changed under the statement.

        A record that refuses the command was read by the statement's own snapshot, so the reply is true of
        that moment. Where it would not refuse it, somebody was quicker: that command asks again.
        """
        # Always in this order, so that two statements that want the same rows never deadlock.
        positions = sorted(self.open, key=self._digests.__getitem__)
        commands = [self._commands[position] for position in positions]
        step, pack = _STEPS[type(commands[0])]
        digests = binaries([self._digests[position] for position in positions])
        rows = link.ask(step, (*common, digests, *pack(commands)))
        for number in range(len(rows)):
            position = positions[rows.cell(number, _POSITION) - 1]
            try:
                self.replies[position] = self._reply(self._commands[position], rows, number)
            except Failure:
                link.close()
                raise
            except Exception as damage:
                self.replies[position] = damage

    def _reply(self, command: Command, rows: Rows, number: int) -> Reply | None:
        now_us = rows.cell(number, _NOW)
        if not rows.cell(number, _APPLIED):
            record = record_at(address_of(command), rows.row(number, _RECORD))
            refused = isinstance(command, Look) or apply(record, command, now_us) is None
            return Reply(record, now_us, False) if refused else None
        self.newest_event = max(self.newest_event, rows.cell(number, _NEWEST_EVENT) or 0)
        if isinstance(command, Settle) and rows.cell(number, _STATE) != command.state.value:
            raise Failure("the answer is to another question", lost=True)
        predicted = self._predicted(command, rows, number, now_us)
        record = predicted or record_at(address_of(command), rows.row(number, _RECORD))
        if isinstance(command, Claim | Retake) and record is not None:
            self._claimed.keep(record)
        return Reply(record, now_us, True)

    def _predicted(self, command: Command, rows: Rows, number: int, now_us: int) -> Record | None:
        """The record after a claim that begins it, or after a settlement: most of it need not be read."""
        if isinstance(command, Claim):
            claimed = apply(None, command, now_us)
            assert claimed is not None
            new = (command.request.id, claimed.attempts, now_us)
            if new == tuple(rows.cell(number, column) for column in (_ID, _ATTEMPTS, _CREATED_AT)):
                return claimed._replace(fence=rows.cell(number, _FENCE))
        if isinstance(command, Settle):
            held = self._claimed.pop(command.token, None)
            if held is not None and held.request.at == command.at and held.fence == rows.cell(number, _FENCE):
                return apply(held, command, now_us)
        return None
