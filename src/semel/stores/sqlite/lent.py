"""The connection that is lent to a tool: it can do all but end the transaction, and touch what is Semel's.

Two lines of defence: methods that would end it refuse at once, and SQLite itself asks `_judge` about every
statement that it prepares, however it comes.
"""

from __future__ import annotations

import sqlite3
from typing import Any, NoReturn
from weakref import ref

from semel.contract.transaction import refusal
from semel.errors import ContractError

_ENDING = {sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH}
_CHANGING = {
    sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE, sqlite3.SQLITE_ALTER_TABLE,
    sqlite3.SQLITE_CREATE_INDEX, sqlite3.SQLITE_CREATE_TABLE, sqlite3.SQLITE_CREATE_TRIGGER,
    sqlite3.SQLITE_CREATE_TEMP_TRIGGER, sqlite3.SQLITE_CREATE_VIEW, sqlite3.SQLITE_DROP_INDEX,
    sqlite3.SQLITE_DROP_TABLE, sqlite3.SQLITE_DROP_TRIGGER, sqlite3.SQLITE_REINDEX,
    # A temporary one of the same name would be written to in place of Semel's.
    sqlite3.SQLITE_CREATE_TEMP_TABLE, sqlite3.SQLITE_CREATE_TEMP_VIEW, sqlite3.SQLITE_CREATE_TEMP_INDEX,
    sqlite3.SQLITE_CREATE_VTABLE,
}  # fmt: skip

# Pragmas that only look, although they have an argument, or hold for this transaction alone.
_LOOKING = {
    "table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list",
    "foreign_key_check", "defer_foreign_keys",
}  # fmt: skip

_OURS = "semel_"

# So many are noted before those are forgotten that are gone.
_CURSORS_MAX = 1_000


class LentConnection(sqlite3.Connection):
    """Of the store, for as long as a tool runs."""

    lent: bool = False
    refused: str = ""  # what the last statement was refused for
    interruption: BaseException | None = None  # or what came while it was judged, which SQLite takes for a no

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # References alone, not a WeakSet: an interrupt in what that does when a cursor goes would be lost.
        self._cursors: list[ref[sqlite3.Cursor]] = []

    def lend(self) -> None:
        """From here on it refuses to end the transaction, and to change what is Semel's."""
        super().set_authorizer(self._judge)
        self.lent = True

    def take_back(self) -> None:
        """It is the store's again: nothing that the tool left running or watching is in the way."""
        self.lent = False
        super().set_authorizer(None)
        super().set_progress_handler(None, 0)
        for cursor in self._open_cursors():
            cursor.close()

    def give_up(self) -> None:
        """It is closed, and what was not committed is rolled back."""
        try:
            self.take_back()
            # Explicitly, because a statement that somebody still holds (the traceback of an error holds its
            # cursor) keeps a connection that is only closed alive, and with it the file's write lock.
            super().rollback()
        except sqlite3.Error:
            pass  # closing it is what is left
        finally:
            super().close()

    def _judge(self, action: int, first: str | None, second: str | None, *_: Any) -> int:
        try:
            gone = "" if self.in_transaction else "a statement after the transaction was rolled back"
            what = gone or _objection(action, first or "", second)
            # SQLite may ask on after a no; the first one is the reason.
            self.refused = self.refused or what
            return sqlite3.SQLITE_DENY if what else sqlite3.SQLITE_OK
        except BaseException as interrupt:
            self.interruption = interrupt
            return sqlite3.SQLITE_DENY

    def forget(self) -> None:
        """The refusal of the statement before is cleared."""
        self.refused, self.interruption = "", None

    def refuse_after_rollback(self) -> None:
        """After some errors SQLite rolls all of it back by itself, and commits at once what comes then."""
        if self.lent and not self.in_transaction:
            raise ContractError(
                "SQLite rolled the tool's transaction back after an error that the tool went on from; "
                "this statement was not carried out, and nothing was committed.",
                corrective_action="Let the error leave the tool. For a part that may fail use a savepoint, "
                "and no ON CONFLICT ROLLBACK or RAISE(ROLLBACK).",
            )

    # --- what ends it -----------------------------------------------------------------------------

    def commit(self) -> NoReturn:
        raise refusal("commit()")

    def rollback(self) -> NoReturn:
        raise refusal("rollback()")

    def close(self) -> NoReturn:
        raise refusal("close()")

    def executescript(self, *_: Any) -> NoReturn:
        raise refusal("executescript(), which commits first,")

    def __enter__(self) -> NoReturn:
        raise refusal("`with connection:`, which commits at its end,")

    def set_authorizer(self, *_: Any) -> NoReturn:
        raise refusal("set_authorizer()")

    def backup(self, *_: Any, **__: Any) -> NoReturn:
        raise refusal("backup(), which waits for this very transaction,")

    def deserialize(self, *_: Any, **__: Any) -> NoReturn:
        raise refusal("deserialize()")

    @property
    def isolation_level(self) -> None:
        """As the store's own: the driver begins and commits nothing by itself."""
        return None

    @isolation_level.setter
    def isolation_level(self, _: Any) -> NoReturn:
        raise refusal("a change of isolation_level")

    # --- statements -------------------------------------------------------------------------------

    def cursor(self, factory: Any = None) -> Any:
        made: Any = super().cursor(LentCursor if factory is None else factory)
        if len(self._cursors) >= _CURSORS_MAX:
            self._cursors = [ref(each) for each in self._open_cursors()]
        self._cursors.append(ref(made))  # closed when the connection is taken back, if the tool still has it
        return made

    def _open_cursors(self) -> list[sqlite3.Cursor]:
        return [cursor for each in self._cursors if (cursor := each()) is not None]

    def execute(self, *args: Any) -> Any:
        return self.cursor().execute(*args)

    def executemany(self, *args: Any) -> Any:
        return self.cursor().executemany(*args)

    def blobopen(self, table: str, *args: Any, **kwargs: Any) -> Any:
        # SQLite asks nobody about these.
        if table.lower().startswith(_OURS):
            raise refused(table)
        return super().blobopen(table, *args, **kwargs)


class LentCursor(sqlite3.Cursor):
    """Says in words what SQLite calls "not authorized"."""

    connection: LentConnection

    def execute(self, *args: Any) -> LentCursor:
        self.connection.forget()
        self.connection.refuse_after_rollback()
        try:
            super().execute(*args)
        except sqlite3.DatabaseError as error:
            self._explain(error)
            raise
        return self

    def executemany(self, *args: Any) -> LentCursor:
        self.connection.forget()
        self.connection.refuse_after_rollback()
        try:
            super().executemany(*args)
        except sqlite3.DatabaseError as error:
            self._explain(error)
            raise
        return self

    def executescript(self, *_: Any) -> NoReturn:
        raise refusal("executescript(), which commits first,")

    def _explain(self, error: sqlite3.DatabaseError) -> None:
        if getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_AUTH:
            return
        if what := self.connection.refused:
            raise refused(what) from error
        # Nobody objected. An interrupt that came before the first line of `_judge` is lost, so this is one.
        raise self.connection.interruption or KeyboardInterrupt from error


def _objection(action: int, first: str, second: str | None) -> str:
    """What there is to say against it; nothing, if nothing."""
    if action in _ENDING:
        return first if action == sqlite3.SQLITE_TRANSACTION else "ATTACH or DETACH"
    if action == sqlite3.SQLITE_PRAGMA and second is not None and first.lower() not in _LOOKING:
        return f"PRAGMA {first}"
    if action == sqlite3.SQLITE_ALTER_TABLE and first.lower() == "temp":
        return "to alter a temporary table"  # the new name is not told, and could be one of Semel's
    if action in _CHANGING:
        for name in (first, second or ""):
            if name.lower().startswith(_OURS):
                return name
    return ""


def refused(what: str) -> ContractError:
    if not what.lower().startswith(_OURS):
        return refusal(what)
    return ContractError(
        f"{what} is Semel's own, which a tool does not change; nothing of the statement was done.",
        corrective_action="Name tables of the application otherwise than semel_….",
    )
