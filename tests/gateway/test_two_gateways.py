"""Crowds: limits hold exactly and one key is one run, on every store and strategy, through two gateways."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter

import httpx
import pytest

from tests.faults.places import PLACES
from tests.gateway.conftest import define, limit, new_tenant, refused, start_run
from tests.gateway.serving import (
    Gateway,
    Park,
    all_at_once,
    complete,
    crowd,
    one_crowd,
    persistent_start,
    run_ids,
)

STORES = [place.name for place in PLACES]

# The wait is long, so that a busy machine changes no 429 into a 503: what is counted here is exact.
_WAIT = ("--lock-wait=60s", "--lock-ttl=60s")
STRATEGIES = {
    "atomic": ("--admission=atomic",),
    "lock-jitter": ("--admission=lock", "--lock-retry=jitter", *_WAIT),
    "lock-fixed": ("--admission=lock", "--lock-retry=fixed", *_WAIT),
}

# How waiters come back to a lock is the gateway's affair, not the store's: one store is enough for `fixed`.
EVERYWHERE = pytest.mark.parametrize(
    ("store", "strategy"),
    [(store, strategy) for store in STORES for strategy in ("atomic", "lock-jitter")]
    + [("sqlite", "lock-fixed")],
)

SLOTS, CALLERS = 2, 10

# The embedded default is what most people run, and quick: it gets all of its rounds every time.
ROUNDS = {("sqlite", "atomic", 2): 100}
ROUNDS_OTHERWISE, ROUNDS_OF_A_SOAK = 10, 100


def client_of(gateway: Gateway) -> httpx.Client:
    client = gateway.client(X_Tenant_ID=new_tenant())
    define(client)
    return client


def crowds(found: list[Gateway], rounds: int) -> None:
    """So many times: ten at once for two slots are two and eight, and the two that are told so exist."""
    client = client_of(found[0])
    limit(client, SLOTS)
    asyncio.run(_crowds(client, [each.url for each in found], rounds))
    assert len(run_ids(client)) == SLOTS * rounds


async def _crowds(onlooker: httpx.Client, urls: list[str], rounds: int) -> None:
    async with crowd(onlooker.headers["x-tenant-id"]) as client:
        for number in range(rounds):
            keys = [f"{number}-{caller}" for caller in range(CALLERS)]
            answers = await all_at_once(client, urls, keys)
            codes = Counter(answer.status_code for answer in answers)
            assert codes == {200: SLOTS, 429: CALLERS - SLOTS}, [answer.text for answer in answers]
            admitted = {answer.json()["run_id"] for answer in answers if answer.status_code == 200}
            assert set(run_ids(onlooker, status="running")) == admitted
            for run_id in admitted:
                complete(onlooker, run_id)


@pytest.mark.parametrize("processes", [1, 2])
@EVERYWHERE
def test_ten_callers_for_two_slots_are_two_and_eight(
    store: str, strategy: str, processes: int, park: Park
) -> None:
    crowds(
        park.some(processes, store, *STRATEGIES[strategy]),
        ROUNDS.get((store, strategy, processes), ROUNDS_OTHERWISE),
    )


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("store", STORES)
def test_ten_callers_for_two_slots_are_two_and_eight_a_hundred_times(
    store: str, strategy: str, processes: int, park: Park
) -> None:
    crowds(park.some(processes, store, *STRATEGIES[strategy]), ROUNDS_OF_A_SOAK)


@pytest.mark.parametrize("store", STORES)
def test_two_gateways_with_different_strategies_keep_one_limit(store: str, park: Park) -> None:
    """As while a fleet is switched from one to the other."""
    crowds([park.one(store, *STRATEGIES[strategy]) for strategy in ("atomic", "lock-jitter")], 5)


@EVERYWHERE
def test_twenty_callers_with_one_key_are_one_run(store: str, strategy: str, park: Park) -> None:
    found = park.some(2, store, *STRATEGIES[strategy])
    for _ in range(5):
        client = client_of(found[0])
        limit(client, 1)
        answers = one_crowd([each.url for each in found], ["one-key"] * 20, client.headers["x-tenant-id"])
        first = start_run(client, key="one-key")
        assert first.status_code == 200, first.text
        assert run_ids(client) == [first.json()["run_id"]]
        admitted = [answer for answer in answers if answer.status_code == 200]
        assert {answer.content for answer in admitted} == {first.content}
        # All but one of them were told that this is a repetition.
        assert [answer.headers.get("idempotent-replayed") for answer in admitted].count(None) == 1
        for answer in answers:
            if answer.status_code != 200:
                assert strategy != "atomic", "only the lock leaves anybody in between"
                refused(answer, 409, "idempotency_in_flight")


@EVERYWHERE
def test_a_crowd_that_retries_gets_through_with_the_keys_that_were_refused(
    store: str, strategy: str, park: Park
) -> None:
    """429, then a slot, then the same key, through the other gateway; in the end each key has one run."""
    found = park.some(2, store, *STRATEGIES[strategy])
    client = client_of(found[0])
    limit(client, SLOTS)
    tenant = client.headers["x-tenant-id"]
    keys = [uuid.uuid4().hex for _ in range(CALLERS)]
    runs: dict[str, str] = {}
    for turn in range(CALLERS):
        left = [key for key in keys if key not in runs]
        urls = [each.url for each in (found if turn % 2 else reversed(found))]
        for key, answer in zip(left, one_crowd(urls, left, tenant), strict=True):
            if answer.status_code == 200:
                assert "idempotent-replayed" not in answer.headers
                runs[key] = answer.json()["run_id"]
                complete(client, runs[key])
        if len(runs) == CALLERS:
            break
    assert sorted(run_ids(client)) == sorted(runs.values())
    for key, run_id in runs.items():
        assert persistent_start(client, key).json()["run_id"] == run_id


@pytest.mark.parametrize("store", STORES)
def test_what_one_gateway_defines_deletes_or_limits_holds_on_the_other(store: str, park: Park) -> None:
    """Nobody is admitted by what a gateway remembers, once the store says otherwise."""
    one, two = park.some(2, store, *STRATEGIES["atomic"])
    client = client_of(one)
    elsewhere = two.client(X_Tenant_ID=client.headers["x-tenant-id"])
    limit(client, 1)
    first = start_run(elsewhere, key="1").json()["run_id"]
    limit(client, 2)
    assert start_run(elsewhere, key="2").status_code == 200
    complete(elsewhere, first)
    limit(client, 1)
    refused(start_run(elsewhere, key="3"), 429, "max_concurrent_runs_reached")
    define(client, input_schema={"type": "object", "required": ["order"]})
    refused(start_run(elsewhere, {}, "4"), 400, "input_invalid")
    assert client.delete("/api/v1/workflows/hello").status_code == 200
    refused(start_run(elsewhere, {"order": 1}, "5"), 404, "workflow_not_found")
    define(client)
    limit(client, 5)
    assert start_run(elsewhere, {}, "5").status_code == 200
