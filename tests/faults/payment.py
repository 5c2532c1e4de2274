"""The tool under test: a payment whose effect can be counted, with what happens just before and after it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import semel
from semel import Happened, Key, tool_contract
from tests.faults.bank import Bank, Receipt

POLICIES = ("retry", "probe", "park", "rerun")

# Short, so that a dead owner is in doubt soon. Nothing is asserted about how soon.
LEASE = "300ms"

# So long that whoever waits for its end fails the test's own bound.
LONG_LEASE = "10m"


class Declined(Exception):
    """The bank said no: nothing happened."""


def nothing() -> None:
    pass


async def at_once() -> None:
    pass


def payment(
    bank: Bank,
    policy: Any,
    *,
    name: str = "pay",
    asynchronous: bool = False,
    lease: str = LEASE,
    window: str = "24h",
    run_limit: str = "15m",
    wait: str = "1m",
    before: Callable[[], None] = nothing,
    after: Callable[[], None] = nothing,
    parting: Callable[[], Awaitable[None]] = at_once,
) -> Any:
    """`pay(account, amount, note)` under the policy. The note is ignored: it tells whose call arrived.

    An asynchronous one ends with `parting`, on its loop.
    """

    def probe(key: Key, account: str, amount: int, note: str) -> Any:
        receipt = bank.receipt(key)
        return semel.DidNotHappen if receipt is None else Happened(receipt)

    def arrive(account: str, amount: int, note: str, key: Key) -> Receipt:
        fence = semel.current_fence()
        assert fence is not None
        return bank.pay(key, fence, account, amount, note)

    contract = tool_contract(
        name=name,
        class_="write-non-idempotent",
        ignore=("note",),
        refused=(Declined,),
        on_unknown=policy,
        lease=lease,
        window=window,
        run_limit=run_limit,
        wait=wait,
        downstream_window="1h" if policy == "retry" else None,
        probe=probe if policy == "probe" else None,
    )

    async def pay_async(account: str, amount: int, note: str, key: Key) -> Receipt:
        # On a thread, because what happens there may wait, and the loop must not.
        await asyncio.to_thread(before)
        receipt = arrive(account, amount, note, key)
        await asyncio.to_thread(after)
        await parting()
        return receipt

    def pay(account: str, amount: int, note: str, key: Key) -> Receipt:
        before()
        receipt = arrive(account, amount, note, key)
        after()
        return receipt

    return contract(pay_async if asynchronous else pay)
