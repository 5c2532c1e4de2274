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
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

import semel
from semel.cli import main
from semel.flow.bus.base import BusUnavailable
from semel.flow.bus.local import LocalBus
from semel.flow.document_store import DocumentStore
from semel.flow.lock import Lock, LockListener, LockPolicy
from semel.flow.model import Message
from semel.flow.problems import Refused
from semel.gateway.background import merge_ages, read_gauges
from semel.gateway.metrics import DOUBTS_MAX, OTHER, TENANTS_MAX, Metrics
from semel.gateway.server import embedded
from semel.gateway.settings import GatewaySettings
from semel.kernel.clock import SYSTEM
from semel.kernel.record import Address
from semel.stores.base import Store
from semel.stores.memory import MemoryStore
from semel.testing import FakeClock, FlakyStore
from semel.windows.advice import advise
from semel.windows.age_counters import KEY, AgeCounters, Subject, read_ages
from semel.windows.ages import Ages
from tests.commands import AT, A, B, claim, park, settle
from tests.gateway.conftest import Serve, define, start_run
from tests.gateway.serving import until

OPS = Path(__file__).resolve().parent.parent.parent / "ops"

DAY_US = 86_400_000_000

# The interface's list, written down once more.
PROMISED = {
    "semel_claims_total": {"tool", "answer"},
    "semel_retry_age_seconds": {"tool"},
    "semel_run_starts_total": {"outcome"},
    "semel_admission_wait_seconds": {"endpoint", "tenant", "outcome"},
    "semel_idempotency_cleanup_failures_total": {"context"},
    "semel_replays_total": {"endpoint"},
    "semel_conflicts_total": {"endpoint", "code"},
    "semel_in_doubt_records": {"tool", "tenant"},
    "semel_outbox_unpublished": set(),
    "semel_admission_lock_wait_seconds": {"outcome"},
    "semel_admission_lock_attempts_total": {"outcome"},
}


def busy() -> Metrics:
    """Metrics to which everything has happened once."""
    metrics = Metrics()
    conflict = Refused("idempotency_key_reused")
    metrics.answered("start_run", 422, replayed=True, problem=conflict)
    metrics.claimed("run", replayed=False, problem=None)
    metrics.retried("run", 5)
    metrics.run_started(replayed=False, problem=None)
    metrics.admission_waited("run", "acme", "admitted", 0.1)
    metrics.cleanup_failed("count_failed")
    metrics.in_doubt({("acme", "pay"): 1})
    metrics.unpublished(2)
    metrics.ready(True)
    lock = metrics.lock()
    lock.looked("busy")
    lock.waited("taken", 0.1)
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


def test_what_never_came_to_admission_did_not_wait_for_it(serve: Serve) -> None:
    client = serve(dev=True).client()
    for headers in ({"Idempotency-Key": ""}, {"X-Tenant-ID": "no name"}):
        assert client.post("/api/v1/workflows/hello/runs", json={}, headers=headers).status_code >= 400
    assert client.post("/api/v1/workflows/hello/runs", content=b"no JSON").status_code == 400
    assert value(client, "semel_admission_wait_seconds_count") == 0


def test_every_context_of_a_failed_cleanup_stands_at_zero_from_the_start(serve: Serve) -> None:
    text = serve(dev=True, admission="lock").client().get("/metrics").text
    for context in ("gate_unavailable", "request_refused", "count_failed", "limit_reached", "create_failed"):
        assert f'semel_idempotency_cleanup_failures_total{{context="{context}"}} 0.0' in text


def test_the_lock_is_measured_by_itself_where_there_is_one(serve: Serve) -> None:
    assert "semel_admission_lock" not in serve(dev=True).client().get("/metrics").text
    client = serve(dev=True, admission="lock", lock_wait_us=1_000, lock_ttl_us=600_000_000).client()
    define(client)
    looks, waits = "semel_admission_lock_attempts_total", "semel_admission_lock_wait_seconds_count"
    for outcome in ("taken", "busy", "failed"):
        assert f'{looks}{{outcome="{outcome}"}} 0.0' in client.get("/metrics").text
    assert start_run(client, key="order-1").status_code == 200
    assert start_run(client, key="order-1").status_code == 200  # a replay needs no lock
    start_run(client, name="nowhere")  # nor does a refusal
    assert (value(client, looks, outcome="taken"), value(client, waits, outcome="taken")) == (1, 1)


def test_a_lock_that_is_not_free_in_time_is_counted_as_given_up() -> None:
    async def wait() -> list[tuple[str, float] | str]:
        store = MemoryStore(clock=FakeClock())
        heard: list[tuple[str, float] | str] = []

        class Heard(LockListener):
            def looked(self, outcome: str) -> None:
                heard.append(outcome)

            def waited(self, outcome: str, seconds: float) -> None:
                heard.append((outcome, round(seconds, 3)))

        policy = LockPolicy(retry="fixed", wait_us=20_000)
        one, other = (Lock(DocumentStore(store), policy, Heard()) for _ in range(2))
        await one.take("acme")
        with pytest.raises(Refused, match="not free in time"):
            await other.take("acme")
        return heard

    heard = asyncio.run(wait())
    assert heard == ["taken", ("taken", 0.0), "busy", "busy", "busy", ("given_up", 0.02)]


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
    waited = {
        outcome: value(client, "semel_admission_wait_seconds_count", endpoint="start_run", outcome=outcome)
        for outcome in ("admitted", "replayed", "refused")
    }
    assert waited == {"admitted": 1, "replayed": 1, "refused": 2}
    assert value(client, "semel_requests_total", endpoint="start_run", status="200") == 2
    while not value(client, "semel_retry_age_seconds_count", tool="run"):
        pass  # it is looked up beside the answer
    assert "order-1" not in client.get("/metrics").text


def test_every_endpoint_with_replays_or_conflicts_has_a_total_to_divide_by(serve: Serve) -> None:
    client = serve(dev=True).client()
    define(client)
    for number in (1, 1, 2):
        start_run(client, {"n": number}, "order-1")
    assert value(client, "semel_replays_total", endpoint="start_run") == 1
    assert value(client, "semel_conflicts_total", endpoint="start_run") == 1
    requests = [value(client, "semel_requests_total", endpoint="start_run", status=s) for s in ("200", "422")]
    assert sum(requests) == 3


def test_ages_of_keys_that_came_again_are_in_the_store_when_the_gateway_has_stopped(store: Store) -> None:
    settings = GatewaySettings(url="memory://", dev=True, run_key_window_us=7 * DAY_US)
    store.close, close = (lambda: None), store.close  # type: ignore[method-assign]
    with embedded(settings, store) as (url, _), httpx.Client(base_url=url) as client:
        define(client)
        for _ in range(2):
            start_run(client, key="order-1")
        while not value(client, "semel_retry_age_seconds_count", tool="run"):
            pass  # it is looked up beside the answer
    [page] = read_ages(store, "default")
    assert (page.kind, page.name, page.ages.retries) == (KEY, "run", 1)
    assert page.ages.window_us == 7 * DAY_US
    [advice] = advise(store, "default")
    assert advice.stock is not None
    assert advice.stock.kept(7 * DAY_US) == 7  # one key in less than a day
    close()


def test_the_present_window_of_keys_is_what_the_newest_key_says(serve: Serve, store: Store) -> None:
    ages = Ages()
    ages.met([1], 0, DAY_US)  # under the window that the gateway had before
    book = AgeCounters()
    book.add(Subject("default", KEY, "run"), ages)
    assert book.merge(store)
    client = serve(store, dev=True, run_key_window_us=7 * DAY_US).client()
    define(client)
    start_run(client, key="order-1")
    [advice] = advise(store, "default")
    assert advice.window_us == 7 * DAY_US


def test_ages_wait_for_a_store_that_is_away(serve: Serve) -> None:
    store = FlakyStore(MemoryStore())
    served = serve(store, dev=True)
    book = served.services.metrics.ages
    ages = Ages()
    ages.saw([1], 0)
    book.add(Subject("acme", KEY, "run"), ages)
    store.down = True
    asyncio.run(merge_ages(served.services))
    store.down = False
    asyncio.run(merge_ages(served.services))
    assert [page.ages.retries for page in read_ages(store, "acme")] == [1]


class Broken(FlakyStore):
    """A store that fails in a way that nobody foresaw."""

    def before(self, name: str) -> None:
        if self.down:
            raise ZeroDivisionError


def test_a_gateway_stops_also_if_its_ages_cannot_be_merged() -> None:
    store = Broken(MemoryStore())
    with embedded(GatewaySettings(url="memory://", dev=True), store) as (_, services):
        ages = Ages()
        ages.saw([1], 0)
        services.metrics.ages.add(Subject("acme", KEY, "run"), ages)
        store.down = True
    store.down = False
    assert read_ages(store, "acme") == []


def test_gauges_say_what_waits_for_people_and_for_the_bus(serve: Serve) -> None:
    store = MemoryStore()
    served = serve(store, dev=True)
    store.perform(claim(at=AT))
    store.perform(park())
    asyncio.run(read_gauges(served.services))
    client = served.client()
    of_acme = {"tenant": "acme", "tool": "issue_refund"}
    assert value(client, "semel_in_doubt_records", **of_acme) == 1
    assert value(client, "semel_ready") == 1
    store.perform(settle(A))
    store.perform(claim(B, at=Address("globex", "tool", "k"), tool="pay"))
    store.perform(park(B, at=Address("globex", "tool", "k")))
    asyncio.run(read_gauges(served.services))
    assert value(client, "semel_in_doubt_records", **of_acme) == 0
    assert value(client, "semel_in_doubt_records", tenant="globex", tool="pay") == 1


def test_the_labels_of_what_is_in_doubt_are_bounded_and_nothing_is_lost_by_that() -> None:
    metrics = Metrics()
    metrics.in_doubt({(f"tenant-{number % 150}", f"tool-{number}"): 1 for number in range(2 * DOUBTS_MAX)})
    told = [sample for family in metrics.registry.collect() for sample in family.samples]
    doubts = [sample for sample in told if sample.name == "semel_in_doubt_records"]
    assert len(doubts) <= DOUBTS_MAX + 1
    assert sum(sample.value for sample in doubts) == 2 * DOUBTS_MAX
    assert len({sample.labels["tenant"] for sample in doubts}) <= TENANTS_MAX + 1


def test_the_command_of_the_alert_finds_what_it_is_about_in_any_tenant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEMEL_URL", f"sqlite:///{tmp_path}/semel.db")
    with semel.open(tenant="globex") as ledger:
        ledger.store.perform(claim(A, at=Address("globex", "tool", "k")))
        ledger.store.perform(park(A, at=Address("globex", "tool", "k")))
    [about] = [rule for rule in alerts() if rule["alert"] == "SemelInDoubtRecords"]
    [command] = re.findall(r"`semel (records list [^`]*)`", about["annotations"]["description"])
    words = command.replace("--url STORE", "").split()
    listed = CliRunner().invoke(main, words)
    assert (listed.exit_code, "globex" in listed.stdout) == (0, True)


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

    def unpublished() -> float:
        asyncio.run(read_gauges(served.services))
        return value(client, "semel_outbox_unpublished")

    assert until(unpublished, "the message has waited for long enough") > 0
    assert value(client, "semel_ready") == 0
    unready = client.get("/readyz")
    assert (unready.status_code, len(unready.json()["reasons"])) == (503, 1)


def test_gauges_of_a_store_that_is_down_stay_and_readiness_does_not(serve: Serve) -> None:
    store = FlakyStore(MemoryStore())
    served = serve(store, dev=True)
    served.services.metrics.in_doubt({("acme", "pay"): 7})
    store.down = True
    asyncio.run(read_gauges(served.services))
    assert value(served.client(), "semel_in_doubt_records", tenant="acme", tool="pay") == 7
    assert value(served.client(), "semel_ready") == 0


# --- what operators get ---------------------------------------------------------------------------

NAMES = re.compile(r"\bsemel_\w+")


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((OPS / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def alert(name: str) -> str:
    """What the alert asks for."""
    [expr] = [rule["expr"] for rule in alerts() if rule["alert"] == name]
    return str(expr)


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
    names = [rule["alert"] for rule in alerts()]
    assert len(names) == len(set(names)) >= 6
    for rule in alerts():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert {"summary", "description"} <= rule["annotations"].keys()


def test_recorded_rates_are_those_that_alerts_use_and_have_an_endpoint() -> None:
    recorded = {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}
    used = {name for rule in alerts() for name in re.findall(r"\bsemel:[\w:]+", rule["expr"])}
    assert used <= recorded.keys()
    assert {"semel:replays:ratio_5m", "semel:conflicts:ratio_5m"} <= recorded.keys()
    for expr in recorded.values():
        # Each side by endpoint, and the requests of the same time below the line.
        [span] = set(re.findall(r"\[(\w+)\]", expr))
        assert expr.count("sum by (endpoint)") == expr.count("sum") == 3
        assert expr.endswith(f"/ sum by (endpoint) (rate(semel_requests_total[{span}]))")


def test_a_jump_of_conflicts_is_measured_against_the_past_of_the_same_endpoint() -> None:
    expr = alert("SemelConflictsJump")
    assert "semel:conflicts:ratio_5m <= 3 * semel:conflicts:ratio_1h offset 15m" in expr
    assert re.search(r"semel:conflicts:ratio_5m > 0\.\d+", expr)  # a floor


def test_the_dashboard_shows_replay_and_conflict_rates_of_each_endpoint() -> None:
    for name in ("semel_replays_total", "semel_conflicts_total"):
        shown = [target["expr"] for panel in panels() for target in panel["targets"]]
        per = "sum by (endpoint) (rate({}[$__rate_interval]))"
        assert f"{per.format(name)} / {per.format('semel_requests_total')}" in shown


def test_parentheses_of_every_query_close() -> None:
    for query in queries():
        depth = 0
        for character in query:
            depth += {"(": 1, ")": -1}.get(character, 0)
            assert depth >= 0, query
        assert depth == 0, query


def test_panels_do_not_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


def test_the_dashboard_has_a_place_and_a_name_for_every_panel() -> None:
    ids = [panel["id"] for panel in panels()]
    assert len(ids) == len(set(ids))
    assert all(panel["title"] and panel["gridPos"] for panel in panels())
