"""A transfer inside the ledger's own database: the process dies in the middle, and the money moves once.

python same_transaction.py
"""

# Semel fills the transaction in, which type checkers cannot see.

from __future__ import annotations

import os

import semel
from semel import tool_contract
from semel.testing import Crash, crashing

URL = os.environ.get("SEMEL_URL", "sqlite:///bank.db")

# The one difference between the two databases: how a statement names its parameters.
MARK = "%s" if URL.startswith("postgresql:") else "?"


def prepare(ledger: semel.Ledger) -> None:
    """Two accounts, in a transaction that this program commits by itself."""
    books = ledger.store.begin(asynchronous=False)
    books.connection.execute("DROP TABLE IF EXISTS accounts")
    books.connection.execute("CREATE TABLE accounts (name varchar(20), balance integer)")
    books.connection.execute("INSERT INTO accounts VALUES ('ann', 100), ('bob', 0)")
    books.connection.execute("COMMIT")
    books.roll_back()


def balances(ledger: semel.Ledger) -> dict[str, int]:
    books = ledger.store.begin(asynchronous=False)
    try:
        return dict(books.connection.execute("SELECT name, balance FROM accounts ORDER BY name").fetchall())
    finally:
        books.roll_back()


@tool_contract(
    class_="write-non-idempotent",
    value="high",
    lease="1s",  # short, so that nobody waits a minute here for a process that is dead
)
def transfer(source: str, target: str, amount: int, books: semel.Transaction) -> str:
    """Move money between two accounts. Commits together with the record that it happened, or not at all."""
    add = f"UPDATE accounts SET balance = balance + {MARK} WHERE name = {MARK}"
    books.connection.execute(add, (-amount, source))
    books.connection.execute(add, (amount, target))
    print(f"  books: {amount} from {source} to {target}")
    return f"{amount} moved"


def ask(ledger: semel.Ledger) -> str:
    """What the agent does, as often as its orchestrator lets it."""
    with ledger.step(conversation="conv-42", step="rent"):
        return transfer(source="ann", target="bob", amount=30)


def main() -> None:
    with semel.open(URL) as ledger:
        prepare(ledger)
        print("The process dies after the transfer, before it is recorded:")
        try:
            ask(crashing(ledger, "before settle"))
        except Crash:
            print(f"  {balances(ledger)}: the transfer went with it")
        print("The agent asks again, and once more:")
        for _ in range(2):
            print(f"  agent: {ask(ledger)}")
        print(f"Balances: {balances(ledger)}.")
        assert balances(ledger) == {"ann": 70, "bob": 30}


if __name__ == "__main__":
    main()
