"""The application is killed in the middle, its store goes away, and people settle what nobody knows."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import semel
from semel.kernel.record import State
from tests.edge.serving import ShopProcess, Shops
from tests.edge.test_rows import is_replay, problem
from tests.faults.places import PLACES, SQLITE, Place
from tests.gateway.serving import Gateway, Gateways, gateways, until
from tests.gateway.serving import semel as command
from tests.postgres_server import PostgresServer
from tests.redis_server import DURABLE, RedisServer


# Each starts processes of its own; that both frameworks meet the same middleware on every store is what
# test_rows.py shows.
@pytest.fixture(
    params=[
        *(("fastapi", place) for place in PLACES),
        pytest.param(("django", SQLITE), marks=pytest.mark.full),
    ],
    ids=lambda shop: f"{shop[0]}-{shop[1].name}",
)
def shop_on_store(request: pytest.FixtureRequest) -> tuple[str, Place]:
    chosen: tuple[str, Place] = request.param
    return chosen


@pytest.fixture
def framework(shop_on_store: tuple[str, Place]) -> str:
    return shop_on_store[0]


@pytest.fixture
def url(shop_on_store: tuple[str, Place], tmp_path: Path) -> str:
    return shop_on_store[1].url(tmp_path)


def killed_in_the_middle(start: Shops, framework: str, url: str, key: str, what: str) -> None:
    """A shop that dies while its handler runs; the client sees a broken connection."""
    shop = start(framework, url)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(shop.post, "/slow", what, key=key)
        shop.until_effect(what)
        shop.kill()
        with pytest.raises(httpx.TransportError):
            asking.result()


def test_a_handler_that_died_in_the_middle_is_in_doubt_at_once(
    framework: str, url: str, start: Shops, key: str, what: str
) -> None:
    killed_in_the_middle(start, framework, url, key, what)
    shop = start(framework, url)
    body = problem(shop.post("/slow", what, key=key), 409, "outcome_unknown")
    assert shop.effects(what) == 1
    with semel.open(url) as ledger:
        record = ledger.records.get(body["record_id"])
        assert (record.state, record.request.tool) == (State.IN_DOUBT, "POST /slow")


def test_a_handler_that_died_after_its_effect_is_in_doubt(
    framework: str, url: str, start: Shops, key: str
) -> None:
    what = "killed after the effect"
    with pytest.raises(httpx.TransportError):
        start(framework, url).post("/charges", what, key=key)
    shop = start(framework, url)
    problem(shop.post("/charges", what, key=key), 409, "outcome_unknown")
    assert shop.effects(what) == 1


@pytest.mark.full
def test_a_handler_that_died_runs_again_where_that_is_chosen(
    framework: str, url: str, start: Shops, key: str, what: str
) -> None:
    killed_in_the_middle(start, framework, url, key, what)
    shop = start(framework, url)
    shop.open_gate(what)
    # The variant is the present application's: what it says about doubt counts.
    answer = shop.post("/slow", what, key=key, variant="rerun")
    assert (answer.status_code, answer.json()["id"]) == (201, 2)
    assert is_replay(shop.post("/slow", what, key=key, variant="rerun"), answer)


@pytest.mark.full
def test_another_process_replays_what_a_dead_one_settled(
    framework: str, url: str, start: Shops, key: str, what: str
) -> None:
    one = start(framework, url)
    first = one.post("/charges", what, key=key)
    one.kill()
    assert is_replay(start(framework, url).post("/charges", what, key=key), first)


@pytest.mark.full
def test_a_shop_that_is_asked_to_stop_finishes_what_it_began(
    framework: str, url: str, start: Shops, key: str, what: str
) -> None:
    shop = start(framework, url)
    with ThreadPoolExecutor(2) as pool:
        asking = pool.submit(shop.post, "/slow", what, key=key)
        shop.until_effect(what)
        shop.open_gate(what)
        first = asking.result()
    shop.stop()
    assert is_replay(start(framework, url).post("/slow", what, key=key), first)


# --- resolved as any other --------------------------------------------------------------------------

RESULT = {"status": 202, "headers": {"X-By": "ann", "Set-Cookie": "a=1"}, "body": {"charge": "ch-1"}}


def in_doubt(start: Shops, framework: str, url: str, key: str, what: str) -> tuple[ShopProcess, str]:
    shop = start(framework, url)
    shop.post("/status/502", what, key=key, variant="in-doubt")
    body = problem(shop.post("/status/502", what, key=key, variant="in-doubt"), 409, "outcome_unknown")
    record_id: str = body["record_id"]
    return shop, record_id


def again(shop: ShopProcess, key: str, what: str) -> httpx.Response:
    return shop.post("/status/502", what, key=key, variant="in-doubt")


def shown(url: str, *words: str) -> subprocess.CompletedProcess[str]:
    done = command("records", *words, f"--url={url}")
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_the_command_line_lists_explains_and_resolves_it(
    framework: str, url: str, start: Shops, key: str, what: str
) -> None:
    shop, record_id = in_doubt(start, framework, url, key, what)
    listed = shown(url, "list", "--scope=http", "--state=in_doubt").stdout
    assert record_id in listed
    assert "POST /status/{}" in listed
    assert f"/ {key}" in listed
    told = shown(url, "show", record_id).stdout
    assert "the application answered 502" in told
    assert '"path":"/status/502"' in told.replace(": ", ":")
    assert f"semel records resolve {record_id} --happened" in told
    wrong = command("records", "resolve", record_id, "--happened", '--result={"id": 1}', f"--url={url}")
    assert wrong.returncode != 0
    assert "does not return this" in wrong.stdout + wrong.stderr
    shown(url, "resolve", record_id, "--happened", f"--result={json.dumps(RESULT)}")
    resolved = again(shop, key, what)
    assert (resolved.status_code, resolved.json()) == (202, {"charge": "ch-1"})
    assert resolved.headers["Idempotent-Replayed"] == "true"
    assert resolved.headers["X-By"] == "ann"
    assert "Set-Cookie" not in resolved.headers
    assert shop.effects(what) == 1


@pytest.mark.full
def test_without_a_result_its_answer_is_not_available_until_it_is_amended(
    framework: str, url: str, start: Shops, key: str, what: str
) -> None:
    shop, record_id = in_doubt(start, framework, url, key, what)
    shown(url, "resolve", record_id, "--happened")
    problem(again(shop, key, what), 409, "result_unavailable")
    shown(url, "amend", record_id, '--result={"status": 204}')
    assert again(shop, key, what).status_code == 204


@pytest.mark.full
def test_what_did_not_happen_runs_again(framework: str, url: str, start: Shops, key: str, what: str) -> None:
    shop, record_id = in_doubt(start, framework, url, key, what)
    shown(url, "resolve", record_id, "--did-not-happen")
    assert again(shop, key, what).json()["id"] == 2


@pytest.fixture
def begin_gateway() -> Iterator[Gateways]:
    with gateways() as begin:
        yield begin


@pytest.mark.full
def test_a_gateway_lists_explains_and_resolves_it(
    framework: str, url: str, start: Shops, begin_gateway: Gateways, key: str, what: str
) -> None:
    shop, record_id = in_doubt(start, framework, url, key, what)
    gateway: Gateway = begin_gateway(url)
    client = gateway.client()
    (item,) = client.get("/api/v1/records", params={"scope": "http"}).json()["items"]
    assert (item["id"], item["scope"], item["tool"]) == (record_id, "http", "POST /status/{}")
    assert client.get("/api/v1/records", params={"scope": "tool"}).json()["items"] == []
    record: dict[str, Any] = client.get(f"/api/v1/records/{record_id}").json()
    assert record["explanation"]["choices"] == ["happened", "did_not_happen"]
    assert "POST /status/{}" in record["explanation"]["question"]
    resolve = f"/api/v1/records/{record_id}/resolve"
    misfit = client.post(resolve, json={"outcome": "happened", "result": {"status": "yes"}})
    assert (misfit.status_code, misfit.json()["code"]) == (400, "input_invalid")
    assert client.post(resolve, json={"outcome": "happened", "result": RESULT}).status_code == 200
    assert again(shop, key, what).json() == {"charge": "ch-1"}


# --- the store's server goes away -------------------------------------------------------------------


@pytest.fixture(params=["redis", "postgres"])
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    server: Any = RedisServer(**DURABLE) if request.param == "redis" else PostgresServer()
    if request.param == "postgres":
        server.make()
    server.start()
    yield server
    server.remove()


def test_a_store_that_goes_away_before_during_and_after(
    server: Any, start: Shops, key: str, what: str
) -> None:
    shop = start("fastapi", server.url(settle_wait="1s"))
    first = shop.post("/charges", what, key=key)
    # After: what is settled is known in the process, and replayed without the store.
    server.kill()
    assert is_replay(shop.post("/charges", what, key=key), first)
    # Before: the application is not called.
    absent = shop.post("/charges", f"{what} absent", key=f"{key}-2")
    assert problem(absent, 503, "store_unavailable")["retriable"] is True
    assert int(absent.headers["Retry-After"]) >= 1
    assert shop.effects(f"{what} absent") == 0
    server.start()
    until(
        lambda: shop.post("/charges", f"{what} absent", key=f"{key}-2").status_code == 201, "it serves again"
    )
    # During: the handler ran, and nobody is told that it is on record.
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(shop.post, "/slow", f"{what} during", key=f"{key}-3")
        shop.until_effect(f"{what} during")
        server.kill()
        shop.open_gate(f"{what} during")
        problem(asking.result(), 409, "outcome_unknown")
    server.start()

    def settled() -> httpx.Response | None:
        answer = shop.post("/slow", f"{what} during", key=f"{key}-3")
        return answer if answer.status_code == 201 else None

    # The keeper has gone on trying: its answer is there when the store is.
    assert until(settled, "it is on record").headers["Idempotent-Replayed"] == "true"
    assert shop.effects(f"{what} during") == 1
    assert shop.effects(f"{what} absent") == 1
