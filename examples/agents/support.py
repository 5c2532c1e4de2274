"""The support agent: its tools, given to every framework as they are, and what its scripted model says."""

from __future__ import annotations

from typing import Any

import semel

done: list[str] = []


def _do(what: str) -> str:
    done.append(what)
    print(f"  done: {what}")
    return what


# --- the tools ------------------------------------------------------------------------------------


@semel.tool_contract(class_="read")
def find_payment(order_id: str) -> str:
    """Find the payment of an order."""
    return f"p-{order_id}, 4200 cents"


@semel.tool_contract(value="high", ignore=("reason",), approval="required")
def issue_refund(payment_id: str, amount_minor: int, reason: str) -> str:
    """Pay a customer's money back, once a person has agreed."""
    return _do(f"refund of {amount_minor} for {payment_id}")


@semel.tool_contract(ignore=("text",))
def send_mail(to: str, subject: str, text: str) -> str:
    """Write to a customer."""
    return _do(f"mail to {to}: {subject}")


TOOLS = [find_payment, issue_refund, send_mail]

# --- the script -----------------------------------------------------------------------------------

MESSAGE = "My parcel of order 7 arrived broken. I want my money back. Ada"

_REFUND = {"payment_id": "p-7", "amount_minor": 4200}
_MAIL = {"to": "ada@example.org", "subject": "Your refund"}

# What the model says, round by round: calls, or its last words. In the last round but one it is not sure
# whether it has done everything, and does it again in other words, as models do.
ROUNDS: list[list[tuple[str, dict[str, Any]]] | str] = [
    [("find_payment", {"order_id": "7"})],
    [("issue_refund", {**_REFUND, "reason": "arrived broken"})],
    [("send_mail", {**_MAIL, "text": "Dear Ada, your money is on its way."})],
    [
        ("issue_refund", {**_REFUND, "reason": "the parcel was damaged"}),
        ("send_mail", {**_MAIL, "text": "Hello Ada! We have refunded you."}),
    ],
    "Your money is on its way, Ada.",
]


def says(round_: int) -> list[tuple[str, dict[str, Any]]] | str:
    """What the model says after so many messages of its own."""
    return ROUNDS[min(round_, len(ROUNDS) - 1)]


def ask_a_person(question: dict[str, Any]) -> dict[str, Any]:
    """In a real program a message to somebody; here Bob is asked, and agrees."""
    print(f"  asked: may {question['tool']} be called with {question['arguments']}?")
    return {"approved": True, "by": "bob", "reason": "looks right"}


def check(ledger: semel.Ledger) -> None:
    """One refund and one mail, however often the model wanted them; exits with 1 if not."""
    [question] = ledger.approvals.list()
    print(f"{question.status} by {question.decided_by}; {len(done)} effects: {', '.join(done)}")
    if len(done) != 2:
        raise SystemExit(1)
