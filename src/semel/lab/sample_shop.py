"""The sample's shop: a tool that hands money back, and the handlers that call it. Nothing leaves the process.

Its provider takes no keys, and its answer to every third order is lost on the way. So the tool's contract, a
bare one, leaves such an order in doubt: nobody pays it again until a person has looked.
"""

from __future__ import annotations

import semel

# Named after nobody's work, so that a worker of the reader's own may have any other topic.
CHECK, PAY = "sample.check", "sample.pay"

_LOST = 3


def key_of(order: int) -> str:
    """An order is refunded once, whichever run, rerun or job asks for it."""
    return f"sample-order-{order}"


class AnswerLost(TimeoutError):
    """The provider has been asked, and its answer did not arrive."""


def booked(order: int) -> dict[str, str]:
    """A refund as the provider's book has it."""
    return {"refund": f"re-{order}"}


def _ask_provider(order: int, amount_minor: int) -> dict[str, str]:
    del amount_minor  # here money would leave
    if order % _LOST == 0:
        raise AnswerLost
    return booked(order)


@semel.tool_contract
def issue_refund(order: int, amount_minor: int) -> dict[str, str]:
    """Hand the money of an order back."""
    return _ask_provider(order, amount_minor)


@semel.handler(CHECK)
def check(job: semel.Job) -> dict[str, bool]:
    return {"payable": job.input["amount_minor"] > 0}


@semel.handler(PAY)
def pay(job: semel.Job) -> dict[str, str]:
    order, amount_minor = job.input["order"], job.input["amount_minor"]
    call = semel.ToolCall({"order": order, "amount_minor": amount_minor}, idempotency_key=key_of(order))
    return issue_refund.call(call).unwrap()
