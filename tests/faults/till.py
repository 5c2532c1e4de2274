"""A tool whose effect is a row in the ledger's own database, and a process that calls it and may die of it.

    python -m tests.faults.till '{"url": …, "asynchronous": false, "crash": …, "dies": …}'

`crash` names a point of semel.testing; `dies` is "before effect", "after effect" or "in commit".
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

import semel
from semel.stores.postgres.wire import PostgresConnection
from semel.testing import crashing

CREATE = "CREATE TABLE IF NOT EXISTS payments (account varchar(100), amount integer)"
INSERT = {
    "sqlite": "INSERT INTO payments VALUES (?, ?)",
    "postgres": "INSERT INTO payments VALUES (%s, %s)",
}
COUNT = "SELECT count(*) FROM payments"

# Long enough for a call, short enough to wait for.
LEASE = "1s"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def pay_tool(store: str, dies: str = "", raises: Any = None, **said: Any) -> Any:
    @semel.tool_contract(name="pay", class_="write-non-idempotent", **{"lease": LEASE, **said})
    def pay(account: str, amount: int, books: semel.Transaction) -> str:
        if dies == "before effect":
            die()
        books.connection.execute(INSERT[store], (account, amount))
        if dies == "after effect":
            die()
        if raises is not None:
            raise raises
        return f"paid {amount} to {account}"

    return pay


def apay_tool(dies: str = "", **said: Any) -> Any:
    @semel.tool_contract(name="pay", class_="write-non-idempotent", **{"lease": LEASE, **said})
    async def pay(account: str, amount: int, books: semel.Transaction) -> str:
        if dies == "before effect":
            die()
        await books.connection.execute(INSERT["postgres"], (account, amount))
        if dies == "after effect":
            die()
        return f"paid {amount} to {account}"

    return pay


def call(ledger: semel.Ledger, tool: Any, name: str = "pay-1") -> Any:
    return ledger.step(conversation="conv-42", step=name).run(tool, account="acc-1", amount=1_400)


def run(ledger: semel.Ledger, *, asynchronous: bool, dies: str = "") -> str:
    store = ledger.store.name
    if not asynchronous:
        paid: str = call(ledger, pay_tool(store, dies))
        return paid

    async def scene() -> str:
        paid: str = await call(ledger, apay_tool(dies))
        return paid

    return asyncio.run(scene())


def die_in_commit() -> None:
    """The settlement is written and not committed: the process ends between the two."""
    script = PostgresConnection.script

    def dying(link: PostgresConnection, text: str) -> None:
        if text == "COMMIT":
            die()
        script(link, text)

    PostgresConnection.script = dying  # type: ignore[method-assign, assignment]


def main(told: dict[str, Any]) -> None:
    ledger = semel.open(told["url"])
    if told.get("crash"):
        ledger = crashing(ledger, told["crash"], kill=True)
    if told.get("dies") == "in commit":
        die_in_commit()
    print(run(ledger, asynchronous=told["asynchronous"], dies=told.get("dies", "")))
    ledger.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
