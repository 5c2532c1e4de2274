"""A bucket of tokens per tenant."""

from __future__ import annotations

import pytest

from semel.flow.problems import Refused
from semel.gateway import ratelimit
from semel.gateway.ratelimit import RateLimit
from semel.testing import FakeClock


def taken(limit: RateLimit, tenant: str = "acme") -> int:
    """How many requests pass before one is refused."""
    for count in range(1000):
        try:
            limit.take(tenant)
        except Refused:
            return count
    return 1000


def test_a_burst_passes_and_then_as_many_as_the_rate_brings() -> None:
    clock = FakeClock()
    limit = RateLimit(2, 5, clock)
    assert taken(limit) == 5
    clock.advance("1s")
    assert taken(limit) == 2
    clock.advance("1h")
    assert taken(limit) == 5


def test_a_refusal_costs_nothing_and_says_when_the_next_token_comes() -> None:
    clock = FakeClock()
    limit = RateLimit(2, 1, clock)
    taken(limit)
    for _ in range(10):
        with pytest.raises(Refused) as refusal:
            limit.take("acme")
    assert (refusal.value.code, refusal.value.retry_after_s) == ("too_many_requests", 0.5)
    clock.advance("500ms")
    assert taken(limit) == 1


def test_tenants_do_not_share_a_bucket() -> None:
    limit = RateLimit(1, 3, FakeClock())
    assert (taken(limit, "acme"), taken(limit, "umbra")) == (3, 3)


def test_without_a_rate_nobody_is_refused() -> None:
    assert taken(RateLimit(0, 0, FakeClock())) == 1000


def test_memory_is_bounded_and_the_quietest_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ratelimit, "_TENANTS_MAX", 10)
    limit = RateLimit(1, 2, FakeClock())
    limit.take("busy")
    for number in range(100):
        limit.take("quiet" + str(number))
        if number == 50:
            limit.take("busy")
    assert len(limit) == 10


def test_a_large_body_costs_more_than_one_and_the_tenant_owes_what_is_missing() -> None:
    clock = FakeClock()
    limit = RateLimit(2, 5, clock)
    limit.take("acme", 9)
    assert taken(limit) == 0
    clock.advance("2s")
    assert taken(limit) == 0
    clock.advance("1s")
    assert taken(limit) == 2
