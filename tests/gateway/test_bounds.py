"""One tenant does its worst, and the others are answered meanwhile: each attack on a real gateway."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.gateway.conftest import define, refused, start_run
from tests.gateway.serving import PATIENCE_S, Gateway, gateways

# Of a million ways to write a schema that never ends, those that were tried.
DOUBLING = 60
MEGABYTES_2 = 2 << 20


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with gateways() as start:
        yield start("memory://")


def doubling() -> dict[str, Any]:
    """Each definition asks for the next one twice."""
    defs: dict[str, Any] = {
        f"d{number}": {"allOf": [{"$ref": f"#/$defs/d{number + 1}"}] * 2} for number in range(DOUBLING)
    }
    return {"$defs": {**defs, f"d{DOUBLING}": {"type": "object"}}, "$ref": "#/$defs/d0"}


def by_depth() -> dict[str, Any]:
    """At each level of the input everything is asked twice."""
    below = {"properties": {"c": {"$ref": "#/$defs/node"}}}
    return {"$defs": {"node": {"allOf": [below, {**below, "title": "again"}]}}, "$ref": "#/$defs/node"}


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"c": value}
    return value


SCHEMAS: dict[str, tuple[Any, Any]] = {
    "a pattern that backtracks": (
        {"properties": {"a": {"pattern": "^(a+)+$"}}}, {"a": "a" * 10_000 + "!"}
    ),
    "a pattern in names": ({"patternProperties": {"^(a|aa)+$": {"type": "null"}}}, {"a" * 10_000 + "!": 1}),
    "unique objects": (
        {"properties": {"a": {"uniqueItems": True}}}, {"a": [{"n": number} for number in range(6_000)]}
    ),
    "references that double": (doubling(), {}),
    "levels that double": (by_depth(), nested(60)),
    "a large enumeration": (
        {"properties": {"a": {"items": {"enum": [{"n": number} for number in range(3_000)]}}}},
        {"a": [{"n": -1 - number} for number in range(3_000)]},
    ),
}  # fmt: skip


@contextmanager
def meanwhile(work: Callable[[], Any]) -> Iterator[Callable[[], bool]]:
    """The work goes on beside the block; what it is called with says whether it still does."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield thread.is_alive
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert failures == []


def answered_meanwhile(gateway: Gateway, still: Callable[[], bool]) -> None:
    """Probes and another tenant are answered until the attack is over, and at least some times."""
    with (
        httpx.Client(base_url=gateway.url, timeout=PATIENCE_S) as probe,
        httpx.Client(base_url=gateway.url, headers={"X-Tenant-ID": "other"}, timeout=PATIENCE_S) as other,
    ):
        rounds = 0
        while still() or rounds < 3:
            assert probe.get("/healthz").status_code == 200
            assert other.get("/api/v1/runs").status_code == 200
            rounds += 1


@pytest.mark.parametrize(("schema", "value"), SCHEMAS.values(), ids=SCHEMAS.keys())
def test_whatever_a_schema_asks_for_others_are_answered_meanwhile(
    gateway: Gateway, schema: Any, value: Any
) -> None:
    client = gateway.client(X_Tenant_ID="worst")

    def attack() -> None:
        put = client.put("/api/v1/workflows/hello", json={"steps": [], "input_schema": schema})
        assert put.status_code in (200, 400), put.text
        if put.status_code == 200:
            assert start_run(client, value).status_code in (200, 400)

    with meanwhile(attack) as still:
        answered_meanwhile(gateway, still)


def test_a_stop_does_not_wait_for_a_schema_without_an_end(gateway: Gateway) -> None:
    client = gateway.client(X_Tenant_ID="worst")
    define(client, input_schema=by_depth())

    with meanwhile(lambda: refused(start_run(client, nested(60)), 400, "input_invalid")):
        answered_meanwhile(gateway, lambda: False)
        assert gateway.stop() == 0


@pytest.mark.parametrize("pattern", ["^(a)\\1$", "^(?=a)b", "a{1000}{1000}{1000}", "("])
def test_a_pattern_that_has_no_linear_form_is_refused_when_the_workflow_is_put(
    gateway: Gateway, pattern: str
) -> None:
    client = gateway.client()
    for schema in ({"pattern": pattern}, {"patternProperties": {pattern: True}}):
        answer = client.put("/api/v1/workflows/hello", json={"steps": [], "input_schema": schema})
        assert "linear time" in refused(answer, 400, "request_invalid")["detail"]
    refused(start_run(client), 404, "workflow_not_found")
