"""A transfer inside the application's own database: the process dies in the middle, and the money moves once.

python same_transaction.py                                          in a database of its own, which goes again
SEMEL_URL='sqlite:///app.db?shared=yes' python same_transaction.py  in yours, or in postgresql://…: it makes a
                                                                    table under a new name, and drops that one
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import tempfile
from contextlib import closing
from typing import Any

import semel
from semel import tool_contract
from semel.testing import Crash, crashing

# New each time: whatever else there is in the database, this is not it.
RUN = secrets.token_hex(4)
ACCOUNTS = f"example_accounts_{RUN}"


@tool_contract(
    class_="write-non-idempotent",
    value="high",
    lease="1s",  # short, so that nobody waits a minute here for a process that is dead
)
def transfer(source: str, target: str, amount: int, books: semel.Transaction = semel.filled) -> str:
    """Move money between two accounts. Commits together with the record that it happened, or not at all."""
    # The one difference between the two databases: how a statement names its parameters.
    mark = "?" if isinstance(books.connection, sqlite3.Connection) else "%s"
    add = f"UPDATE {ACCOUNTS} SET balance = balance + {mark} WHERE name = {mark}"
    books.connection.execute(add, (-amount, source))
    books.connection.execute(add, (amount, target))
    print(f"  books: {amount} from {source} to {target}")
    return f"{amount} moved"


def ask(ledger: semel.Ledger) -> str:
    """What the agent does, as often as its orchestrator lets it."""
    with ledger.step(conversation=f"conv-{RUN}", step="rent"):
        return transfer(source="ann", target="bob", amount=30)


def connect(url: str) -> Any:
    """The application's own connection, to the database in which Semel keeps its tables too."""
    plain = url.partition("?")[0]
    if not plain.startswith("postgresql:"):
        return sqlite3.connect(plain.removeprefix("sqlite:///"), isolation_level=None)
    import psycopg

    return psycopg.connect(plain, autocommit=True)


def show(url: str) -> None:
    with closing(connect(url)) as application:
        application.execute(f"CREATE TABLE {ACCOUNTS} (name varchar(20), balance integer)")
        try:
            application.execute(f"INSERT INTO {ACCOUNTS} VALUES ('ann', 100), ('bob', 0)")
            move(url, application)
        finally:
            application.execute(f"DROP TABLE {ACCOUNTS}")


def move(url: str, application: Any) -> None:
    def balances() -> dict[str, int]:
        rows = application.execute(f"SELECT name, balance FROM {ACCOUNTS} ORDER BY name").fetchall()
        return {str(name): int(balance) for name, balance in rows}

    with semel.open(url) as ledger:
        print("The process dies after the transfer, before it is recorded:")
        try:
            ask(crashing(ledger, "before settle"))
        except Crash:
            print(f"  {balances()}: the transfer went with it")
        print("The agent asks again, and once more:")
        for _ in range(2):
            print(f"  agent: {ask(ledger)}")
        print(f"Balances: {balances()}.")
        assert balances() == {"ann": 70, "bob": 30}


def main() -> None:
    if "SEMEL_URL" in os.environ:
        show(os.environ["SEMEL_URL"])
        return
    with tempfile.TemporaryDirectory() as folder:
        show(f"sqlite:///{folder}/bank.db?shared=yes")


if __name__ == "__main__":
    main()
