"""Records and documents in a PostgreSQL database, shared by threads, event loops, processes and machines."""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import os
import weakref
from collections.abc import Sequence
from typing import TypeVar, cast

from semel.contract.transaction import Transaction
from semel.errors import OpenError, StoreCorrupt
from semel.kernel.clock import SYSTEM, Clock
from semel.kernel.record import Command, Reply
from semel.kernel.waiting import entering
from semel.stores.base import AppendEvents, Finding, Query, Store, Waiters
from semel.stores.documents import Commit
from semel.stores.postgres import findings, schema, statements, trouble
from semel.stores.postgres.commands import CommandToSend
from semel.stores.postgres.dispatch import StatementBatcher
from semel.stores.postgres.listener import Listener
from semel.stores.postgres.packing import text
from semel.stores.postgres.pool import Pool
from semel.stores.postgres.queries import Answers
from semel.stores.postgres.schema import Identity
from semel.stores.postgres.statements import Migration
from semel.stores.postgres.transaction import PostgresTransaction
from semel.stores.postgres.trouble import Failure
from semel.stores.postgres.wire import PostgresConnection

T = TypeVar("T")

# Identifiers are cut at this length without a word.
_SCHEMA_BYTES_MAX = 63

# Statements of commands at a time. More of them make smaller batches: 16 threads got 1 550 calls through with
# two, 1 170 with four and 710 with six (docs/decisions/0015).
_ABREAST = 2


class PostgresStore(Store):
    """Opens the schema, or makes it. Raises OpenError, StoreCorrupt or StoreUnavailable if that cannot be."""

    name = "postgres"
    transactional = True

    def __init__(
        self,
        conninfo: str,
        *,
        clock: Clock = SYSTEM,
        audit_on: bool = True,
        schema_name: str = "semel",
        pool: int = 8,
        timeout_s: float = 5.0,
        connect_s: float = 2.0,
        shown: str = "PostgreSQL",
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        super().__init__()
        if not schema_name or len(schema_name.encode()) > _SCHEMA_BYTES_MAX or "\x00" in schema_name:
            raise OpenError(f"A schema's name has 1 to {_SCHEMA_BYTES_MAX} bytes; nothing was created.")
        self.clock = clock
        self.audit = audit_on
        self.schema_name = schema_name
        self._conninfo = conninfo.encode()
        self._connect_s, self._timeout_s = connect_s, timeout_s
        self._identity: Identity | None = None
        channel = "semel_" + hashlib.sha256(schema_name.encode()).hexdigest()[:16]
        self._answers = Answers(self, channel)
        self._pool = Pool(self._connect, pool, timeout_s)
        self._tools_pool = Pool(self._connect_plain, pool, timeout_s)
        abreast = max(1, min(_ABREAST, pool - 1))
        self._dispatch = StatementBatcher(self._pool, self._answers.common, self.waiters, abreast, timeout_s)
        self._listener = Listener(self._connect, channel, self._answers.now, self.waiters)
        self._open(shown, statements.migrations() if migrations is None else migrations)
        _stores.add(self)

    def _open(self, shown: str, migrations: Sequence[Migration]) -> None:
        try:
            with self._pool.link() as link:
                schema.prepare(link, self.schema_name, self.clock, migrations)
                self._identity = schema.identify(link)
                self._settings = findings.settings(link)
        except Failure as failure:
            self._pool.close()
            raise trouble.unopened(failure, shown) from failure
        except BaseException:
            self._pool.close()
            raise

    def _connect(self) -> PostgresConnection:
        """A new connection, to the very records that this ledger was opened on."""
        link = PostgresConnection(self._conninfo, self._connect_s, self._timeout_s)
        try:
            link.run(statements.GREET, (text(self.schema_name), link.statement_ms()))
            if self._identity is not None:
                self._recognise(link, self._identity)
        except BaseException:
            link.close()
            raise
        link.used = False
        return link

    def _connect_plain(self) -> PostgresConnection:
        """A new connection for tools: with the server's own settings."""
        link = PostgresConnection(self._conninfo, self._connect_s, self._timeout_s)
        try:
            ((link.path_to_lend,),) = link.run(statements.PATH_TO_LEND, (text(self.schema_name),))
        except BaseException:
            link.close()
            raise
        link.used = False
        return link

    def _recognise(self, link: PostgresConnection, expected: Identity) -> None:
        """Raises StoreCorrupt if these are not the records we knew, or an older state of them."""
        # Before the look: what others commit meanwhile is newer than what we find.
        seen_event, seen_commit = self._dispatch.newest_event, self._dispatch.newest_commit
        link.run(statements.REACH_STANDBY)
        try:
            identity = schema.identify(link)
        except Failure as failure:
            if not schema.absent(failure):
                raise
            raise StoreCorrupt(
                "The database came back without its data; nothing was done.",
                corrective_action="Restore it, or open the ledger anew to begin with nothing.",
            ) from failure
        if identity.store_id != expected.store_id or identity.secret_key != expected.secret_key:
            raise StoreCorrupt(
                "The database came back as another store; nothing was done.",
                corrective_action="Restore the one that was there, or open the ledger anew.",
            )
        if identity.newest_event < seen_event or identity.newest_commit < seen_commit:
            raise StoreCorrupt(
                "The database came back in an older state: acknowledged writes are lost; nothing was done.",
                corrective_action="Find out what was lost before you open the ledger anew.",
            )

    @property
    def durability(self) -> str:
        return findings.durability(self._settings)

    @property
    def secret_key(self) -> bytes:
        assert self._identity is not None
        return self._identity.secret_key

    @property
    def statements(self) -> int:
        """How many statements commands took so far: fewer than commands when callers share them."""
        return self._dispatch.statements

    # --- commands --------------------------------------------------------------------------------

    @entering
    def perform(self, command: Command) -> Reply:
        if self._dispatch.owed:
            self._dispatch.flush()
        reply: Reply = self._dispatch.perform(CommandToSend(command))
        return reply

    async def aperform(self, command: Command) -> Reply:
        # Behind what was submitted for the same record it waits anyway.
        reply: Reply = await self._dispatch.aperform(CommandToSend(command))
        return reply

    @entering
    def submit(self, command: Command) -> None:
        self._dispatch.submit(CommandToSend(command))

    @entering
    def begin(self, *, asynchronous: bool) -> Transaction:
        try:
            return PostgresTransaction(
                self._tools_pool,
                self.schema_name,
                self._answers.common,
                self.waiters,
                self.clock.token().hex(),
                asynchronous=asynchronous,
            )
        except Failure as failure:
            raise trouble.translated(failure) from failure

    # --- queries ---------------------------------------------------------------------------------

    @entering
    def ask(self, query: Query[T]) -> T:
        if self._dispatch.owed:
            self._dispatch.flush()
        if isinstance(query, Commit):
            return cast(T, self._dispatch.perform(CommandToSend(query)))
        try:
            return self._ask(query)
        except Failure as failure:
            raise trouble.translated(failure, query) from failure

    def _ask(self, query: Query[T]) -> T:
        fresh = True
        try:
            with self._pool.link() as link:
                fresh = not link.used
                return cast(T, self._answers.answer(link, query))
        except Failure as failure:
            # Counted events would be counted twice; everything else may be asked again after a restart.
            again = trouble.worth_repeating(failure) or (
                trouble.gone(failure) and not failure.late and not fresh
            )
            if not again or isinstance(query, AppendEvents):
                raise
        with self._pool.link() as link:
            return cast(T, self._answers.answer(link, query))

    async def aask(self, query: Query[T]) -> T:
        if isinstance(query, Commit):
            return cast(T, await self._dispatch.aperform(CommandToSend(query)))
        return await asyncio.to_thread(self.ask, query)

    # --- around ----------------------------------------------------------------------------------

    @entering
    def watch(self) -> None:
        self._listener.start()

    @entering
    def findings(self) -> list[Finding]:
        try:
            with self._pool.link() as link:
                self._settings = findings.settings(link)
                return findings.of(link, self._settings, self._answers.now(), self.audit)
        except Failure as failure:
            raise trouble.translated(failure) from failure

    @entering
    def flush(self) -> None:
        """What was submitted before is carried out."""
        self._dispatch.flush()

    @entering
    def close(self) -> None:
        self._dispatch.close()
        self._listener.close()
        self._pool.close()
        self._tools_pool.close()

    def forked(self) -> None:
        """The store renews itself in a forked child, before anybody can ask."""

    def renew(self) -> None:
        self.waiters = Waiters()
        self._pool.renew()
        self._tools_pool.renew()
        self._dispatch.renew(self.waiters)
        self._listener.renew(self.waiters)


_stores: weakref.WeakSet[PostgresStore] = weakref.WeakSet()


def _in_child() -> None:
    for store in list(_stores):
        store.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


@atexit.register
def _flush_all() -> None:
    """What a cancelled caller submitted is carried out before the process ends."""
    for store in list(_stores):
        try:
            store.flush()
        except Exception:
            pass  # the process ends, and a lease heals what could not be written
