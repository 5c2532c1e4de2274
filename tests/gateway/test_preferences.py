"""`Prefer` as RFC 7240 has it, and `Retry-After` that is spread."""

from __future__ import annotations

from itertools import pairwise

import pytest

from semel.gateway.preferences import wait_s
from semel.gateway.retry_times import SPREAD_S, TENANTS_MAX, RetryTimes
from semel.testing import FakeClock
from tests.gateway.conftest import Serve, define, limit, refused, start_run
from tests.unit.test_slot_pace import Wavering

WAITS = {
    b"wait=10": 10,
    b"WAIT=10": 10,
    b" wait = 10 ": 10,
    b'wait="10"': 10,
    b"respond-async, wait=10": 10,
    b"wait=10, wait=20": 10,
    b"wait=10; strict; a=b": 10,
    b'note="a, wait=3", wait=10': 10,
    b"wait=30": 30,
    b"wait=31": 30,
    b"wait=" + b"9" * 400: 30,
    b"wait=0": 0,
    b"wait": 0,
    b"wait=": 0,
    b"wait=soon, wait=10": 0,  # the first one counts, and is not understood
    b"wait=-1": 0,
    b"wait=1.5": 0,
    b"wait=10s": 0,
    b'wait="10': 0,
    b"waiting=10": 0,
    b"": 0,
    b'"': 0,
    b"\xff": 0,
    b"wait=10" + b" " * 600: 0,
}


@pytest.mark.parametrize(("value", "seconds"), WAITS.items())
def test_a_preference_is_understood_or_ignored(value: bytes, seconds: int) -> None:
    assert wait_s([value]) == seconds


def test_several_headers_are_one_list() -> None:
    assert wait_s([b"respond-async", b"wait=7"]) == 7


@pytest.mark.parametrize("prefer", ["wait=soon", "wait=0", "respond-async"])
def test_what_is_not_understood_changes_nothing(prefer: str, serve: Serve) -> None:
    client = serve(dev=True).client(X_Tenant_ID="acme", Prefer=prefer)
    define(client)
    limit(client, 1)
    first = start_run(client, key="order-1")
    assert (first.status_code, "preference-applied" in first.headers) == (200, False)
    answer = start_run(client, key="order-2")
    refused(answer, 429, "max_concurrent_runs_reached")
    assert "preference-applied" not in answer.headers


def test_a_longer_wait_than_there_is_is_shortened_and_says_so(serve: Serve) -> None:
    client = serve(dev=True).client(Prefer="wait=3600")
    define(client)
    assert start_run(client).headers["preference-applied"] == "wait=30"


# --- Retry-After ----------------------------------------------------------------------------------------


def test_no_two_refusals_in_a_row_have_the_same_number_or_name_the_same_second() -> None:
    clock = Wavering()
    times = RetryTimes(clock)
    told = []
    for number in range(500):
        told.append((clock.monotonic(), times.seconds("acme", number % 5)))
        times.seconds("other", 1)  # somebody else's refusal in between changes nothing
        clock.advance(f"{number % 7 * 100 + 1}ms")
    for (at, seconds), (later, others) in pairwise(told):
        assert seconds != others
        assert abs(at + seconds - later - others) >= 0.5


def test_it_is_whole_at_least_what_is_wanted_and_not_much_more() -> None:
    times = RetryTimes(Wavering())
    for wanted in (None, 0, 0.01, 1, 1.1, 2.9, 29.5):
        for _ in range(20):
            seconds = times.seconds("acme", wanted)
            assert max(1, wanted or 0) <= seconds <= max(1, (wanted or 0) + 1) + SPREAD_S


def test_memory_is_bounded() -> None:
    times = RetryTimes(FakeClock())
    for number in range(2 * TENANTS_MAX):
        times.seconds(f"t-{number}", 1)
    assert len(times) == TENANTS_MAX


@pytest.mark.parametrize("how", ["atomic", "lock"])
def test_refusals_of_a_full_tenant_are_spread(how: str, serve: Serve) -> None:
    client = serve(dev=True, admission=how).client(X_Tenant_ID="acme")
    define(client)
    limit(client, 1)
    start_run(client, key="first")
    answers = [start_run(client, key=f"order-{number}") for number in range(10)]
    finer = [refused(each, 429, "max_concurrent_runs_reached")["retry_after_s"] for each in answers]
    whole = [int(each.headers["retry-after"]) for each in answers]
    assert all(one != other for one, other in pairwise(whole))
    assert all(one != other for one, other in pairwise(finer))
    assert all(one <= other for one, other in zip(finer, whole, strict=True))
