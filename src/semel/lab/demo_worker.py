"""The demonstration's agent: one attempt to carry out "refund p-1", in a process that may be killed.

    python -m semel.lab.demo_worker naive|keyed|unkeyed PORT STORE_URL

At each point where a crash would matter it says where it is and waits for a line on its standard input: its
parent answers, or kills it. The three ways differ only in what stands between the decision and `_pay`.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import semel
from semel.errors import SemelError

PAYMENT, AMOUNT_MINOR = "p-1", 1_400_000

# This short only so that nobody waits a minute for the demonstration; it is renewed while the tool runs.
_LEASE = "1s"


def _tell(point: str, **facts: Any) -> None:
    print(json.dumps({"at": point, **facts}), flush=True)


def _reach(point: str) -> None:
    """Say where we are; go on when told to."""
    _tell(point)
    if not sys.stdin.readline():
        os._exit(1)  # Whoever started us is gone.


def _pay(payment_id: str, amount_minor: int, key: str | None = None) -> dict[str, Any]:
    body = json.dumps({"payment_id": payment_id, "amount_minor": amount_minor})
    headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
    provider = http.client.HTTPConnection("127.0.0.1", int(sys.argv[2]), timeout=60)
    provider.request("POST", "/refunds", body, headers)
    _reach("sent")
    refund: dict[str, Any] = json.loads(provider.getresponse().read())
    _reach("answered")
    return refund


@semel.tool_contract(
    name="issue_refund", class_="write-non-idempotent", value="high", downstream_window="24h", lease=_LEASE
)
def _refund_keyed(payment_id: str, amount_minor: int, key: semel.Key) -> dict[str, Any]:
    return _pay(payment_id, amount_minor, key)


@semel.tool_contract(name="issue_refund", class_="write-non-idempotent", value="high", lease=_LEASE)
def _refund_unkeyed(payment_id: str, amount_minor: int) -> dict[str, Any]:
    return _pay(payment_id, amount_minor)


_CONTRACTS: dict[str, Callable[..., dict[str, Any]]] = {"keyed": _refund_keyed, "unkeyed": _refund_unkeyed}


def _refund(way: str, url: str) -> dict[str, Any]:
    if way == "naive":
        return _pay(PAYMENT, AMOUNT_MINOR)
    step = {"conversation": "sunday", "step": "refund-1", "principal": "support-bot"}
    with semel.open(url) as ledger, ledger.step(**step):
        return _CONTRACTS[way](PAYMENT, AMOUNT_MINOR)


def main() -> None:
    try:
        made = _refund(sys.argv[1], sys.argv[3])
    except SemelError as refused:
        _tell("refused", code=refused.code)
        return
    _reach("returned")
    _tell("reported", refund_id=made["refund_id"])


if __name__ == "__main__":
    main()
