"""The window of an entity: bounded by default; what it sees is told to Temporal and to `semel windows`."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from temporalio.client import Client
from temporalio.runtime import BufferedMetricUpdate, MetricBuffer, Runtime, TelemetryConfig

import semel
from examples.rewards.entity import Rewards
from examples.rewards.worker import worker
from semel.integrations.temporal import ENTITY_KEYS_MAX, EntityWindow
from semel.lab.runbooks.entity_traffic import PAYLOAD_BYTES_MAX, written_bytes
from semel.windows.advice import advise
from semel.windows.age_counters import ENTITY
from tests.temporal.conftest import PATIENCE_S, Shop, events

MONDAY = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


def test_the_state_of_an_entity_stays_below_half_a_payload_whatever_is_sent() -> None:
    window = EntityWindow()
    for number in range(ENTITY_KEYS_MAX + 500):
        # The longest name that a key has in the state is the digest of a long one.
        window.push(f"{'long' * 40}-{number}", MONDAY + number * timedelta(seconds=20))
    assert (len(window), window.stats().evicted_early) == (ENTITY_KEYS_MAX, 500)
    assert written_bytes(window.to_state()) < PAYLOAD_BYTES_MAX // 2
    since = window.covered_since
    assert since is not None
    assert since > MONDAY


def test_the_bound_is_a_default_and_a_state_keeps_its_own() -> None:
    assert EntityWindow().max_keys == ENTITY_KEYS_MAX
    unbounded = EntityWindow(max_keys=None)
    assert unbounded.max_keys is None
    assert EntityWindow.from_state(unbounded.to_state()).max_keys is None
    assert EntityWindow.from_state(EntityWindow("1d", 7).to_state()).max_keys == 7


def test_duplicates_of_entities_are_metrics_of_the_workflow_and_in_semel_windows(shop: Shop) -> None:
    buffer = MetricBuffer(10_000)
    runtime = Runtime(telemetry=TelemetryConfig(metrics=buffer))

    async def story() -> None:
        shop.client = await Client.connect(shop.address, runtime=runtime)
        handle = await shop.enrol(events_per_run=2)
        with semel.open(shop.store) as ledger, ThreadPoolExecutor(4) as threads:
            async with worker(shop.client, shop.queue, ledger, threads):
                for number in (1, 2, 1, 2, 1):
                    await handle.signal(Rewards.earn, events(number))
                    await handle.query(Rewards.status)
                account = await shop.part(handle)
        assert (account.events, account.duplicates) == (2, 3)

    asyncio.run(asyncio.wait_for(story(), PATIENCE_S))
    told = [each for each in buffer.retrieve_updates() if each.metric.name.startswith("semel_window")]
    assert counted(told, "semel_window_pushes") == 5
    assert counted(told, "semel_window_duplicates") == 3
    ages = [each for each in told if each.metric.name == "semel_window_duplicate_age_seconds"]
    assert len(ages) == 3
    assert {each.attributes["workflow_type"] for each in told} == {"Rewards"}
    with semel.open(shop.store) as ledger:
        [advice] = advise(ledger.store, ledger.tenant, "Rewards")
    assert (advice.kind, advice.ages.retries, advice.window_words) == (ENTITY, 3, "3d")


def counted(told: list[BufferedMetricUpdate], name: str) -> float:
    return sum(each.value for each in told if each.metric.name == name)
