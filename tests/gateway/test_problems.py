"""Whatever goes wrong is told in one form, and nothing of the inside is in it."""

from __future__ import annotations

import gc
import json
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel.errors import ApprovalError, RecordNotFound, RecordNotInDoubt, StoreCorrupt, StoreUnavailable
from semel.flow.problems import ILL_FORMED, KINDS, Refused
from semel.gateway import problems
from semel.gateway.server import embedded
from semel.gateway.settings import GatewaySettings
from semel.kernel.clock import SYSTEM
from semel.questions.refusals import Refusal
from semel.stores.base import CountRecords, Query
from semel.stores.documents import Fetch
from semel.stores.memory import MemoryStore
from semel.testing import FlakyStore
from tests.faults.checks import until
from tests.gateway.conftest import Serve, define, refused, start_run
from tests.stores import BY_NAME


def told(problem: Refusal) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(problems.body(problem))
    return body


def decided_before() -> ApprovalError:
    error = ApprovalError("The other decision was taken before.")
    error.code = "approval_already_resolved"
    return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused("run_not_found"), "run_not_found"),
        (StoreUnavailable("no route to db-7.internal"), "store_unavailable"),
        (StoreCorrupt("page 7 of db-7.internal"), "store_corrupt"),
        (RecordNotFound(), "record_not_found"),
        (RecordNotInDoubt(), "record_not_in_doubt"),
        (decided_before(), "approval_already_resolved"),
        (KeyError("db-7.internal"), "internal_error"),
    ],
)
def test_each_error_has_its_problem_and_keeps_the_inside_to_itself(error: Exception, code: str) -> None:
    problem = problems.problem_of(error, SYSTEM)
    body = told(problem)
    assert body["code"] == code
    assert (body["status"], body["retriable"]) == (problems.STATUS[code], KINDS[code].retriable)
    assert "internal" not in json.dumps(body).replace("internal_error", "")


def test_every_code_has_a_status_and_every_status_a_code() -> None:
    assert problems.STATUS.keys() == KINDS.keys()


def test_what_a_command_line_calls_wrong_usage_is_a_bad_request_here() -> None:
    assert {code for code, status in problems.STATUS.items() if status == 400} == ILL_FORMED


def test_details_are_members_and_never_replace_what_every_problem_has() -> None:
    body = told(Refused("max_concurrent_runs_reached", current=2, limit=2, status=200, title="Fine."))
    assert (body["current"], body["status"], body["title"]) == (2, 429, "No slot is free.")


@pytest.mark.parametrize(
    ("problem", "seconds"),
    [
        (Refused("store_unavailable"), b"1"),
        (Refused("too_many_requests", retry_after_s=0.01), b"1"),
        (Refused("too_many_requests", retry_after_s=2.1), b"3"),
        (Refused("idempotency_in_flight"), b"1"),
        (Refused("run_already_ended"), None),
        (Refused("internal_error"), None),
    ],
)
def test_who_may_come_back_is_told_when_in_whole_seconds(problem: Refused, seconds: bytes | None) -> None:
    assert dict(problems.headers(problem)).get(b"retry-after") == seconds


def test_an_unknown_address_and_a_wrong_method_are_problems_too(dev: httpx.Client) -> None:
    for path in (
        "/api/v1",
        "/api/v1/runs/",
        "/api/v1/workflows/a/b/c",
        "/api/v2/runs",
        "/api/v1/%2e%2e/x",
    ):
        refused(dev.get(path), 404, "not_found")
    answer = dev.patch("/api/v1/workflows/hello")
    refused(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "DELETE, GET, HEAD, PUT"
    refused(dev.post("/metrics"), 405, "method_not_allowed")


def test_head_is_get_without_the_body(dev: httpx.Client) -> None:
    answer = dev.head("/api/v1/runs")
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) == len(dev.get("/api/v1/runs").content)


class BrokenStore(FlakyStore):
    """A store with a fault that nobody foresaw."""

    broken = False

    async def aask(self, query: Query[Any]) -> Any:
        if self.broken and isinstance(query, Fetch):
            raise RuntimeError("canary-4711")
        return await super().aask(query)


def test_an_unforeseen_error_is_an_id_to_the_client_and_a_place_in_the_log(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    store = BrokenStore(MemoryStore())
    client = serve(store, dev=True).client()
    store.broken = True
    with caplog.at_level(logging.ERROR, "semel.gateway"):
        problem = refused(client.get(f"/api/v1/runs/run_{'0' * 32}"), 500, "internal_error")
    assert "canary" not in json.dumps(problem)
    [line] = [json.loads(text) for text in caplog.messages if problem["error_id"] in text]
    assert line["kind"] == "RuntimeError"
    assert any("runs.py" in place for place in line["where"])
    assert "canary" not in caplog.text


def test_a_store_that_is_down_refuses_and_keeps_nothing_and_serves_again_when_it_is_back(
    serve: Serve,
) -> None:
    store = FlakyStore(MemoryStore())
    client = serve(store, dev=True).client()
    define(client)
    store.down = True
    answer = start_run(client, {"n": 1}, "order-1")
    refused(answer, 503, "store_unavailable")
    assert int(answer.headers["retry-after"]) >= 1
    store.down = False
    again = start_run(client, {"n": 1}, "order-1")
    assert again.status_code == 200
    assert "idempotent-replayed" not in again.headers


def test_health_is_about_the_process_and_readiness_about_the_store(serve: Serve) -> None:
    store = FlakyStore(MemoryStore())
    client = serve(store, dev=True).client()
    assert client.get("/readyz").json() == {"status": "ready", "reasons": []}
    store.down = True
    assert client.get("/healthz").status_code == 200
    unready = client.get("/readyz")
    assert (unready.status_code, unready.json()["reasons"]) == (503, ["store: does not answer"])
    store.down = False
    assert client.get("/readyz").status_code == 200


def test_a_gateway_that_has_stopped_has_closed_its_store(tmp_path: Path) -> None:
    store = BY_NAME["sqlite"].open(tmp_path, SYSTEM, True)
    with embedded(GatewaySettings(url="memory://", dev=True), store):
        assert store.ask(CountRecords()) == {}
    with pytest.raises(StoreUnavailable):
        store.ask(CountRecords())


def request_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged of requests; a ledger of another test may have had its say too."""
    return [entry.getMessage() for entry in caplog.records if entry.name == "semel.gateway.requests"]


def test_the_log_has_one_line_per_request_and_no_key_body_path_or_secret(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    served = serve()
    secret = served.key("admin")
    client = served.client(X_API_Key=secret)
    with caplog.at_level(logging.INFO, "semel"):
        define(client, "canary-workflow")
        start_run(client, {"n": "canary-body"}, "canary-key", "canary-workflow")
        start_run(client, {"n": "canary-body"}, "canary-key", "canary-workflow")
        client.get("/api/v1/records", params={"key": "canary-key"})
        client.get("/canary-path")
        client.get("/api/v1/runs", headers={"X-API-Key": secret + "canary"})
    until(lambda: len(request_lines(caplog)) >= 6, "the last answer is logged too")
    lines = [json.loads(message) for message in request_lines(caplog)]
    assert [line["route"] for line in lines] == [
        "put_workflow", "start_run", "start_run", "list_records", "nowhere", "list_runs",
    ]  # fmt: skip
    assert [line["replayed"] for line in lines] == [False, False, True, False, False, False]
    assert [line["code"] for line in lines][-2:] == ["not_found", "unauthenticated"]
    assert {line["tenant"] for line in lines} == {"acme", None}
    assert "canary" not in caplog.text
    assert secret not in caplog.text


def test_the_log_can_be_of_problems_only_or_silent(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "semel"):
        for log, expected in [("problems", 1), ("none", 0)]:
            caplog.clear()
            client = serve(dev=True, log=log).client()
            client.get("/api/v1/runs")
            client.get("/nowhere")
            # On the same connection, so what was logged of the last request is logged by now.
            client.get("/healthz")
            assert len(request_lines(caplog)) == expected


@pytest.mark.full
def test_a_refusal_leaves_nothing_that_only_a_collector_would_find(serve: Serve) -> None:
    client = serve(dev=True).client()
    define(client)
    wrong = [b"[" + b" " * (1 << 20) + b"1]", b'{"a": NaN}', b'{"a": 1, "a": 2}', b"no JSON"]

    def ask() -> None:
        for body in wrong:
            assert client.post("/api/v1/workflows/hello/runs", content=body).status_code == 400
        assert client.get("/api/v1/runs/run_unknown").status_code == 404

    ask()
    gc.collect()
    gc.disable()
    try:
        before = _problems()
        ask()
        # The last one may still be on its way out.
        until(lambda: _problems() <= before, "no problem is left")
    finally:
        gc.enable()


def _problems() -> int:
    return sum(isinstance(each, Refusal) for each in gc.get_objects())


@pytest.mark.parametrize(
    ("path", "status"),
    [("/api/v1/runs", 200), ("/api/v1/runs/run_1", 404), ("/nowhere", 404), ("/healthz", 200)],
)
def test_every_answer_repeats_what_the_request_calls_itself(
    dev: httpx.Client, path: str, status: int
) -> None:
    named = dev.get(path, headers={"X-Request-Id": "look-7"})
    assert (named.status_code, named.headers["x-request-id"]) == (status, "look-7")
    assert "x-request-id" not in dev.get(path).headers
