"""What there is to see: calls in doubt, questions, runs, dead letters, with names that mean harm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pydantic

import semel
from semel.errors import OutcomeUnknown
from semel.flow.dead_letters import letter
from semel.flow.document_store import DocumentStore
from semel.flow.model import Message
from semel.kernel.clock import SYSTEM
from semel.ledger.ledger import Ledger
from semel.stores.base import Store

HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}\u202e"


@semel.tool_contract(name="issue_refund", version="2.1.0", value="high", ignore=("reason",))
def issue_refund(payment_id: str, amount_minor: int, reason: str = "") -> dict[str, str]:
    """Pays a customer back."""
    raise TimeoutError("no answer within 5 s")


@dataclass(frozen=True)
class Payout:
    payout_id: str
    amount_minor: int
    instant: bool = False


@semel.tool_contract(name="send_payout", version="1.0.0", value="high")
def send_payout(supplier: str, amount_minor: int) -> Payout:
    """Pays a supplier."""
    raise TimeoutError("no answer within 5 s")


class Transfer(pydantic.BaseModel):
    """As `Payout`, as others write it."""

    payout_id: str
    amount_minor: int
    instant: bool | None = None


@semel.tool_contract(name="send_transfer", version="1.0.0", value="high")
def send_transfer(supplier: str, amount_minor: int) -> Transfer:
    """Pays a supplier."""
    raise TimeoutError("no answer within 5 s")


def _look_up(key: str, payment_id: str) -> object:
    return semel.CannotTell


@semel.tool_contract(name="probed_payment", version="1.0.0", value="high", probe=_look_up, on_unknown="park")
def probed_payment(payment_id: str) -> dict[str, str]:
    """Pays, and can be asked about."""
    raise TimeoutError("no answer within 5 s")


def in_doubt(
    store: Store,
    tenant: str = "default",
    payment: str = "p-1",
    reason: str = HOSTILE,
    call: Callable[[], object] | None = None,
    conversation: str = "conv-42",
) -> dict[str, Any]:
    """A refund, or another call, whose answer was lost; its record, as it is listed."""
    ledger = Ledger(store, tenant=tenant)
    try:
        with ledger.step(conversation=conversation, step=payment, principal="support-bot"):
            if call is not None:
                call()
            issue_refund(payment_id=payment, amount_minor=1_400_000, reason=reason)
    except (OutcomeUnknown, TimeoutError):
        pass
    record = next(each for each in ledger.records.list(state="in_doubt") if payment in str(each.request.step))
    ledger.keeper.close()  # the store is closed by the gateway
    return {"id": record.request.id, "key": record.request.at.key}


async def put_aside(store: Store, error: str = HOSTILE, name: str = "job_1", tenant: str = "default") -> str:
    """A message that could not be handled; the id of its letter."""
    at_us = SYSTEM.now_us()
    message = Message(f"{tenant}:{name}:queued", tenant, "job.queued", at_us, topic="pay", job_id=name)
    found = letter("mailer", message, 5, error, at_us)
    await DocumentStore(store).commit(tenant, {found.id: None}, (found.draft(),))
    return found.id
