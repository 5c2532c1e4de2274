"""The operator's commands with `--server`: the same output and exit codes, and the key says who acts."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

import semel
from semel.cli import main
from semel.errors import ApprovalRequired
from semel.flow.dead_letters import letter
from semel.flow.document_store import DocumentStore
from semel.flow.model import Message
from semel.kernel.clock import SYSTEM
from semel.ledger.ledger import Ledger
from semel.stores.base import Store
from tests.gateway.conftest import Serve, Served, define, refused, start_run
from tests.patience import PATIENCE_S
from tests.stores import BY_NAME

COMMANDS = [
    ("records", "list"),
    ("records", "show", "rec_" + "0" * 32),
    ("records", "resolve", "rec_" + "0" * 32, "--happened"),
    ("records", "amend", "rec_" + "0" * 32, "--result", "1"),
    ("tools", "list"),
    ("tools", "show", "nothing"),
    ("runs", "list"),
    ("runs", "show", "run_" + "0" * 32),
    ("runs", "cancel", "run_" + "0" * 32),
    ("runs", "rerun", "run_" + "0" * 32, "--from-step", "a"),
    ("jobs", "list"),
    ("jobs", "show", "job_" + "0" * 32),
    ("jobs", "cancel", "job_" + "0" * 32),
    ("dead-letters", "list"),
    ("dead-letters", "show", "dead_" + "0" * 32),
    ("dead-letters", "retry", "dead_" + "0" * 32, "--key", "k"),
    ("approvals", "list"),
    ("approvals", "show", "job_" + "0" * 32),
    ("approvals", "approve", "job_" + "0" * 32),
    ("approvals", "reject", "job_" + "0" * 32),
    ("audit", "duplicates"),
    ("audit", "export"),
]

ONLY_AT_A_STORE = [
    ("audit", "export", "--all-tenants"),
    ("audit", "duplicates", "--all-tenants"),
    ("windows", "--all-tenants"),
    *((group, "list", "--all-tenants") for group in ("records", "approvals", "runs", "jobs", "tools")),
    ("dead-letters", "list", "--all-tenants"),
]
URL_ALONE = [("audit", "verify"), ("doctor",), ("keys", "list")]


@semel.tool_contract(class_="write-non-idempotent")
def send(to: str) -> Any:
    if to == "nobody":
        raise TimeoutError
    return {"sent": to}


@semel.tool_contract(class_="write-non-idempotent")
def measure(what: str) -> list[float | int]:
    return [float("nan"), 1 << 80]


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SEMEL_URL", "SEMEL_SERVER", "SEMEL_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("USER", "ursula")
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """On a file, so that a command may look at it beside the gateway."""
    return BY_NAME["sqlite"].open(tmp_path, SYSTEM, True)


@pytest.fixture
def served(serve: Serve, store: Store) -> Served:
    return serve(store)


@pytest.fixture
def ledger(store: Store, served: Served) -> Iterator[Ledger]:
    opened = Ledger(store, tenant="acme")
    yield opened
    opened.keeper.close()  # the store is closed by the gateway


class Both:
    """One command, typed for the store and typed for the gateway."""

    def __init__(self, served: Served, store_url: str, key: str) -> None:
        self.at_store = ("--url", store_url, "--tenant", "acme", "--as", "ann")
        self.at_server = ("--server", served.url, "--tenant", "acme", "--api-key", key)

    def same(self, *words: str) -> Any:
        """The answer, after checking that it is the same in both ways, as text and as JSON."""
        text = [run(*words, *where) for where in (self.at_store, self.at_server)]
        assert text[0].exit_code == text[1].exit_code, text[1].output
        assert without_place(text[0]) == without_place(text[1])
        json_ = [run(*words, "--json", *where) for where in (self.at_store, self.at_server)]
        assert without_place(json_[0]) == without_place(json_[1])
        return json.loads(json_[1].stdout)


@pytest.fixture
def both(served: Served, tmp_path: Path) -> Both:
    key = served.key("admin", "approver", "auditor")
    return Both(served, f"sqlite:///{tmp_path}/semel.db", key)


def run(*words: str, **environment: str) -> Result:
    result = CliRunner(env=environment).invoke(main, words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def without_place(result: Result) -> tuple[int, list[str], list[str]]:
    """What was said, without the store or gateway that the next command names, and whatever the age is."""

    def told(text: str) -> list[str]:
        without = [re.split(" --url | --server ", line)[0] for line in text.splitlines()]
        return [re.sub(r" +\d+[smh]( +|$)", " (age) ", line) for line in without]

    return result.exit_code, told(result.stdout), told(result.stderr)


def settle(ledger: Ledger, to: str = "bob", step: str = "s-1") -> str:
    with ledger.step(conversation="c-1", step=step, principal="bot"):
        send(to)
    return ledger.records.list()[0].request.id


def doubt(ledger: Ledger, step: str = "doubt") -> str:
    with ledger.step(conversation="c-1", step=step, principal="bot"), pytest.raises(TimeoutError):
        send("nobody")
    ledger.sightings.merge()  # the catalogue knows the tool now, and not in the middle of a comparison
    return ledger.records.list()[0].request.id


# --- the same in both ways --------------------------------------------------------------------------------


def test_records_are_listed_alike(both: Both, ledger: Ledger, served: Served) -> None:
    admin = served.holder("admin")
    define(admin)
    run_id = start_run(admin, {"n": 1}, "order-1").json()["run_id"]
    admin.post("/api/v1/jobs", json={"topic": "t", "input": 1}, headers={"Idempotency-Key": "order-1"})
    done, doubtful = settle(ledger), doubt(ledger)
    with ledger.step(conversation="c-1", step="odd"):
        measure("x")
    items = both.same("records", "list")["items"]
    assert [item["scope"] for item in items] == ["tool", "tool", "tool", "job", "run"]
    assert items[0]["outcome"] == ["NaN", 1 << 80]
    assert items[-1]["run_id"] == run_id
    assert [item["id"] for item in both.same("records", "list", "--state", "in_doubt")["items"]] == [doubtful]
    assert [item["id"] for item in both.same("records", "list", "--tool", "send")["items"]] == [
        doubtful,
        done,
    ]
    assert len(both.same("records", "list", "--key", "order-1")["items"]) == 2
    assert both.same("records", "list", "--scope", "run")["items"] == items[-1:]
    assert both.same("records", "list", "--tool", "other") == {"items": []}


def test_a_list_longer_than_a_page_is_whole(both: Both, ledger: Ledger) -> None:
    for number in range(205):
        settle(ledger, step=f"s-{number}")
    assert len({item["id"] for item in both.same("records", "list", "--limit", "203")["items"]}) == 203
    assert len(both.same("records", "list", "--limit", "1000")["items"]) == 205


def test_every_kind_of_record_is_explained_alike(both: Both, ledger: Ledger, served: Served) -> None:
    admin = served.holder("admin")
    define(admin)
    start_run(admin, {"n": 1}, "order-1")
    [key_record] = admin.get("/api/v1/records").json()["items"]
    for id_ in (key_record["id"], settle(ledger), doubt(ledger)):
        shown = both.same("records", "show", id_)
        assert shown["explanation"]["known"]
    assert [event["type"] for event in shown["history"]] == ["claimed", "parked"]
    assert shown["explanation"]["question"] in run("records", "show", id_, *both.at_server).stdout


def test_a_refusal_has_the_same_code_and_exit_in_both_ways(both: Both, ledger: Ledger) -> None:
    settled = settle(ledger)
    for words, code in [
        (("records", "show", "rec_" + "0" * 32), "RECORD_NOT_FOUND"),
        (("records", "show", "rec_1"), "RECORD_NOT_FOUND"),
        (("records", "show", "../runs"), "RECORD_NOT_FOUND"),
        (("records", "show", ""), "RECORD_NOT_FOUND"),
        (("records", "resolve", settled, "--did-not-happen"), "RECORD_NOT_IN_DOUBT"),
        (("approvals", "approve", "job_" + "0" * 32), "job_not_found"),
        (("approvals", "show", "job_" + "0" * 32), "job_not_found"),
    ]:
        for where in (both.at_store, both.at_server):
            result = run(*words, "--json", *where)
            assert (result.exit_code, result.stdout) == (3, "")
            assert json.loads(result.stderr)["error"]["code"] == code


def test_duplicates_are_reported_alike_with_counts_per_tool(both: Both, ledger: Ledger) -> None:
    assert both.same("audit", "duplicates")["duplicates"] == 0
    for step in ("try-1", "try-2", "try-3"):
        settle(ledger, step=step)
    for step in ("odd-1", "odd-2"):
        with ledger.step(conversation="c-1", step=step):
            measure("x")
    found = both.same("audit", "duplicates", "--within", "1h")
    assert {tool["tool"]: tool["count"] for tool in found["tools"]} == {"send": 2, "measure": 1}
    assert (found["calls"], found["duplicates"]) == (5, 3)
    told = run("audit", "duplicates", *both.at_server).stdout
    assert "c-1 / try-1  c-1 / try-2" in told
    assert run("audit", "duplicates", "--check", *both.at_server).exit_code == 1
    assert both.same("audit", "duplicates", "--within", "1ms")["within"] == "1ms"


def test_windows_are_advised_on_alike(both: Both, ledger: Ledger) -> None:
    assert both.same("windows")["items"] == []
    for _ in range(3):
        settle(ledger)
    ledger.keeper.close()  # what it counted is in the store
    (pay,) = both.same("windows")["items"]
    assert (pay["tool"], pay["retries"]) == ("send", 2)
    assert both.same("windows", "--tool", "send")["items"] == [pay]
    assert both.same("windows", "--tool", "nothing")["items"] == []


def test_the_log_is_exported_alike(both: Both, ledger: Ledger) -> None:
    for number in range(120):
        settle(ledger, step=f"s-{number}")
    at_store, at_server = (run("audit", "export", *where) for where in (both.at_store, both.at_server))
    assert at_store.stdout == at_server.stdout
    lines = [json.loads(line) for line in at_server.stdout.splitlines()]
    assert [line["type"] for line in lines] == ["claimed", "settled"] * 120


# --- runs, jobs, dead letters, tools -----------------------------------------------------------------------


def fits_a_screen(*words: str) -> None:
    told = run(*words)
    assert told.exit_code == 0
    assert max(map(len, told.stdout.splitlines())) <= 80, told.stdout


def two_steps(admin: httpx.Client) -> str:
    define(
        admin,
        "refund",
        {"id": "check", "topic": "check"},
        {"id": "pay", "topic": "pay", "depends_on": ["check"]},
    )
    run_id: str = start_run(admin, {"n": 1}, name="refund").json()["run_id"]
    return run_id


def finish(admin: httpx.Client, topic: str, status: str = "succeeded") -> None:
    (job,) = admin.post("/api/v1/leases", json={"topics": [topic]}).json()["jobs"]
    error = {"error": {"code": "x", "retriable": False}} if status == "failed" else {}
    ended = {"fence": job["fence"], "status": status, **error}
    assert admin.post(f"/api/v1/jobs/{job['job_id']}/result", json=ended).status_code == 200


def test_runs_and_jobs_are_listed_and_shown_alike(both: Both, served: Served) -> None:
    admin = served.holder("admin")
    assert both.same("runs", "list") == both.same("jobs", "list") == {"items": []}
    define(admin)
    plain = start_run(admin).json()["run_id"]
    run_id = two_steps(admin)
    job_id = admin.post("/api/v1/jobs", json={"topic": "mail", "input": 1, "labels": {"a": "b"}}).json()[
        "job_id"
    ]
    listed = both.same("runs", "list")["items"]
    assert [item["run_id"] for item in listed] == [run_id, plain]
    assert both.same("runs", "list", "--workflow", "refund", "--status", "running")["items"] == listed[:1]
    assert both.same("runs", "list", "--limit", "1")["items"] == listed[:1]
    shown = both.same("runs", "show", run_id)
    assert [event["type"] for event in shown["timeline"]] == ["run.started", "step.queued"]
    of_run = shown["steps"][0]["job_id"]
    assert [item["job_id"] for item in both.same("jobs", "list")["items"]] == [job_id, of_run]
    assert [item["job_id"] for item in both.same("jobs", "list", "--run", run_id)["items"]] == [of_run]
    assert [item["job_id"] for item in both.same("jobs", "list", "--topic", "mail")["items"]] == [job_id]
    assert both.same("jobs", "list", "--status", "leased")["items"] == []
    assert both.same("jobs", "show", job_id)["labels"] == {"a": "b"}
    for words in (("runs", "list"), ("jobs", "list"), ("runs", "show", run_id), ("jobs", "show", job_id)):
        fits_a_screen(*words, *both.at_store)


@pytest.mark.parametrize("where", ["at_store", "at_server"])
def test_runs_and_jobs_are_cancelled_and_run_again(both: Both, served: Served, where: str) -> None:
    place, admin = getattr(both, where), served.holder("admin")
    run_id = two_steps(admin)
    finish(admin, "check")
    finish(admin, "pay", "failed")
    again = run("runs", "rerun", run_id, "--from-step", "pay", "--key", "k-1", "--json", *place)
    new = json.loads(again.stdout)["run_id"]
    repeat = run("runs", "rerun", run_id, "--from-step", "pay", "--key", "k-1", *place)
    assert f"as {new} with this key before; nothing was changed" in repeat.stdout
    assert run("runs", "rerun", run_id, "--from-step", "nothing", *place).exit_code == 2
    live = run("runs", "rerun", new, "--from-step", "pay", "--json", *place)
    assert (live.exit_code, json.loads(live.stderr)["error"]["code"]) == (3, "run_not_ended")
    job_id = admin.get(f"/api/v1/runs/{new}").json()["steps"][1]["job_id"]
    assert run("jobs", "cancel", job_id, *place).stdout == f"{job_id} was cancelled.\n"
    assert "before; nothing was changed" in run("jobs", "cancel", job_id, *place).stdout
    ended = admin.get(f"/api/v1/runs/{new}").json()
    assert (ended["status"], ended["error"]["code"]) == ("failed", "step_cancelled")
    other = two_steps(admin)
    assert json.loads(run("runs", "cancel", other, "--json", *place).stdout)["status"] == "cancelled"
    assert "before; nothing was changed" in run("runs", "cancel", other, *place).stdout
    assert run("runs", "cancel", new, *place).exit_code == 3
    timeline = admin.get(f"/api/v1/runs/{other}/timeline").json()["items"]
    assert timeline[-1]["by"] == "ann"
    assert other in run("runs", "list", "--status", "cancelled", *place).stdout


def put_aside(store: Store) -> str:
    message = Message("acme:job_1:queued", "acme", "job.queued", 1, topic="pay", job_id="job_1")
    found = letter("mailer", message, 5, "SMTP said no", SYSTEM.now_us())
    asyncio.run(DocumentStore(store).commit("acme", {found.id: None}, (found.draft(None),)))
    return found.id


def test_dead_letters_are_listed_shown_and_sent_again_alike(both: Both, store: Store) -> None:
    assert both.same("dead-letters", "list") == {"items": []}
    id_ = put_aside(store)
    assert [item["id"] for item in both.same("dead-letters", "list")["items"]] == [id_]
    assert both.same("dead-letters", "show", id_)["error"] == "SMTP said no"
    fits_a_screen("dead-letters", "list", *both.at_store)
    first = run("dead-letters", "retry", id_, "--key", "k", *both.at_store)
    assert first.stdout == f"{id_} is sent again, says ann.\n"
    assert (
        "before; nothing was changed"
        in run("dead-letters", "retry", id_, "--key", "k", *both.at_server).stdout
    )
    assert run("dead-letters", "retry", id_, *both.at_server).exit_code == 3


def test_tools_are_listed_and_shown_alike(both: Both, ledger: Ledger) -> None:
    settle(ledger)
    ledger.sightings.merge()
    assert [tool["name"] for tool in both.same("tools", "list")["items"]] == ["send"]
    assert both.same("tools", "show", "send")["result_schema"] == {}
    fits_a_screen("tools", "list", *both.at_store)


def test_what_only_a_store_can_do_is_not_advised_at_a_gateway(both: Both) -> None:
    words = ("records", "show", "rec_1")
    assert "--all-tenants" in run(*words, *both.at_store).stderr
    assert "--all-tenants" not in run(*words, *both.at_server).stderr
    assert "--all-tenants" not in run(*words, SEMEL_SERVER=both.at_server[1]).stderr


def test_what_is_not_there_is_refused_alike(both: Both) -> None:
    zeros = "0" * 32
    for words in (("runs", "show", "run_" + zeros), ("runs", "cancel", "run_" + zeros),
                  ("runs", "show", "x/y"), ("jobs", "show", "job_" + zeros), ("jobs", "cancel", "x"),
                  ("tools", "show", "a b"),
                  ("dead-letters", "show", "dead_" + zeros), ("tools", "show", "nothing")):  # fmt: skip
        texts = [run(*words, *where) for where in (both.at_store, both.at_server)]
        assert [text.exit_code for text in texts] == [3, 3], words
        assert _refusal(texts[0].stderr) == _refusal(texts[1].stderr), words


def _refusal(text: str) -> str:
    """What was refused and why; where to look next is another place at a store than at a gateway."""
    return text.partition("`semel ")[0]


# --- every tenant ------------------------------------------------------------------------------------------


def test_what_is_in_doubt_is_found_whichever_tenant_it_is_in(
    both: Both, ledger: Ledger, store: Store
) -> None:
    at_store = both.at_store[:2]
    assert (
        "No records that fit in any tenant"
        in run("records", "list", "--state", "in_doubt", "--all-tenants", *at_store).stdout
    )
    first = doubt(ledger)
    globex = Ledger(store, tenant="globex")
    second = doubt(globex)
    listed = ("records", "list", "--state", "in_doubt", *at_store)
    assert "No records" in run(*listed).stdout  # of tenant `default`
    items = json.loads(run(*listed, "--all-tenants", "--json").stdout)["items"]
    assert [(item["tenant"], item["id"]) for item in items] == [("globex", second), ("acme", first)]
    told = run(*listed, "--all-tenants").stdout
    assert [line.split()[-1] for line in told.splitlines()] == ["TENANT", "globex", "acme"]
    assert len(json.loads(run(*listed, "--all-tenants", "--limit", "1", "--json").stdout)["items"]) == 1
    globex.keeper.close()


def test_every_list_can_be_read_of_all_tenants(both: Both, store: Store, served: Served) -> None:
    at_store, ledgers = both.at_store[:2], [Ledger(store, tenant=name) for name in ("acme", "globex")]
    put_aside(store)
    for ledger in ledgers:
        for _ in range(2):
            settle(ledger)
        with ledger.step(conversation="c", step="ask"), pytest.raises(ApprovalRequired):
            wire(5)
        admin = served.holder("admin", tenant=ledger.tenant)
        define(admin)
        start_run(admin)
        admin.post("/api/v1/jobs", json={"topic": "mail", "input": 1})
        ledger.keeper.close()  # what it saw and counted is in the store
    groups = ("records", "approvals", "runs", "jobs", "tools")
    for words in (*((group, "list") for group in groups), ("windows",), ("audit", "duplicates")):
        items = json.loads(run(*words, "--all-tenants", "--json", *at_store).stdout)["items"]
        assert {item["tenant"] for item in items} == {"acme", "globex"}, words
        told = run(*words, "--all-tenants", *at_store)
        assert (told.exit_code, "globex" in told.stdout) == (0, True), words
    for words in (("runs", "list"), ("jobs", "list"), ("tools", "list")):
        fits_a_screen(*words, "--all-tenants", *at_store)
    [dead] = json.loads(run("dead-letters", "list", "--all-tenants", "--json", *at_store).stdout)["items"]
    assert dead["tenant"] == "acme"
    both_named = run("records", "list", "--all-tenants", "--tenant", "acme", *at_store)
    assert (both_named.exit_code, "give one of them" in both_named.stderr) == (2, True)


# --- resolving --------------------------------------------------------------------------------------------


def test_the_key_says_who_resolved_and_the_same_again_is_no_error(
    both: Both, ledger: Ledger, served: Served
) -> None:
    id_ = doubt(ledger)
    [happened, _] = json.loads(run("records", "show", id_, "--json", *both.at_server).stdout)["next"]
    typed = (*shlex.split(happened)[1:], "--api-key", both.at_server[-1], "--as", "mallory")
    first = run(*typed, "--result", '{"sent": "nobody"}')
    assert first.exit_code == 0, first.output
    assert "settled as done by ann; its value is replayed" in first.stdout
    again = run(*typed, "--result", '{"sent": "nobody"}')
    assert again.exit_code == 0
    assert "It was said before." in again.stdout
    other = run("records", "resolve", id_, "--did-not-happen", *both.at_server, "--json")
    assert other.exit_code == 3
    assert json.loads(other.stderr)["error"]["code"] == "RECORD_NOT_IN_DOUBT"
    resolved = [event for event in ledger.records.history(id_) if event.kind == "resolved"]
    assert [event.by for event in resolved] == ["ann"]
    with ledger.step(conversation="c-1", step="doubt"):
        assert send("nobody") == {"sent": "nobody"}


def test_over_http_the_same_answer_again_is_marked_as_a_replay(ledger: Ledger, served: Served) -> None:
    id_ = doubt(ledger)
    path = f"/api/v1/records/{id_}/resolve"
    admin, second = served.holder("admin"), served.holder("admin", principal="bob")
    body = {"outcome": "did_not_happen"}
    first = admin.post(path, json=body)
    assert "idempotent-replayed" not in first.headers
    for client in (admin, second):
        again = client.post(path, json=body)
        assert (again.status_code, again.headers["idempotent-replayed"]) == (200, "true")
        assert again.json()["by"] == "ann"
    refused(admin.post(path, json={"outcome": "happened"}), 409, "record_not_in_doubt")


def test_over_http_an_answer_for_an_earlier_attempt_is_refused(ledger: Ledger, served: Served) -> None:
    id_ = doubt(ledger)
    path = f"/api/v1/records/{id_}/resolve"
    admin = served.holder("admin")
    fence = admin.get(f"/api/v1/records/{id_}").json()["fence"]
    body = {"outcome": "did_not_happen", "fence": fence}
    assert admin.post(path, json=body).status_code == 200
    assert doubt(ledger) == id_  # it ran again
    refused(admin.post(path, json=body), 409, "record_not_in_doubt")
    assert admin.get(f"/api/v1/records/{id_}").json()["state"] == "in_doubt"


def test_many_who_say_the_same_at_once_leave_one_event_and_one_name(ledger: Ledger, served: Served) -> None:
    id_ = doubt(ledger)
    keys = [served.key("admin", principal=f"person-{number}") for number in range(8)]

    async def all_at_once() -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=served.url, timeout=PATIENCE_S) as client:
            return await asyncio.gather(
                *(
                    client.post(
                        f"/api/v1/records/{id_}/resolve",
                        json={"outcome": "happened"},
                        headers={"X-API-Key": key},
                    )
                    for key in keys
                )
            )

    answers = asyncio.run(all_at_once())
    assert {answer.status_code for answer in answers} == {200}
    assert sum("idempotent-replayed" not in answer.headers for answer in answers) == 1
    [resolved] = [event for event in ledger.records.history(id_) if event.kind == "resolved"]
    assert {answer.json()["by"] for answer in answers} == {resolved.by}


# --- approvals --------------------------------------------------------------------------------------------


def waiting(served: Served) -> str:
    job = {"topic": "pay", "input": {"amount": 5}, "approval": True}
    submitter = served.holder("submitter", principal="shop")
    return str(submitter.post("/api/v1/jobs", json=job).json()["job_id"])


def test_an_approval_is_listed_and_decided_through_the_gateway(both: Both, served: Served) -> None:
    job_id = waiting(served)
    listed = run("approvals", "list", "--status", "waiting", *both.at_server).stdout
    assert job_id in listed
    assert '{"amount":5}' in listed
    told = json.loads(
        run("approvals", "approve", job_id, "--reason", "fine", "--json", *both.at_server).stdout
    )
    assert (told["status"], told["approved_by"], told["revision"]) == ("approved", "ann", 1)
    again = run("approvals", "approve", job_id, *both.at_server)
    assert (again.exit_code, "before; nothing was changed" in again.stdout) == (0, True)
    [item] = json.loads(run("approvals", "list", "--json", *both.at_server).stdout)["items"]
    assert (item["status"], item["reason"], item["decided_by"]) == ("approved", "fine", "ann")


@semel.tool_contract(class_="irreversible", approval="required")
def wire(amount: int) -> int:
    return amount


def test_questions_of_tools_and_of_jobs_are_listed_and_decided_alike(
    both: Both, served: Served, ledger: Ledger
) -> None:
    job_id = waiting(served)
    with (
        ledger.step(conversation="c-1", step="pay", principal="bot"),
        pytest.raises(ApprovalRequired) as asked,
    ):
        wire(5)
    call_id = str(asked.value.details["job_id"])
    listed = both.same("approvals", "list")["items"]
    assert [item["job_id"] for item in listed] == [call_id, job_id]
    assert both.same("approvals", "list", "--status", "waiting")["items"] == listed
    assert [both.same("approvals", "show", item["job_id"]) for item in listed] == listed
    [record] = ledger.records.list()
    [approve, _] = both.same("records", "show", record.request.id)["next"]
    assert approve.split()[:4] == ["semel", "approvals", "approve", call_id]
    first = run(*shlex.split(approve)[1:], "--api-key", both.at_server[-1])
    assert first.exit_code == 0, first.output
    assert both.same("approvals", "approve", call_id)["status"] == "already_approved"
    with ledger.step(conversation="c-1", step="pay", principal="bot"):
        assert wire(5) == 5
    assert both.same("approvals", "list", "--status", "approved")["items"][0]["decided_by"] == "ann"
    assert both.same("approvals", "list", "--status", "cancelled") == {"items": []}


@pytest.mark.parametrize(
    ("words", "principal", "code"),
    [
        (("reject", "{job}"), "ann", "approval_already_resolved"),
        (("approve", "{job}"), "shop", "self_approval_denied"),
        (("approve", "job_1"), "ann", "job_not_found"),
    ],
)
def test_a_decision_that_cannot_be_taken_keeps_its_code(
    both: Both, served: Served, words, principal: str, code: str
) -> None:
    job_id = waiting(served)
    assert run("approvals", "approve", job_id, *both.at_server).exit_code == 0
    key = served.key("approver", principal=principal)
    where = ("--server", served.url, "--api-key", key, "--json")
    result = run("approvals", *(word.format(job=job_id) for word in words), *where)
    assert result.exit_code == 3
    assert json.loads(result.stderr)["error"]["code"] == code


def test_a_number_that_no_gateway_takes_is_wrong_usage(served: Served) -> None:
    words = ("approvals", "approve", "job_" + "0" * 32, "--revision", str(2**70))
    result = run(*words, "--server", served.url, "--api-key", served.key("approver"))
    assert (result.exit_code, "64 bits" in result.stderr) == (2, True)


def test_a_decision_is_bound_to_what_was_seen(both: Both, served: Served) -> None:
    job_id = waiting(served)
    stale = run("approvals", "approve", job_id, "--job-hash", "00", *both.at_server, "--json")
    assert stale.exit_code == 3
    assert json.loads(stale.stderr)["error"]["code"] == "approval_stale_request"


# --- who, and where ---------------------------------------------------------------------------------------


def test_in_dev_the_named_person_and_tenant_are_believed(serve: Serve, store: Store) -> None:
    served = serve(store, dev=True)
    ledger = Ledger(store, tenant="umbra")
    id_ = doubt(ledger)
    ledger.keeper.close()
    where = ("--server", served.url, "--tenant", "umbra", "--json")
    shown = json.loads(run("records", "resolve", id_, "--happened", *where, "--as", "zoë").stdout)
    assert shown["by"] == "zoë"
    assert run("records", "show", id_, "--server", served.url).exit_code == 3
    assert run("records", "list", "--server", served.url, "--tenant", "not a tenant").exit_code == 2
    assert "No records in tenant other." in run("records", "list", *where[:3], "other").stdout
    assert run("records", "list", "--server", served.url).stdout == "No records.\n"


def test_another_tenant_than_the_keys_is_refused(served: Served) -> None:
    where = ("--server", served.url, "--api-key", served.key("auditor"))
    result = run("records", "list", *where, "--tenant", "umbra")
    assert result.exit_code == 3
    assert "Leave --tenant out" in result.stderr
    assert run("records", "list", *where, "--tenant", "acme").stdout == "No records in tenant acme.\n"
    assert run("records", "list", *where).stdout == "No records.\n"


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_without_a_key_or_with_a_wrong_role_it_is_refused_and_says_what_helps(served: Served, words) -> None:
    result = run(*words, "--server", served.url)
    assert (result.exit_code, result.stdout) == (3, "")
    assert "semel keys create" in result.stderr
    if words[0] == "audit":
        key = served.key("submitter")
        assert run(*words, "--server", served.url, SEMEL_API_KEY=key).exit_code == 3
        assert run(*words, "--server", served.url, SEMEL_API_KEY=served.key("auditor")).exit_code == 0


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_nobody_there_exits_with_4(words) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    result = run(*words, "--server", f"http://127.0.0.1:{port}")
    assert (result.exit_code, result.stdout) == (4, "")
    assert "does not answer: ConnectError" in result.stderr
    changing = words[1] in ("resolve", "amend", "approve", "reject", "cancel", "rerun", "retry")
    assert ("the same command" in result.stderr) == changing
    assert ("with --key" in result.stderr) == (words[1] in ("rerun", "retry"))


class _Stranger(BaseHTTPRequestHandler):
    """Something that serves, and is no gateway."""

    def do_GET(self) -> None:
        body = b"<h1>Welcome</h1>"
        self.send_response(200 if "audit" in self.path else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize("words", [("records", "list"), ("audit", "duplicates")], ids=" ".join)
def test_what_is_no_gateway_is_told_from_one(words) -> None:
    with HTTPServer(("127.0.0.1", 0), _Stranger) as stranger:
        thread = threading.Thread(target=stranger.serve_forever, daemon=True)
        thread.start()
        result = run(*words, "--server", f"http://127.0.0.1:{stranger.server_port}")
        stranger.shutdown()
        thread.join()
    assert result.exit_code == 4
    assert "not as a gateway does" in result.stderr


def test_a_store_that_is_away_behind_the_gateway_exits_with_4(serve: Serve, tmp_path: Path) -> None:
    from semel.stores.memory import MemoryStore
    from semel.testing import FlakyStore

    flaky = FlakyStore(MemoryStore())
    served = serve(flaky, dev=True)
    flaky.down = True
    result = run("records", "show", "rec_" + "0" * 32, "--server", served.url, "--json")
    flaky.down = False
    assert result.exit_code == 4
    assert json.loads(result.stderr)["error"]["code"] == "STORE_UNAVAILABLE"


@pytest.mark.parametrize("words", [*COMMANDS, *ONLY_AT_A_STORE], ids=" ".join)
def test_store_and_gateway_at_once_is_a_mistake(words) -> None:
    result = run(*words, "--url", "sqlite:///x.db", "--server", "http://127.0.0.1:1")
    assert result.exit_code == 2
    assert "give one of them" in result.stderr


@pytest.mark.parametrize("words", ONLY_AT_A_STORE, ids=" ".join)
def test_what_needs_the_store_says_so(served: Served, words) -> None:
    result = run(*words, "--server", served.url)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "with --url" in result.stderr


@pytest.mark.parametrize("words", URL_ALONE, ids=" ".join)
def test_what_concerns_all_tenants_offers_no_gateway(ledger: Ledger, both: Both, words) -> None:
    assert "--server" not in run(*words, "--help").stdout
    result = run(*words, "--server", both.at_server[1])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "No such option" in result.stderr
    # Nor is one taken from the environment, where it is meant for other commands.
    assert run(*words, "--url", both.at_store[1], SEMEL_SERVER="http://127.0.0.1:1").exit_code == 0


def test_a_flag_outdoes_a_variable_and_two_variables_are_a_question(both: Both, ledger: Ledger) -> None:
    settle(ledger)
    url, server, key = both.at_store[1], both.at_server[1], both.at_server[-1]
    nowhere = "http://127.0.0.1:1"
    assert "rec_" in run("records", "list", SEMEL_SERVER=server, SEMEL_API_KEY=key).stdout
    named = ("--url", url, "--tenant", "acme")
    assert "rec_" in run("records", "list", *named, SEMEL_SERVER=nowhere, SEMEL_API_KEY=key).stdout
    assert "rec_" in run("records", "list", *both.at_server, SEMEL_URL="sqlite:///missing.db").stdout
    asked = run("records", "list", SEMEL_URL=url, SEMEL_SERVER=server)
    assert (asked.exit_code, "say which" in asked.stderr) == (2, True)


@pytest.mark.parametrize(
    "words",
    [("--server", ""), ("--server", "  "), ("--api-key", "k"), ("--url", "sqlite:///x.db", "--api-key", "k"),
     ("--server", "nowhere"), ("--server", "ftp://127.0.0.1"), ("--server", "http://127.0.0.1:x"),
     ("--server", "{served}", "--as", "a\nb"), ("--server", "{served}", "--tenant", "a\nb")],
    ids=" ".join,
)  # fmt: skip
def test_what_cannot_be_meant_is_wrong_usage(served: Served, words) -> None:
    result = run("records", "list", *(word.format(served=served.url) for word in words))
    assert (result.exit_code, result.stdout) == (2, "")


def test_without_an_http_client_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    result = run("records", "list", "--server", "http://127.0.0.1:1")
    assert result.exit_code == 4
    assert 'pip install "semel[client]"' in result.stderr


def test_the_key_is_on_no_screen(both: Both, ledger: Ledger) -> None:
    id_ = doubt(ledger)
    key = both.at_server[-1]
    for words in (("records", "show", id_), ("records", "show", "rec_1"), ("records", "list", "--json")):
        assert key not in run(*words, *both.at_server).output
