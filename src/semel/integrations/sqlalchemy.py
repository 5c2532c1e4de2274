"""SQLAlchemy: an ORM session on the ledger's own transaction, so that the effect commits with its record.

    from semel.integrations.sqlalchemy import session

    @tool_contract
    def pay(account: str, amount: int, books: semel.Transaction = semel.filled) -> str:
        session(books).add(Payment(account=account, amount=amount))
        return "paid"

Semel commits, together with the record; what was added and not flushed by then is flushed when the tool
returns. `commit`, `rollback`, `close` and `begin` are refused; `begin_nested`, for a part that may fail, is
not. In an `async def` on PostgreSQL it is `db = await async_session(books)`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from sqlalchemy import Engine, create_engine
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg, PGDialectAsync_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, SessionTransaction
from sqlalchemy.pool import NullPool

from semel.contract.transaction import Transaction, refusal
from semel.errors import ContractError

# One for each transaction, because two would not know of each other's savepoints.
_sessions: WeakKeyDictionary[Transaction, LedgerSession] = WeakKeyDictionary()
_async_sessions: WeakKeyDictionary[Transaction, AsyncLedgerSession] = WeakKeyDictionary()


def session(transaction: Transaction) -> Session:
    """The transaction's session: the same one however often it is asked for, and of no use after the call."""
    if transaction not in _sessions:
        if _driver(transaction) == "postgresql+semel_async":
            raise ContractError(
                "This tool's transaction is asynchronous; no session was made.",
                corrective_action="In an `async def` on PostgreSQL: `await async_session(transaction)`.",
            )
        with _lending(transaction):
            connection = _engine(transaction).connect()
        connection.detach()  # its pool does not close it: the ledger does, when the call is settled
        connection.begin()
        made = _sessions[transaction] = LedgerSession(connection, join_transaction_mode="create_savepoint")
        transaction.unwritten += (made.finish,)
    return _sessions[transaction]


async def async_session(transaction: Transaction) -> AsyncSession:
    """The same for an `async def` on PostgreSQL. SQLite has no asynchronous connection: `session` there."""
    if transaction not in _async_sessions:
        if _driver(transaction) != "postgresql+semel_async":
            raise ContractError(
                "This tool's transaction is not asynchronous; no session was made.",
                corrective_action="Use session(transaction), also in an `async def` on SQLite.",
            )
        with _lending(transaction):
            connection = await AsyncEngine(_engine(transaction)).connect()
        await connection.run_sync(lambda connected: connected.detach())
        await connection.begin()
        made = AsyncLedgerSession(connection, join_transaction_mode="create_savepoint")
        _async_sessions[transaction] = made
        transaction.unwritten += (made.finish,)
    return _async_sessions[transaction]


# --- sessions that do not end the transaction -----------------------------------------------------


class LedgerSession(Session):
    """Works in a savepoint: a flush that fails is rolled back to it, and the tool's error is what it was."""

    def finish(self) -> None:
        """What was added is written. ContractError if a flush took all of it back, and the tool went on."""
        if not self.is_active:
            raise ContractError(
                "A flush failed, which rolled back what the session had written, and the tool went on; "
                "nothing was committed.",
                corrective_action="Let the error leave the tool. For a part that may fail: "
                "`with session.begin_nested():`.",
            )
        self.flush()

    def commit(self) -> NoReturn:
        raise refusal("commit()")

    def rollback(self) -> NoReturn:
        raise refusal("rollback()")

    def close(self) -> NoReturn:
        raise refusal("close()")

    def reset(self) -> NoReturn:
        raise refusal("reset()")

    def invalidate(self) -> NoReturn:
        raise refusal("invalidate()")

    def prepare(self) -> NoReturn:
        raise refusal("prepare()")

    def begin(self, nested: bool = False) -> SessionTransaction:
        if nested:
            return super().begin(nested=True)
        raise refusal("begin(), which commits at its end,")

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.flush()


class AsyncLedgerSession(AsyncSession):
    sync_session_class = LedgerSession
    sync_session: LedgerSession

    async def finish(self) -> None:
        await self.run_sync(lambda _: self.sync_session.finish())

    async def __aexit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            await self.flush()


# --- engines that open and close no connection ----------------------------------------------------


_lent: ContextVar[Any] = ContextVar("semel_sqlalchemy_lent")


@contextmanager
def _lending(transaction: Transaction) -> Iterator[None]:
    """The engine's next connection is the transaction's."""
    token = _lent.set(transaction.connection)
    try:
        yield
    finally:
        _lent.reset(token)


async def _lent_async(*_: Any, **__: Any) -> Any:
    return _lent.get()


def _driver(transaction: Transaction) -> str:
    if isinstance(transaction.connection, sqlite3.Connection):
        return "sqlite+semel"
    import psycopg

    asynchronous = isinstance(transaction.connection, psycopg.AsyncConnection)
    return "postgresql+semel_async" if asynchronous else "postgresql+semel"


def _engine(transaction: Transaction) -> Engine:
    driver = _driver(transaction)
    if driver == "sqlite+semel":
        return _engine_of(driver)
    info = transaction.connection.info
    return _engine_of(driver, info.host, info.port, info.dbname)


@cache
def _engine_of(driver: str, *_database: Any) -> Engine:
    """One for each database, because an engine asks for its version once, and keeps compiled statements."""
    options: dict[str, Any] = {"poolclass": NullPool, "pool_reset_on_return": None}
    if driver == "sqlite+semel":
        return create_engine(f"{driver}://", creator=_lent.get, **options)
    options["use_native_hstore"] = False  # what it would register is for connections of its own
    if driver == "postgresql+semel":
        return create_engine(f"{driver}://", creator=_lent.get, **options)
    return create_async_engine(f"{driver}://", async_creator=_lent_async, **options).sync_engine


class _Lent:
    """A dialect whose connections are the ledger's. They themselves refuse to be committed or rolled back."""

    looked_around = False

    def do_rollback(self, dbapi_connection: Any) -> None:
        if self.looked_around:
            super().do_rollback(dbapi_connection)  # type: ignore[misc]
        # The first look at a database is rolled back by SQLAlchemy; it has read only.
        self.looked_around = True


class LentSqlite(_Lent, SQLiteDialect_pysqlite):
    supports_statement_cache = True


class LentPostgres(_Lent, PGDialect_psycopg):
    supports_statement_cache = True


class LentAsyncPostgres(_Lent, PGDialectAsync_psycopg):
    supports_statement_cache = True

    @classmethod
    def get_async_dialect_cls(cls, url: Any) -> type[LentAsyncPostgres]:  # noqa: ARG003
        return cls


registry.register("sqlite.semel", __name__, "LentSqlite")
registry.register("postgresql.semel", __name__, "LentPostgres")
registry.register("postgresql.semel_async", __name__, "LentAsyncPostgres")
