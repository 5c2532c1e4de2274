"""The connection that is lent to a tool: psycopg's own, which refuses to end the transaction.

What gets round it (another kind of cursor, libpq itself) is noticed when the call is to be settled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import psycopg

from semel.contract.transaction import refusal
from semel.stores.postgres import sql_text

if TYPE_CHECKING:
    _Cursor = psycopg.Cursor[Any]
    _AsyncCursor = psycopg.AsyncCursor[Any]
    _ServerCursor = psycopg.ServerCursor[Any]
    _AsyncServerCursor = psycopg.AsyncServerCursor[Any]
    _Connection = psycopg.Connection[Any]
    _AsyncConnection = psycopg.AsyncConnection[Any]
else:
    _Cursor, _ServerCursor = psycopg.Cursor, psycopg.ServerCursor
    _AsyncCursor, _AsyncServerCursor = psycopg.AsyncCursor, psycopg.AsyncServerCursor
    _Connection, _AsyncConnection = psycopg.Connection, psycopg.AsyncConnection


class _Judging:
    """Looks at what a cursor is to execute. Of an asynchronous one the answer is awaited by its caller."""

    def execute(self, query: Any, *args: Any, **kwargs: Any) -> Any:
        _judge(self, query)
        return super().execute(query, *args, **kwargs)  # type: ignore[misc]

    def executemany(self, query: Any, *args: Any, **kwargs: Any) -> Any:
        _judge(self, query)
        return super().executemany(query, *args, **kwargs)  # type: ignore[misc]

    def stream(self, query: Any, *args: Any, **kwargs: Any) -> Any:
        _judge(self, query)
        return super().stream(query, *args, **kwargs)  # type: ignore[misc]

    def copy(self, statement: Any, *args: Any, **kwargs: Any) -> Any:
        _judge(self, statement)
        return super().copy(statement, *args, **kwargs)  # type: ignore[misc]


def _judge(cursor: Any, query: Any) -> None:
    text = _text_of(query, cursor.connection)
    if what := sql_text.ending(text):
        raise refusal(what)
    if not sql_text.leaves_nothing(text):
        cursor.connection.left_behind = True


def _text_of(query: Any, connection: Any) -> str:
    if isinstance(query, bytes):
        return query.decode(errors="replace")
    if hasattr(query, "as_string"):
        return str(query.as_string(connection))
    # A template's own text; what is filled into it are values.
    return " ".join(getattr(query, "strings", ())) or str(query)


class LentSyncCursor(_Judging, _Cursor): ...


class LentServerCursor(_Judging, _ServerCursor): ...


class LentAsyncCursor(_Judging, _AsyncCursor): ...


class LentAsyncServerCursor(_Judging, _AsyncServerCursor): ...


class _Refusing:
    left_behind = False
    """Whether the tool may have changed something that outlives its transaction."""

    def commit(self) -> NoReturn:
        raise refusal("commit()")

    def rollback(self) -> NoReturn:
        raise refusal("rollback()")

    def close(self) -> NoReturn:
        raise refusal("close()")

    def __enter__(self) -> NoReturn:
        raise refusal("`with connection:`, which commits and closes at its end,")

    async def __aenter__(self) -> NoReturn:
        raise refusal("`async with connection:`, which commits and closes at its end,")


class LentSyncConnection(_Refusing, _Connection):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.cursor_factory, self.server_cursor_factory = LentSyncCursor, LentServerCursor


class LentAsyncConnection(_Refusing, _AsyncConnection):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.cursor_factory, self.server_cursor_factory = LentAsyncCursor, LentAsyncServerCursor
