"""A tool's transaction: what it writes and the settlement of its call, in one commit."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
from psycopg import pq

from semel.gates import entering, within
from semel.record import Reply, Settle
from semel.stores.base import Waiters
from semel.stores.postgres import statements as sql
from semel.stores.postgres import trouble
from semel.stores.postgres.commands import Asked, Held
from semel.stores.postgres.packing import digest, text
from semel.stores.postgres.pool import Place, Pool
from semel.stores.postgres.trouble import Failure
from semel.stores.postgres.wire import Link
from semel.transaction import End, Transaction

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
        *,
        asynchronous: bool,
    ) -> None:
        self._pool, self._schema, self._common, self._waiters = pool, schema, common, waiters
        self._asynchronous = asynchronous
        self._end = End(asynchronous=asynchronous)
        self._place = Place()
        link = _begun(pool, self._place)
        kind = psycopg.AsyncConnection if asynchronous else psycopg.Connection
        try:
            self.connection = kind(link.pgconn)
            # Each call has a wrapper of its own, and they would give the same names to different statements.
            self.connection.prepare_threshold = None
        except BaseException:
            link.close()
            pool.leave(self._place)
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
        link = self._place.link
        assert link is not None
        if link.idle:
            link.script("BEGIN")  # the tool ended the transaction itself, and what it did is done
        link.run(sql.JOIN, (text(self._schema), link.statement_ms()))
        asked = Asked([command], [digest(command.at)], Held())
        while asked.open:
            asked.run(link, self._common())
        reply = asked.replies[0]
        if not isinstance(reply, Reply):
            assert reply is not None
            raise reply
        link.script("COMMIT" if reply.applied else "ROLLBACK")
        return reply

    @within
    def roll_back(self) -> None:
        """Without a word where an event loop would have to wait for it: the server rolls back what is cut."""
        if not self._end.roll_back():
            return
        link = self._place.link
        if link is not None:
            try:
                if self._asynchronous:
                    link.close()
                elif not link.broken:
                    link.script("ROLLBACK")
            except Failure:
                link.close()
        self._leave()

    def _leave(self) -> None:
        self.connection.pgconn = _NOWHERE
        self._pool.leave(self._place)


def _begun(pool: Pool, place: Place) -> Link:
    """A connection with a transaction open on it; a new one if the one that was there is lost."""
    while True:
        try:
            link = pool.enter(place)
            link.script("BEGIN")
            link.used = True
            return link
        except BaseException as error:
            fresh = place.link is None or not place.link.used
            if place.link is not None:
                place.link.close()
            pool.leave(place)
            if fresh or not isinstance(error, Failure):
                raise
