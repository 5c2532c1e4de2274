"""Commands with everything filled in that a test does not speak of."""

from __future__ import annotations

from typing import Any

from semel.kernel.record import (
    Address,
    Amend,
    CallRequest,
    Claim,
    Look,
    Park,
    Release,
    Renew,
    Resolve,
    Retake,
    Settle,
    State,
)

SECOND = 1_000_000
LEASE = 60 * SECOND
WINDOW = 3_600 * SECOND  # Longer than a lease, so that the two cannot be mistaken for each other.

A, B, C, D = (letter * 16 for letter in (b"A", b"B", b"C", b"D"))

AT = Address("acme", "tool", "key-1")


def asked(token: bytes = A, at: Address = AT, **changes: Any) -> CallRequest:
    """What the holder of `token` asks for; its record id follows from the token and the place."""
    return CallRequest(
        at=at,
        id=f"rec_{token.hex()}_{at.tenant}_{at.scope}_{at.key}",
        tool="issue_refund",
        version="2.1.0",
        fingerprint=b"f" * 32,
        arguments=b'{"amount_minor":1400000}',
        terms='{"on_unknown":"park"}',
        conversation="conv-42",
        step='["refund-1"]',
        principal="support-bot",
        job_id="",
    )._replace(**changes)


def look(at: Address = AT) -> Look:
    return Look(at)


def claim(
    token: bytes = A, at: Address = AT, lease_us: int = LEASE, waiting: bool = False, **changes: Any
) -> Claim:
    return Claim(asked(token, at, **changes), token, lease_us, waiting)


def retake(
    seen: bytes, token: bytes, at: Address = AT, lease_us: int = LEASE, within_us: int | None = None
) -> Retake:
    return Retake(at, seen, token, lease_us, within_us)


def renew(token: bytes = A, at: Address = AT, lease_us: int = LEASE) -> Renew:
    return Renew(at, token, lease_us)


def settle(
    token: bytes = A,
    at: Address = AT,
    state: State = State.DONE,
    outcome: bytes | None = b'{"refund":"r-1"}',
    window_us: int | None = WINDOW,
    by: str = "",
) -> Settle:
    return Settle(at, token, state, outcome, window_us, by)


def park(token: bytes = A, at: Address = AT, note: str = "the connection broke") -> Park:
    return Park(at, token, note)


def release(token: bytes = A, at: Address = AT, window_us: int | None = WINDOW) -> Release:
    return Release(at, token, window_us)


def resolve(
    seen: bytes,
    token: bytes,
    happened: bool,
    at: Address = AT,
    outcome: bytes | None = None,
    window_us: int | None = WINDOW,
    by: str = "ann",
) -> Resolve:
    return Resolve(at, seen, token, happened, outcome, window_us, by)


def amend(
    seen: bytes, token: bytes, at: Address = AT, outcome: bytes = b'{"refund":"r-2"}', by: str = "bob"
) -> Amend:
    return Amend(at, seen, token, outcome, by)
