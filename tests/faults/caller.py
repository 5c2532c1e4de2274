"""One call of a payment, and what the caller got to hear."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, NamedTuple

import semel
from semel.errors import SemelError
from tests.faults.bank import Receipt

CONVERSATION = "conv-42"
STEP = "step-1"
ACCOUNT = "acc-1"
AMOUNT = 1_400


class Heard(NamedTuple):
    """A receipt, or the code of a refusal, or the name of any other exception."""

    receipt: Receipt | None = None
    code: str | None = None
    raised: str | None = None


def call(
    ledger: semel.Ledger, tool: Any, *, account: str = ACCOUNT, note: str = "", step: str = STEP
) -> Heard:
    """Pay in the one step that all callers of these tests share."""
    inside = ledger.step(conversation=CONVERSATION, step=step)
    try:
        answer = inside.run(tool, account=account, amount=AMOUNT, note=note)
        return Heard(receipt=asyncio.run(_awaited(answer)) if inspect.isawaitable(answer) else answer)
    except SemelError as error:
        return Heard(code=error.code)
    except BaseException as error:
        return Heard(raised=type(error).__name__)


async def acall(
    ledger: semel.Ledger, tool: Any, *, account: str = ACCOUNT, note: str = "", step: str = STEP
) -> Heard:
    """The same on a loop that runs already."""
    try:
        inside = ledger.step(conversation=CONVERSATION, step=step)
        return Heard(receipt=await inside.run(tool, account=account, amount=AMOUNT, note=note))
    except SemelError as error:
        return Heard(code=error.code)


async def _awaited(answer: Any) -> Any:
    return await answer
