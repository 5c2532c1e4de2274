"""What the shop does elsewhere: each with a contract, and with the contract's key."""

from __future__ import annotations

import os

import httpx

import semel

# Quick to give up: whoever asks again has the same key.
_http = httpx.Client(base_url=os.environ.get("SHOP_PROVIDER", "http://127.0.0.1:8768"), timeout=2.0)


# A buyer waits for this one: after three tries it is the buyer who asks again.
@semel.tool_contract(value="high", downstream_window="24h", transient=(httpx.TransportError,), attempts=3)
def take_payment(order: str, amount_minor: int, key: semel.Key = semel.filled) -> str:
    """Take the money for an order; gives the payment's id."""
    return _asked("/payments", order, amount_minor, key)


# For this one nobody waits.
@semel.tool_contract(downstream_window="24h", transient=(httpx.TransportError,), attempts=9)
def send_parcel(order: str, key: semel.Key = semel.filled) -> str:
    """Send what was ordered; gives the parcel's id."""
    return _asked("/parcels", order, 0, key)


def _asked(path: str, order: str, amount_minor: int, key: semel.Key) -> str:
    body = {"order": order, "amount_minor": amount_minor}
    answer = _http.post(path, json=body, headers={"Idempotency-Key": key})
    answer.raise_for_status()
    done: str = answer.json()["id"]
    return done
