"""The page about scale says what was measured and what the simulation makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import scale, scale_costs
from bench.queueing import SimulatedWait
from bench.scale import SHARES, StoreLayout, knee
from bench.scale_costs import StoreCost, measured
from tests.bench.test_servers import need, open_to_all

COST = StoreCost("redis", 1_000, 800, 100, 120, 40, 60, 9_000, 2)


@pytest.mark.full  # the simulation takes seconds
def test_page_and_picture_are_made_of_the_costs_beside_them() -> None:
    text, picture = scale.tables(json.loads(scale.JSON.read_text(encoding="utf-8")))
    assert f"<!-- scale -->\n\n{text}\n\n<!-- /scale -->" in scale.PAGE.read_text(encoding="utf-8")
    assert scale.PICTURE.read_text(encoding="utf-8") == picture


@pytest.mark.full
@pytest.mark.parametrize("store", ["sqlite", "redis", "postgres"])
def test_a_cost_is_measured_on_a_store_with_that_history(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if store != "sqlite":
        need(store)
    monkeypatch.setattr(scale_costs, "CALLS", scale_costs.ROUNDS * scale_costs.TASKS)
    with open_to_all() as place:
        cost = measured(store, 500, str(place))
        assert list(place.iterdir()) == []
    assert (cost.store, cost.records) == (store, 500)
    assert 200 < cost.bytes_per_record < 20_000
    assert 50 < cost.event_bytes < cost.bytes_per_record
    assert cost.caller_us > 0
    assert cost.best_per_s > 0
    assert (cost.connections > 0) == (store != "sqlite")


def test_a_new_cost_replaces_the_one_of_the_same_store_and_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale, "JSON", tmp_path / "scale.json")
    for cost in (COST, COST._replace(records=9), COST._replace(server_us=7), COST._replace(store="sqlite")):
        scale.keep(cost, {"cores": "2"})
    kept = json.loads(scale.JSON.read_text(encoding="utf-8"))["costs"]
    assert [(one["store"], one["records"], one["server_us"]) for one in kept] == [
        ("sqlite", 1_000, 100),
        ("redis", 9, 100),
        ("redis", 1_000, 7),
    ]


def test_the_knee_is_where_calls_take_twice_as_long_as_at_an_idle_store() -> None:
    layout = StoreLayout("one", 1, 0.001)
    assert layout.calls_per_s_max == 500
    seen = [SimulatedWait(1, 0.0, 0.0, 1.0 if share <= 0.7 else 2.1, share) for share in SHARES]
    assert SHARES[knee(seen)] == 0.7
    assert StoreLayout("four", 8, 0.001, shards=4).calls_per_s_max == 16_000
