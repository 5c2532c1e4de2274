"""Every method of every group, of both clients, against a real gateway."""

from __future__ import annotations

import asyncio
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import semel
from semel.client import Gateway, Problem, RunAnswer, RunStartedAnswer, StillRunning
from semel.flow.dead_letters import letter
from semel.flow.document_store import DocumentStore
from semel.flow.model import Message
from semel.kernel.clock import SYSTEM
from semel.ledger.ledger import Ledger
from semel.stores.base import Store
from tests.client.conftest import Connect
from tests.fake_clock import FakeClock
from tests.gateway.conftest import Served, new_tenant


def tenant_of(gateway: Gateway) -> str:
    return gateway.tenants.get().tenant


def store_of(gateway: Gateway, shared: dict[str, Served], request: pytest.FixtureRequest) -> Store:
    """The store behind this gateway."""
    name = next(name for name in shared if name in request.node.callspec.id.split("-"))
    store: Store = shared[name].services.store
    return store


# --- runs -------------------------------------------------------------------------------------------


def test_a_run_is_started_followed_and_ended(gateway: Gateway) -> None:
    gateway.workflows.put("hello")
    started = gateway.runs.start("hello", {"n": 1}, key="order-1")
    assert isinstance(started, RunStartedAnswer)
    assert (started.workflow_id, started.status, started.replayed) == ("hello", "running", False)
    again = gateway.runs.start("hello", {"n": 1}, "order-1")
    assert (again, again.replayed) == (started, True)
    with pytest.raises(StillRunning) as still:
        gateway.runs.wait(started.run_id, within="10s")
    assert (still.value.run.run_id, still.value.run.status) == (started.run_id, "running")
    assert (still.value.code, still.value.retriable) == ("still_running", True)
    ended = gateway.runs.complete(started.run_id, "succeeded", {"paid": True})
    assert (ended.status, ended.result, ended.replayed) == ("succeeded", {"paid": True}, False)
    assert gateway.runs.complete(started.run_id, "succeeded", {"paid": True}).replayed
    run = gateway.runs.wait(started.run_id)
    assert run == gateway.runs.get(started.run_id)
    assert isinstance(run, RunAnswer)
    assert isinstance(run.ended_at, datetime)
    assert timedelta(0) <= run.ended_at - run.created_at < timedelta(days=1)
    assert run.created_at.astimezone(UTC) == datetime.fromisoformat(run.raw["created_at"])
    assert [event.type for event in gateway.runs.timeline(run.run_id)] == ["run.started", "run.succeeded"]
    assert [each.run_id for each in gateway.runs.list(workflow_id="hello", status="succeeded")] == [
        run.run_id
    ]
    assert list(gateway.runs.list(status="failed")) == []


def test_without_a_key_each_call_is_an_intention_of_its_own(gateway: Gateway) -> None:
    gateway.workflows.put("hello")
    first, second = gateway.runs.start("hello", {}), gateway.runs.start("hello", {})
    assert first.run_id != second.run_id
    assert len(list(gateway.records.list(scope="run"))) == 2


def test_a_run_is_cancelled_and_run_again_from_a_step(gateway: Gateway) -> None:
    gateway.workflows.put(
        "refund", [{"id": "check", "topic": "check"}, {"id": "pay", "topic": "pay", "depends_on": ["check"]}]
    )
    started = gateway.runs.start("refund", {"payment": "p-1"})
    cancelled = gateway.runs.cancel(started.run_id)
    assert (cancelled.status, [step.status for step in cancelled.steps]) == (
        "cancelled",
        ["cancelled", "skipped"],
    )
    assert gateway.runs.cancel(started.run_id).replayed
    assert gateway.runs.wait(started.run_id).status == "cancelled"
    again = gateway.runs.rerun(started.run_id, "check", key="again")
    assert gateway.runs.get(again.run_id).rerun_of == started.run_id
    assert gateway.runs.rerun(started.run_id, "check", key="again").replayed
    assert gateway.runs.rerun(started.run_id, "check").run_id != again.run_id


# --- jobs -------------------------------------------------------------------------------------------


def test_a_job_is_created_leased_and_reported(gateway: Gateway) -> None:
    job = gateway.jobs.create("mail", {"to": "bob"}, key="m-1", labels={"team": "support"})
    assert (job.topic, job.labels, job.status) == ("mail", {"team": "support"}, "queued")
    assert gateway.jobs.create("mail", {"to": "bob"}, key="m-1", labels={"team": "support"}).replayed
    assert gateway.jobs.lease(["other"]).jobs == []
    (leased,) = gateway.jobs.lease(["mail", "other"], max=5, lease_s=30, worker_id="w-1").jobs
    assert (leased.job_id, leased.attempt, leased.input) == (job.job_id, 1, {"to": "bob"})
    beat = gateway.jobs.heartbeat(leased.job_id, leased.fence, 60)
    assert leased.lease_expires_at is not None
    assert beat.lease_expires_at > leased.lease_expires_at
    done = gateway.jobs.result(leased.job_id, leased.fence, "succeeded", {"sent": 1})
    assert (done.status, done.result) == ("succeeded", {"sent": 1})
    assert gateway.jobs.result(leased.job_id, leased.fence, "succeeded", {"sent": 1}).replayed
    assert gateway.jobs.get(job.job_id) == done
    with pytest.raises(Problem) as lost:
        gateway.jobs.heartbeat(leased.job_id, leased.fence)
    assert (lost.value.code, lost.value.status, lost.value.retriable) == ("ownership_lost", 409, False)


def test_jobs_are_listed_failed_and_cancelled(gateway: Gateway) -> None:
    first, second = gateway.jobs.create("a", 1), gateway.jobs.create("b", None)
    assert [job.job_id for job in gateway.jobs.list()] == [second.job_id, first.job_id]
    assert [job.job_id for job in gateway.jobs.list(topic="a", status="queued")] == [first.job_id]
    assert list(gateway.jobs.list(run_id="run_" + "0" * 32)) == []
    (leased,) = gateway.jobs.lease(["a"]).jobs
    failed = gateway.jobs.result(
        leased.job_id, leased.fence, "failed", error={"code": "no", "message": "no", "retriable": False}
    )
    assert (failed.status, failed.error["code"]) == ("failed", "no")
    assert gateway.jobs.cancel(second.job_id).status == "cancelled"
    assert gateway.jobs.cancel(second.job_id).replayed


def test_a_lease_that_waits_for_longer_than_a_try_may_take_is_not_given_up(
    served: Served, connect: Connect
) -> None:
    gateway = connect(served.url, tenant=new_tenant(), try_for="1s", within="2s")
    assert gateway.jobs.lease(["mail"], wait_s=3.0).jobs == []


# --- approvals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_a_question_is_shown_and_decided_once(served: Served, connect: Connect, verb: str) -> None:
    tenant = new_tenant()
    shop, ann = (connect(served.url, tenant=tenant, principal=name) for name in ("shop", "zoë"))
    job = shop.jobs.create("pay", {"amount": 5}, approval={"reason": "over 1000", "expires_in": "2d"})
    (question,) = ann.approvals.list(status="waiting")
    assert (question, question.reason) == (ann.approvals.get(job.job_id), "over 1000")
    decide = getattr(ann.approvals, verb)
    first = decide(job.job_id, "checked", revision=question.revision, job_hash=question.job_hash)
    past = {"approve": "approved", "reject": "rejected"}[verb]
    assert (first.status, getattr(first, f"{past}_by"), first.replayed) == (past, "zoë", False)
    again = decide(job.job_id)
    assert (again.status, getattr(again, f"{past}_by"), again.replayed) == (f"already_{past}", "zoë", True)
    other = {"approve": ann.approvals.reject, "reject": ann.approvals.approve}[verb]
    with pytest.raises(Problem) as refused:
        other(job.job_id)
    assert (refused.value.code, refused.value.details) == ("approval_already_resolved", {"decided": past})
    with pytest.raises(Problem) as own:
        shop.approvals.approve(job.job_id)
    assert (own.value.code, own.value.status) == ("self_approval_denied", 403)


# --- records, tools, reports, dead letters ------------------------------------------------------------


@semel.tool_contract(class_="write-non-idempotent")
def send(to: str) -> Any:
    if to == "nobody":
        raise TimeoutError
    return {"sent": to}


def test_records_are_listed_explained_resolved_and_amended(
    gateway: Gateway, shared: dict[str, Served], request: pytest.FixtureRequest
) -> None:
    ledger = Ledger(store_of(gateway, shared, request), tenant=tenant_of(gateway))
    with ledger.step(conversation="c", step="1"):
        send("bob")
    with ledger.step(conversation="c", step="2"), pytest.raises(TimeoutError):
        send("nobody")
    ledger.sightings.merge()
    assert [record.state for record in gateway.records.list(scope="tool", tool="send")] == [
        "in_doubt",
        "done",
    ]
    (doubt,) = gateway.records.list(state="in_doubt")
    shown = gateway.records.get(doubt.id)
    assert [event.type for event in shown.history] == ["claimed", "parked"]
    assert shown.explanation.question
    resolved = gateway.records.resolve(doubt.id, "happened", {"sent": "nobody"}, fence=doubt.fence)
    assert (resolved.state, resolved.by, resolved.replayed) == ("done", "ann", False)
    assert gateway.records.resolve(doubt.id, "happened", {"sent": "nobody"}).replayed
    assert gateway.records.amend(doubt.id, {"sent": "eve"}).outcome == {"sent": "eve"}
    with pytest.raises(Problem) as refused:
        gateway.records.resolve(doubt.id, "did_not_happen")
    assert refused.value.code == "record_not_in_doubt"
    (tool,) = gateway.tools.list()
    assert (tool.name, tool.class_, tool) == ("send", "write-non-idempotent", gateway.tools.get("send"))
    assert gateway.tools.get("send", "1").version == "1.0.0"
    assert [event.type for event in gateway.audit.list(limit=3)] == ["claimed", "settled", "claimed"]
    assert gateway.audit.duplicates("1h").calls == 2
    ledger.keeper.close()
    assert list(gateway.windows.list("nothing")) == []


def test_a_dead_letter_is_sent_again_once(
    gateway: Gateway, shared: dict[str, Served], request: pytest.FixtureRequest
) -> None:
    tenant = tenant_of(gateway)
    message = Message(f"{tenant}:job_1:queued", tenant, "job.queued", 1, topic="pay", job_id="job_1")
    dead = letter("mailer", message, 5, "SMTP said no", SYSTEM.now_us())
    document_store = DocumentStore(store_of(gateway, shared, request))
    asyncio.run(document_store.commit(tenant, {dead.id: None}, (dead.draft(None),)))
    (listed,) = gateway.dead_letters.list()
    assert (listed, listed.error) == (gateway.dead_letters.get(dead.id), "SMTP said no")
    assert gateway.dead_letters.retry(dead.id, "k").retried_by == "ann"
    assert gateway.dead_letters.retry(dead.id, "k").replayed
    with pytest.raises(Problem) as refused:
        gateway.dead_letters.retry(dead.id)
    assert refused.value.code == "message_already_retried"


# --- workflows, tenants -----------------------------------------------------------------------------


def test_workflows_are_put_listed_and_deleted(gateway: Gateway) -> None:
    step = {"id": "pay", "topic": "pay", "approval": True}
    put = gateway.workflows.put("refund", [step], max_concurrent_runs=3, input_schema={"type": "object"})
    assert (put.steps[0].topic, put.max_concurrent_runs) == ("pay", 3)
    assert put.steps[0].approval is not None
    assert gateway.workflows.get("refund") == put
    gateway.workflows.put("hello")
    assert [each.workflow_id for each in gateway.workflows.list()] == ["hello", "refund"]
    assert gateway.workflows.delete("refund").deleted
    with pytest.raises(Problem) as gone:
        gateway.workflows.delete("refund")
    assert gone.value.code == "workflow_not_found"


def test_the_limit_of_a_tenant_is_put_and_a_full_one_says_what_is_full(
    served: Served, connect: Connect
) -> None:
    gateway = connect(served.url, tenant=new_tenant(), tries=1)
    tenant = tenant_of(gateway)
    assert gateway.tenants.put(tenant, 1) == gateway.tenants.get()
    gateway.workflows.put("hello")
    gateway.runs.start("hello", {})
    with pytest.raises(Problem) as full:
        gateway.runs.start("hello", {}, key="k")
    problem = full.value
    assert (problem.code, problem.status, problem.retriable) == ("max_concurrent_runs_reached", 429, True)
    assert problem.details.pop("retry_after_s") > 0
    assert problem.details == {"current": 1, "limit": 1, "scope": "tenant"}
    assert problem.retry_after_s is not None
    assert problem.retry_after_s >= 1
    assert (problem.key, problem.tenant) == ("k", tenant)


# --- lists ------------------------------------------------------------------------------------------


def test_a_list_goes_on_over_all_pages(served: Served, connect: Connect) -> None:
    gateway = connect(served.url, tenant=new_tenant())
    made = [gateway.jobs.create("mail", number).job_id for number in range(430)]
    assert [job.job_id for job in gateway.jobs.list()] == made[::-1]
    assert [job.job_id for job in gateway.jobs.list(limit=215)] == made[::-1][:215]
    assert [job.job_id for job in gateway.jobs.list(limit=200)] == made[::-1][:200]
    assert list(gateway.jobs.list(limit=0)) == []


# --- refusals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("id_", ["run_1", "", ".", "..", "../tenant", "a/b", "ü", "a b"])
def test_what_cannot_be_an_id_leads_nowhere_else(served: Served, connect: Connect, id_: str) -> None:
    with pytest.raises(Problem) as refused:
        connect(served.url).runs.get(id_)
    assert (refused.value.code, refused.value.retriable) == ("run_not_found", False)


@pytest.mark.parametrize("key", ["", "a\nb", "x" * 256, '"half'])
def test_a_key_that_cannot_be_sent_is_refused_before_anything_is(
    served: Served, connect: Connect, key: str
) -> None:
    with pytest.raises(Problem) as refused:
        connect(served.url).runs.start("hello", {}, key=key)
    assert refused.value.code == "idempotency_key_invalid"
    assert "Nothing was sent" in refused.value.message


def test_keys_of_any_letters_are_sent_as_they_are(gateway: Gateway) -> None:
    gateway.workflows.put("hello")
    started = gateway.runs.start("hello", {}, key="Bestellung №7 – zoë")
    (record,) = gateway.records.list(scope="run", key="Bestellung №7 – zoë")
    assert record.run_id == started.run_id


def test_a_number_that_json_has_not_is_refused_and_not_changed(gateway: Gateway) -> None:
    gateway.workflows.put("hello")
    with pytest.raises(Problem) as refused:
        gateway.runs.start("hello", {"amount": float("nan")})
    assert (refused.value.code, refused.value.retriable) == ("body_not_json", False)


def test_a_wrong_key_is_refused_at_once(served: Served, serve: Any, connect: Connect) -> None:
    guarded = serve()
    with pytest.raises(Problem) as unknown:
        connect(guarded.url, "semel_no_key").runs.start("hello", {})
    assert (unknown.value.code, unknown.value.status) == ("unauthenticated", 401)
    with pytest.raises(Problem) as other:
        connect(guarded.url, guarded.key("submitter"), tenant="globex").tenants.get()
    assert (other.value.code, other.value.tenant) == ("tenant_mismatch", "acme")


@pytest.mark.parametrize(
    "url", ["", "nowhere", "ftp://127.0.0.1", "http://", "http://127.0.0.1:x", "http://h/?a=b"]
)
def test_an_address_that_cannot_be_one_is_refused_when_it_is_given(connect: Connect, url: str) -> None:
    with pytest.raises(semel.errors.OpenError, match="cannot be asked"):
        connect(url)


def test_what_cannot_be_sent_of_who_asks_is_refused_when_it_is_given(connect: Connect) -> None:
    with pytest.raises(semel.errors.OpenError, match="X-Principal-Id cannot be sent"):
        connect("http://127.0.0.1:1", principal="a\nb")
    with pytest.raises(ValueError, match="tries"):
        connect("http://127.0.0.1:1", tries=0)
    with pytest.raises(ValueError, match="within"):
        connect("http://127.0.0.1:1", within="soon")


def test_a_problem_and_an_answer_can_be_carried_to_another_process(served: Served, connect: Connect) -> None:
    gateway = connect(served.url, tenant=new_tenant(), clock=FakeClock())
    with pytest.raises(Problem) as refused:
        gateway.runs.start("missing", {}, key="k")
    carried = pickle.loads(pickle.dumps(refused.value))
    assert (carried.code, carried.status, carried.key) == ("workflow_not_found", 404, "k")
    gateway.workflows.put("hello")
    started = gateway.runs.start("hello", {})
    assert pickle.loads(pickle.dumps(started)) == started
    with pytest.raises(StillRunning) as still:
        gateway.runs.wait(started.run_id, within="10s")
    assert pickle.loads(pickle.dumps(still.value)).run.run_id == started.run_id
