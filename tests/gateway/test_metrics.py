"""What is counted, under which names; and that rules and dashboard name nothing else."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client.parser import text_string_to_metric_families

from semel.bus.base import BusUnavailable
from semel.bus.local import LocalBus
from semel.clock import SYSTEM
from semel.flow.model import Message
from semel.flow.problems import Problem
from semel.gateway.metrics import OTHER, TENANTS_MAX, Metrics
from semel.gateway.upkeep import read_gauges
from semel.stores.memory import MemoryStore
from semel.testing import FlakyStore
from tests.commands import AT, claim, park
from tests.gateway.conftest import Serve, define, start_run

OPS = Path(__file__).resolve().parent.parent.parent / "ops"

# The interface's list, written down once more.
PROMISED = {
    "semel_claims_total": {"tool", "answer"},
    "semel_retry_age_seconds": {"tool"},
    "semel_run_starts_total": {"outcome"},
    "semel_admission_wait_seconds": {"endpoint", "tenant"},
    "semel_idempotency_cleanup_failures_total": {"context"},
    "semel_replays_total": {"endpoint"},
    "semel_conflicts_total": {"endpoint", "code"},
    "semel_in_doubt_records": set(),
    "semel_outbox_unpublished": set(),
}


def busy() -> Metrics:
    """Metrics to which everything has happened once."""
    metrics = Metrics()
    conflict = Problem("idempotency_key_reused")
    metrics.answered("start_run", 422, replayed=True, problem=conflict)
    metrics.claimed("run", replayed=False, problem=None)
    metrics.retried("run", 5)
    metrics.run_started(replayed=False, problem=None)
    metrics.admission_waited("start_run", "acme", 0.1)
    metrics.cleanup_failed("count_failed")
    metrics.in_doubt(1)
    metrics.unpublished(2)
    metrics.ready(True)
    return metrics


def samples(text: str) -> dict[str, set[str]]:
    """Each sample's name with its labels."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = set(sample.labels)
    return found


def value(client: httpx.Client, name: str, **labels: str) -> float:
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    return 0.0


@pytest.mark.parametrize(("name", "labels"), PROMISED.items())
def test_every_promised_metric_is_there_with_exactly_its_labels(name: str, labels: set[str]) -> None:
    found = samples(busy().text().decode())
    if name.endswith("_seconds"):
        assert (found[f"{name}_count"], found[f"{name}_bucket"]) == (labels, labels | {"le"})
    else:
        assert found[name] == labels


def test_tenants_beyond_the_first_hundred_share_a_label() -> None:
    metrics = Metrics()
    labels = [metrics.tenant_label(f"t-{number}") for number in range(TENANTS_MAX + 50)]
    assert labels[TENANTS_MAX:] == [OTHER] * 50
    assert metrics.tenant_label("t-0") == "t-0"


def test_two_gateways_in_one_process_count_apart() -> None:
    assert "semel_run_starts_total{" in busy().text().decode()
    assert "semel_run_starts_total{" not in Metrics().text().decode()


def test_starts_replays_and_conflicts_are_counted_by_what_became_of_them(serve: Serve) -> None:
    client = serve(dev=True).client()
    define(client)
    start_run(client, {"n": 1}, "order-1")
    start_run(client, {"n": 1}, "order-1")
    start_run(client, {"n": 2}, "order-1")
    start_run(client, name="nowhere")
    for outcome in ("admitted", "replayed", "idempotency_key_reused", "workflow_not_found"):
        assert value(client, "semel_run_starts_total", outcome=outcome) == 1
    assert value(client, "semel_claims_total", tool="run", answer="started") == 1
    assert value(client, "semel_claims_total", tool="run", answer="replayed") == 1
    assert value(client, "semel_replays_total", endpoint="start_run") == 1
    code = "idempotency_key_reused"
    assert value(client, "semel_conflicts_total", endpoint="start_run", code=code) == 1
    assert value(client, "semel_admission_wait_seconds_count", endpoint="start_run", tenant="default") == 4
    assert value(client, "semel_requests_total", endpoint="start_run", status="200") == 2
    while not value(client, "semel_retry_age_seconds_count", tool="run"):
        pass  # it is looked up beside the answer
    assert "order-1" not in client.get("/metrics").text


def test_gauges_say_what_waits_for_people_and_for_the_bus(serve: Serve) -> None:
    store = MemoryStore()
    served = serve(store, dev=True)
    store.perform(claim(at=AT))
    store.perform(park())
    asyncio.run(read_gauges(served.services))
    client = served.client()
    assert value(client, "semel_in_doubt_records") == 1
    assert value(client, "semel_ready") == 1


class ClosedBus(LocalBus):
    """A bus that takes nothing."""

    healthy = False

    async def publish(self, message: Message) -> None:
        raise BusUnavailable


def test_what_the_bus_does_not_take_waits_and_is_counted_and_runs_start_all_the_same(serve: Serve) -> None:
    served = serve(bus=ClosedBus(SYSTEM), dev=True)
    client = served.client()
    define(client)
    assert start_run(client).status_code == 200
    asyncio.run(read_gauges(served.services))
    assert value(client, "semel_outbox_unpublished") > 0
    assert value(client, "semel_ready") == 0
    unready = client.get("/readyz")
    assert (unready.status_code, len(unready.json()["reasons"])) == (503, 1)


def test_gauges_of_a_store_that_is_down_stay_and_readiness_does_not(serve: Serve) -> None:
    store = FlakyStore(MemoryStore())
    served = serve(store, dev=True)
    served.services.metrics.in_doubt(7)
    store.down = True
    asyncio.run(read_gauges(served.services))
    assert value(served.client(), "semel_in_doubt_records") == 7
    assert value(served.client(), "semel_ready") == 0


# --- what operators get ---------------------------------------------------------------------------

NAMES = re.compile(r"\bsemel_\w+")


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((OPS / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    board = json.loads((OPS / "grafana.json").read_text(encoding="utf-8"))
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def queries() -> list[str]:
    shown = [target["expr"] for panel in panels() for target in panel["targets"]]
    return shown + [rule["expr"] for rule in rules()]


def test_rules_and_dashboard_name_only_metrics_that_exist() -> None:
    known = samples(busy().text().decode()).keys()
    named = {name for query in queries() for name in NAMES.findall(query)}
    assert named - known == set()
    # And each promised one is looked at somewhere.
    seen = {name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for name in named}
    assert PROMISED.keys() - seen == set()


def test_labels_in_rules_and_dashboard_are_those_of_their_metrics() -> None:
    known = samples(busy().text().decode())
    for query in queries():
        for name, selector in re.findall(r"(semel_\w+)\{([^}]*)\}", query):
            used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))
            assert used <= known[name] | {"job", "instance"}, query


def test_every_alert_says_how_bad_it_is_and_what_to_do() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) >= 6
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert {"summary", "description"} <= rule["annotations"].keys()


def test_the_dashboard_has_a_place_and_a_name_for_every_panel() -> None:
    ids = [panel["id"] for panel in panels()]
    assert len(ids) == len(set(ids))
    assert all(panel["title"] and panel["gridPos"] for panel in panels())
