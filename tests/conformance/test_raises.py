"""An exception that a contract lists as an answer comes back from every store as itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.ledger.ledger import Ledger
from tests.fake_clock import FakeClock
from tests.stores import Kind


class CardDeclined(Exception):
    def __init__(self, code: str, details: dict[str, Any]) -> None:
        super().__init__(code)
        self.details = details


# What a store could spoil: text of every kind, numbers at their ends, nothing at all.
DETAILS = {"naïve ✓ 𝄞": [None, True, -(2**63), 2**63 - 1, 1.5e300, -0.0, "", "\0\n"], "": {"a": {}}}


@pytest.fixture
def ledgers(kind: Kind, tmp_path: Path) -> Iterator[list[Ledger]]:
    """Two that share their records, as two processes do; one twice where they cannot be shared."""
    with ExitStack() as stack:
        opened = [
            stack.enter_context(Ledger(kind.open(tmp_path, FakeClock(), True), tenant="acme"))
            for _ in range(2 if kind.shared else 1)
        ]
        yield [opened[0], opened[-1], opened[-1]]


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
def test_it_is_raised_with_its_data_by_every_caller(ledgers: list[Ledger], is_async: bool) -> None:
    entered: list[str] = []

    def pay(to: str) -> int:
        entered.append(to)
        raise CardDeclined("no-funds\0", DETAILS)

    async def apay(to: str) -> int:
        return pay(to)

    tool: Any = semel.tool_contract(name="pay", raises=(CardDeclined,))(apay if is_async else pay)
    for ledger in ledgers:
        with ledger.step(conversation="c", step="1"), pytest.raises(CardDeclined) as declined:
            asyncio.run(tool("ann")) if is_async else tool("ann")
        assert type(declined.value) is CardDeclined
        assert (declined.value.args, declined.value.details) == (("no-funds\0",), DETAILS)
    assert entered == ["ann"]
    [record] = ledgers[0].records.list(scope="tool")
    assert record.state.value == "failed"
