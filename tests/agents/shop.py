"""The tools of a support agent, with a contract and without.

A tool finds its provider by the process: a child of the server does one job.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import semel
from tests.agents.provider import Provider

provider = Provider(Path())


def _refund(payment_id: str, amount_minor: int, key: str = "") -> str:
    answer = provider.refund(payment_id, amount_minor, key)
    if provider.fails_once():
        raise Unsure("the provider did not answer")
    return answer


class Unsure(TimeoutError):
    """The refund may have happened."""


def plain_refund(payment_id: str, amount_minor: int, reason: str) -> str:
    """Pay money back."""
    return _refund(payment_id, amount_minor)


def plain_look(payment_id: str) -> str:
    """Look up a payment."""
    return provider.look(payment_id)


@semel.tool_contract(ignore=("reason",))
def issue_refund(payment_id: str, amount_minor: int, reason: str) -> str:
    """Pay money back."""
    return _refund(payment_id, amount_minor)


@semel.tool_contract(ignore=("reason",))
async def async_refund(payment_id: str, amount_minor: int, reason: str) -> str:
    """Pay money back."""
    return _refund(payment_id, amount_minor)


@semel.tool_contract(ignore=("reason",), downstream_window="1h")
def keyed_refund(payment_id: str, amount_minor: int, reason: str, key: semel.Key = semel.filled) -> str:
    """Pay money back; the provider knows the key."""
    return _refund(payment_id, amount_minor, key)


@semel.tool_contract(ignore=("reason",), in_flight="refuse")
def busy_refund(payment_id: str, amount_minor: int, reason: str) -> str:
    """Pay money back; a second caller is refused."""
    return _refund(payment_id, amount_minor)


@semel.tool_contract(ignore=("reason",), approval="required")
def asked_refund(payment_id: str, amount_minor: int, reason: str) -> str:
    """Pay money back, if a person agrees."""
    return _refund(payment_id, amount_minor)


@semel.tool_contract(ignore=("reason",), approval="required", downstream_window="1h")
def asked_keyed_refund(payment_id: str, amount_minor: int, reason: str, key: semel.Key = semel.filled) -> str:
    """Pay money back, if a person agrees; the provider knows the key."""
    return _refund(payment_id, amount_minor, key)


@semel.tool_contract(ignore=("reason",))
def broken_refund(payment_id: str, amount_minor: int, reason: str) -> str:
    """Pay money back, which does not work."""
    _refund(payment_id, amount_minor)
    raise ValueError("the till is closed")


class CardGone(Exception):
    """An answer of the tool's own."""


@semel.tool_contract(ignore=("reason",), raises=(CardGone,))
def declined_refund(payment_id: str, amount_minor: int, reason: str) -> str:
    """Pay money back to a card that is no more."""
    _refund(payment_id, amount_minor)
    raise CardGone("the card is gone")


@semel.tool_contract(ignore=("reason",), scopes={"payments"})
def scoped_refund(payment_id: str, amount_minor: int, reason: str) -> str:
    """Pay money back; not everybody may."""
    return _refund(payment_id, amount_minor)


def tools(names: tuple[str, ...], guarded: bool = True) -> list[Callable[..., Any]]:
    """The tools of these names; for the control the functions without their contracts."""
    chosen = [globals()[name] for name in names]
    return chosen if guarded else [_bare(each) for each in chosen]


def _bare(tool: Any) -> Callable[..., Any]:
    """What the program would be without Semel: the same name, the same effect, no contract."""
    contract = getattr(tool, "contract", None)
    if contract is None:
        return tool  # type: ignore[no-any-return]

    def bare(payment_id: str, amount_minor: int, reason: str) -> str:
        """Pay money back."""
        return _refund(payment_id, amount_minor)

    bare.__name__ = bare.__qualname__ = contract.name
    return bare
