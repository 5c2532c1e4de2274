"""A tool's transaction: what it writes and the settlement of its call, in one commit."""

from __future__ import annotations

from collections.abc import Callable

from psycopg import pq

from semel.contract.transaction import End, Transaction, TransactionBroken
from semel.kernel.record import Reply, Settle
from semel.kernel.waiting import entering, within
from semel.stores.base import Waiters
from semel.stores.claimed_records import ClaimedRecords
from semel.stores.postgres import statements as sql
from semel.stores.postgres import trouble
from semel.stores.postgres.commands import Commands, CommandToSend
from semel.stores.postgres.lent import LentAsyncConnection, LentSyncConnection
from semel.stores.postgres.packing import text
from semel.stores.postgres.pool import Pool, PoolSlot
from semel.stores.postgres.trouble import Failure
from semel.stores.postgres.wire import PostgresConnection

# What a tool's connection leads to once its call is over: whoever keeps it finds it closed.
_NOWHERE = pq.PGconn.connect_start(b"host='' port=none")
_NOWHERE.finish()


class PostgresTransaction(Transaction):
    def __init__(
        self,
        pool: Pool,
        schema: str,
        common: Callable[[], tuple[bytes | None, ...]],
        waiters: Waiters,
        mark: str,
        *,
        asynchronous: bool,
    ) -> None:
        self._pool, self._schema, self._common, self._waiters = pool, schema, common, waiters
        self._asynchronous = asynchronous
        self._end = End(asynchronous=asynchronous)
        self._slot = PoolSlot()
        self._mark = mark
        link = _begun(pool, self._slot, mark)
        kind = LentAsyncConnection if asynchronous else LentSyncConnection
        try:
            self.connection = kind(link.pgconn)
            # Each call has a wrapper of its own, and they would give the same names to different statements.
            self.connection.prepare_threshold = None
        except BaseException:
            link.close()
            pool.leave(self._slot)
            raise

    @entering
    def settle(self, command: Settle) -> Reply:
        self._end.commit()
        try:
            reply = self._settle(command)
        except Failure as failure:
            raise trouble.translated(failure, command) from failure
        finally:
            # Whatever was not committed by now is not going to be.
            self._leave()
        if reply.applied:
            self._waiters.wake(command.at)
        return reply

    def _settle(self, command: Settle) -> Reply:
        link = self._slot.link
        assert link is not None
        if link.idle:
            raise TransactionBroken
        ((mark, *_),) = link.run(sql.JOIN, (text(self._schema), link.statement_ms()))
        if mark != self._mark:
            raise TransactionBroken
        queued = CommandToSend(command)
        request = Commands([queued], ClaimedRecords())
        while request.open:
            request.run(link, self._common())
        if queued.error is not None:
            raise queued.error
        reply: Reply = queued.answer
        link.script("COMMIT" if reply.applied else "ROLLBACK")
        return reply

    @within
    def roll_back(self) -> None:
        """By closing the connection where an event loop would have to wait: the server then rolls back."""
        if not self._end.roll_back():
            return
        link = self._slot.link
        if link is not None:
            try:
                self.broken = not self._end.committing and self._ended_by_tool(link)
                if self._asynchronous:
                    link.close()
                elif not link.broken:
                    link.script("ROLLBACK")
            except Failure:
                link.close()
        self._leave()

    def _ended_by_tool(self, link: PostgresConnection) -> bool:
        """Where an event loop would have to wait for the answer, only if the tool began no other one."""
        if self._asynchronous or not link.in_transaction:
            return link.idle
        return link.run(sql.MARK) != [(self._mark,)]

    def _leave(self) -> None:
        link = self._slot.link
        if link is not None and self.connection.left_behind:
            link.close()  # whoever has it next would find what this tool has set
        self.connection.pgconn = _NOWHERE
        self._pool.leave(self._slot)


def _begin(link: PostgresConnection, mark: str) -> None:
    """A transaction is open that is known by its mark, with the connection as it was made.

    Nothing here reads: a tool may still choose how isolated its transaction is.
    """
    path = f"; SET LOCAL search_path = {link.path_to_lend}" if link.path_to_lend else ""
    link.script(f"RESET SESSION AUTHORIZATION; RESET ALL; BEGIN; SET LOCAL semel.call = '{mark}'{path}")


def _begun(pool: Pool, slot: PoolSlot, mark: str) -> PostgresConnection:
    """A connection with a transaction open on it; a new one if the one that was there is lost."""
    while True:
        try:
            link = pool.enter(slot)
            _begin(link, mark)
            link.used = True
            return link
        except BaseException as error:
            fresh = slot.link is None or not slot.link.used
            if slot.link is not None:
                slot.link.close()
            pool.leave(slot)
            if fresh or not isinstance(error, Failure):
                raise
