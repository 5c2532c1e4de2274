"""A tool whose effect is a row that an ORM's session writes, and a process that calls it and may die of it.

    python -m tests.faults.orm '{"url": …, "how": "sync" | "async" | "unguarded", "dies": …}'

`dies` is "before effect", "after effect", "in commit" or "after commit".
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import semel
from semel.integrations.sqlalchemy import async_session, session
from semel.testing import crashing
from tests.faults.till import LEASE, die, die_in_commit


class Base(DeclarativeBase): ...


class Payment(Base):
    __tablename__ = "orm_payments"
    id: Mapped[int] = mapped_column(primary_key=True)
    account: Mapped[str]
    amount: Mapped[int]


def application(url: str) -> Any:
    """The engine that the application itself has for the database."""
    return create_engine(url.partition("?")[0].replace("postgresql:", "postgresql+psycopg:"))


def pay_tool(dies: str = "") -> Any:
    @semel.tool_contract(name="pay", class_="write-non-idempotent", lease=LEASE)
    def pay(account: str, amount: int, books: semel.Transaction) -> str:
        if dies == "before effect":
            die()
        session(books).add(Payment(account=account, amount=amount))
        if dies == "after effect":
            session(books).flush()
            die()
        return f"paid {amount}"

    return pay


def apay_tool(dies: str = "") -> Any:
    @semel.tool_contract(name="pay", class_="write-non-idempotent", lease=LEASE)
    async def pay(account: str, amount: int, books: semel.Transaction) -> str:
        if dies == "before effect":
            die()
        db = await async_session(books)
        db.add(Payment(account=account, amount=amount))
        if dies == "after effect":
            await db.flush()
            die()
        return f"paid {amount}"

    return pay


def unguarded(url: str, dies: str = "") -> str:
    """What an application does without Semel: it commits, and then says so to whoever asked."""
    with Session(application(url)) as db:
        db.add(Payment(account="acc-1", amount=1_400))
        db.commit()
    if dies == "after commit":
        die()
    return "paid 1400"


def call(ledger: semel.Ledger, tool: Any, name: str = "pay-1") -> Any:
    return ledger.step(conversation="conv-42", step=name).run(tool, account="acc-1", amount=1_400)


def run(ledger: semel.Ledger, how: str, dies: str = "") -> str:
    async def scene() -> str:
        paid: str = await call(ledger, apay_tool(dies))
        return paid

    return asyncio.run(scene()) if how == "async" else str(call(ledger, pay_tool(dies)))


def main(told: dict[str, Any]) -> None:
    dies = told.get("dies", "")
    if told["how"] == "unguarded":
        print(unguarded(told["url"], dies))
        return
    ledger = semel.open(told["url"])
    if dies == "after commit":
        ledger = crashing(ledger, "after settle", kill=True)
    if dies == "in commit":
        die_in_commit()
    print(run(ledger, told["how"], dies))
    ledger.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
