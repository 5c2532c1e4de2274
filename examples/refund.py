"""A refund at a provider that takes a key: its answer is lost, the process dies, and it is paid once.

python refund.py                                  on memory
SEMEL_URL=sqlite:///refund.db python refund.py    the same on any store: redis://…, postgresql://…
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass

import semel
from semel import tool_contract
from semel.testing import Crash, crashing


class UpstreamTimeout(Exception):
    """The provider did not answer in time."""


class Provider:
    """A payment provider: one refund per key, and sometimes no answer."""

    def __init__(self) -> None:
        self.refunds: dict[str, int] = {}
        self.requests = 0
        self.answers_to_lose = 0

    def refund(self, payment_id: str, amount_minor: int, note: str, *, idempotency_key: str) -> str:
        self.requests += 1
        if idempotency_key not in self.refunds:
            self.refunds[idempotency_key] = amount_minor
            print(f"  provider: pays {amount_minor} back for {payment_id} ({note})")
        if self.answers_to_lose > 0:
            self.answers_to_lose -= 1
            raise UpstreamTimeout
        return f"re-{list(self.refunds).index(idempotency_key) + 1}"


provider = Provider()


@dataclass
class Refund:
    id: str
    amount_minor: int


@tool_contract(
    class_="write-non-idempotent",
    value="high",
    lease="1s",  # short, so that nobody waits a minute here for a process that is dead
    ignore=("reason",),
    downstream_window="24h",
    transient=(UpstreamTimeout,),
    attempts=3,
    backoff="1ms",
)
def issue_refund(payment_id: str, amount_minor: int, reason: str, key: semel.Key = semel.filled) -> Refund:
    """Refund a payment, in minor units."""
    return Refund(provider.refund(payment_id, amount_minor, reason, idempotency_key=key), amount_minor)


def main() -> None:
    # A new name for each run, because a store that lasts would answer with the refund of the last one.
    conversation = f"conv-{uuid.uuid4()}"
    with semel.open(os.environ.get("SEMEL_URL", "memory://")) as ledger:
        print("The provider's first answer is lost, and the process dies before it records the refund:")
        provider.answers_to_lose = 1
        try:
            with crashing(ledger, "before settle").step(conversation=conversation, step="refund-1"):
                issue_refund("p-1", 1_400_000, "damaged")
        except Crash:
            print("  process: gone")

        print("The agent is restarted and asks again, in other words:")
        for wording in ("it came damaged", "broken on arrival"):
            with ledger.step(conversation=conversation, step="refund-1"):
                print(f"  agent: {issue_refund('p-1', 1_400_000, wording)}")

    print(f"Requests: {provider.requests}. Refunds: {len(provider.refunds)}.")
    assert len(provider.refunds) == 1, "the refund landed twice"


if __name__ == "__main__":
    main()
