"""Decisions over HTTP: taken once, replayed ever after, at real gateways on every store that is shared."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.faults.places import PLACES
from tests.gateway.conftest import Serve, define, limit, new_tenant, refused, start_run
from tests.gateway.serving import Gateway, Park, crowd, until

STORES = [place.name for place in PLACES]

PAST = {"approve": "approved", "reject": "rejected"}
OTHER = {"approve": "reject", "reject": "approve"}
both = pytest.mark.parametrize("verb", PAST)
on_every_store = pytest.mark.parametrize("store", STORES)

RETRIES = 5

# Of each kind, at once, through two gateways.
DECIDERS = 20

# A round is forty requests at once; the soak has time for all of them.
ROUNDS, ROUNDS_OF_A_SOAK = 20, 100

GATED = {"id": "pay", "topic": "pay", "approval": {"reason": "over 1000"}}


def person(gateway: Gateway, tenant: str, name: str) -> httpx.Client:
    return gateway.client(X_Tenant_ID=tenant, X_Principal_Id=name)


def ask_about_a_job(client: httpx.Client, **terms: Any) -> str:
    body = {"topic": "pay", "input": {"amount_minor": 1_400_000}, "approval": terms or True}
    answer = client.post("/api/v1/jobs", json=body)
    assert answer.status_code == 200, answer.text
    job_id: str = answer.json()["job_id"]
    return job_id


def ask_about_a_step(client: httpx.Client, **terms: Any) -> str:
    """The job of a step that waits in a run of its own; the workflow is defined anew with these terms."""
    define(client, "gated", GATED | {"approval": terms or True})
    run_id = start_run(client, name="gated").json()["run_id"]
    job_id: str = client.get(f"/api/v1/runs/{run_id}").json()["steps"][0]["job_id"]
    return job_id


def decide(client: httpx.Client, job_id: str, verb: str, **said: Any) -> httpx.Response:
    return client.post(f"/api/v1/approvals/{job_id}/{verb}", json=said)


def as_seen(client: httpx.Client, job_id: str) -> dict[str, Any]:
    """What a client that binds its decision to what the person saw sends along."""
    shown = client.get(f"/api/v1/approvals/{job_id}").json()
    return {"reason": "checked", "revision": shown["revision"], "job_hash": shown["job_hash"]}


def check_first(answer: httpx.Response, job_id: str, verb: str, by: str) -> dict[str, Any]:
    """The answer of the one who decides; what everybody else is to be told of it."""
    past, said = PAST[verb], answer.json()
    assert answer.status_code == 200, answer.text
    assert "idempotent-replayed" not in answer.headers
    assert said.keys() == {"job_id", "status", f"{past}_by", f"{past}_at", "revision"}
    assert (said["job_id"], said["status"], said[f"{past}_by"], said["revision"]) == (job_id, past, by, 1)
    return {**said, "status": f"already_{past}"}


def check_replayed(answer: httpx.Response, told: dict[str, Any]) -> None:
    assert (answer.status_code, answer.json()) == (200, told), answer.text
    assert answer.headers["idempotent-replayed"] == "true"


def decisions_in_the_log(client: httpx.Client) -> Counter[str]:
    """How often each job was decided on, as the sealed log has it."""
    found: Counter[str] = Counter()
    query: dict[str, Any] = {"limit": 200}
    while True:
        page = client.get("/api/v1/audit", params=query)
        assert page.status_code == 200, page.text
        found.update(line["key"] for line in page.json()["items"] if line["type"] in PAST.values())
        if page.json()["next_cursor"] is None:
            return found
        query["cursor"] = page.json()["next_cursor"]


# --- retries --------------------------------------------------------------------------------------------


@both
@on_every_store
@pytest.mark.parametrize("ask", [ask_about_a_job, ask_about_a_step])
def test_five_parallel_retries_are_told_the_first_decider_and_time(
    ask: Callable[..., str], store: str, verb: str, park: Park
) -> None:
    """At both gateways, by the same person and by others, with the original body."""
    found = park.some(2, store)
    tenant = new_tenant()
    ann, ben = person(found[0], tenant, "ann"), person(found[0], tenant, "ben")
    job_id = ask(ann)
    body = as_seen(ben, job_id)
    told = check_first(decide(ben, job_id, verb, **body), job_id, verb, "ben")
    retrying = [
        person(found[number % 2], tenant, "ben" if number < 3 else "cat") for number in range(RETRIES)
    ]
    with ThreadPoolExecutor(RETRIES) as pool:
        for answer in pool.map(lambda client: decide(client, job_id, verb, **body), retrying):
            check_replayed(answer, told)
    refused(decide(ben, job_id, OTHER[verb], **body), 409, "approval_already_resolved")
    shown = ann.get(f"/api/v1/approvals/{job_id}").json()
    past = PAST[verb]
    assert (shown["status"], shown["decided_by"], shown["decided_at"], shown["reason"]) == (
        *(past, "ben", told[f"{past}_at"]),
        "checked",
    )
    assert ann.get(f"/api/v1/jobs/{job_id}").json()["bus_msg_id"] == f"approval:{job_id}"
    assert decisions_in_the_log(ann) == {job_id: 1}


# --- forty at once --------------------------------------------------------------------------------------


def crowds(found: list[Gateway], rounds: int) -> None:
    """So many times twenty say yes and twenty no, at two gateways: one of them decides."""
    tenant = new_tenant()
    ann = person(found[0], tenant, "ann")
    limit(ann, 2 * rounds)
    asked = [(ask_about_a_step if number % 2 else ask_about_a_job)(ann) for number in range(rounds)]
    winners = asyncio.run(_crowds([each.url for each in found], tenant, asked))
    assert decisions_in_the_log(ann) == dict.fromkeys(asked, 1)
    for job_id, (past, by, at) in winners.items():
        shown = ann.get(f"/api/v1/approvals/{job_id}").json()
        assert (shown["status"], shown["decided_by"], shown["decided_at"]) == (past, by, at)


async def _crowds(urls: list[str], tenant: str, asked: list[str]) -> dict[str, tuple[str, str, str]]:
    """Who decided on which job: the decision, the person, the time."""
    async with crowd(tenant) as client:
        return {job_id: await _crowd(client, urls, job_id, turn) for turn, job_id in enumerate(asked)}


async def _crowd(client: httpx.AsyncClient, urls: list[str], job_id: str, turn: int) -> tuple[str, str, str]:
    verbs = ("approve", "reject") if turn % 2 else ("reject", "approve")
    asked = [(number, verb) for number in range(DECIDERS) for verb in verbs]
    answers = await asyncio.gather(
        *(
            client.post(
                f"{urls[(number + turn) % 2]}/api/v1/approvals/{job_id}/{verb}",
                headers={"X-Principal-Id": f"{verb}r-{number}"},
            )
            for number, verb in asked
        )
    )
    (first,) = (
        n
        for n, answer in enumerate(answers)
        if answer.status_code == 200 and not answer.json()["status"].startswith("already_")
    )
    number, winner = asked[first]
    told = check_first(answers[first], job_id, winner, f"{winner}r-{number}")
    for index, ((_, verb), answer) in enumerate(zip(asked, answers, strict=True)):
        if verb != winner:
            assert refused(answer, 409, "approval_already_resolved")["decided"] == PAST[winner]
        elif index != first:
            check_replayed(answer, told)
    past = PAST[winner]
    return past, told[f"{past}_by"], told[f"{past}_at"]


@on_every_store
def test_of_forty_deciders_at_two_gateways_one_decides_and_all_are_told_the_truth(
    store: str, park: Park
) -> None:
    crowds(park.some(2, store), ROUNDS)


@pytest.mark.slow
@pytest.mark.timeout(600)
@on_every_store
def test_of_forty_deciders_one_decides_a_hundred_times(store: str, park: Park) -> None:
    crowds(park.some(2, store), ROUNDS_OF_A_SOAK)


# --- later ----------------------------------------------------------------------------------------------


def lease(client: httpx.Client) -> dict[str, Any]:
    (job,) = client.post("/api/v1/leases", json={"topics": ["pay"], "max": 5, "lease_s": 30}).json()["jobs"]
    found: dict[str, Any] = job
    return found


def succeed(client: httpx.Client, job: dict[str, Any]) -> httpx.Response:
    body = {"fence": job["fence"], "status": "succeeded", "result": {"paid": True}}
    return client.post(f"/api/v1/jobs/{job['job_id']}/result", json=body)


def fail(client: httpx.Client, job: dict[str, Any]) -> httpx.Response:
    error = {"code": "no_funds", "message": "", "retriable": False}
    body = {"fence": job["fence"], "status": "failed", "error": error}
    return client.post(f"/api/v1/jobs/{job['job_id']}/result", json=body)


def cancel(client: httpx.Client, job: dict[str, Any]) -> httpx.Response:
    return client.post(f"/api/v1/runs/{job['run_id']}/cancel")


@pytest.mark.parametrize(("end", "status"), [(succeed, "succeeded"), (fail, "failed"), (cancel, "cancelled")])
def test_an_approval_is_replayed_after_the_job_has_ended(
    end: Callable[..., httpx.Response], status: str, client: httpx.Client
) -> None:
    job_id = ask_about_a_step(client)
    client.headers["x-principal-id"] = "ben"
    body = as_seen(client, job_id)
    told = check_first(decide(client, job_id, "approve", **body), job_id, "approve", "ben")
    assert end(client, lease(client)).status_code == 200
    assert client.get(f"/api/v1/jobs/{job_id}").json()["status"] == status
    check_replayed(decide(client, job_id, "approve", **body), told)
    refused(decide(client, job_id, "reject", **body), 409, "approval_already_resolved")


def test_a_rejection_is_replayed_after_its_run_has_failed(client: httpx.Client) -> None:
    job_id = ask_about_a_step(client)
    client.headers["x-principal-id"] = "ben"
    told = check_first(decide(client, job_id, "reject"), job_id, "reject", "ben")
    assert client.get(f"/api/v1/jobs/{job_id}").json()["status"] == "denied"
    check_replayed(decide(client, job_id, "reject"), told)


# --- too late, too old ----------------------------------------------------------------------------------


def until_denied(client: httpx.Client, job_id: str) -> None:
    until(lambda: client.get(f"/api/v1/jobs/{job_id}").json()["status"] == "denied", "time denies the job")


@both
def test_a_job_that_time_denied_has_no_rejection_to_replay(verb: str, client: httpx.Client) -> None:
    job_id = ask_about_a_job(client, expires_in="1ms")
    until_denied(client, job_id)
    client.headers["x-principal-id"] = "ben"
    for _ in range(2):
        refused(decide(client, job_id, verb), 410, "approval_expired")
    shown = client.get(f"/api/v1/approvals/{job_id}").json()
    assert (shown["status"], shown["decided_by"], shown["decided_at"]) == ("expired", None, None)
    assert client.get(f"/api/v1/jobs/{job_id}").json()["bus_msg_id"] is None


@both
def test_a_step_that_time_denied_belongs_to_a_run_that_has_ended(verb: str, client: httpx.Client) -> None:
    job_id = ask_about_a_step(client, expires_in="1ms")
    until_denied(client, job_id)
    client.headers["x-principal-id"] = "ben"
    refused(decide(client, job_id, verb), 409, "approval_terminal_run")


@both
def test_a_cancelled_job_has_no_rejection_to_replay(verb: str, client: httpx.Client) -> None:
    job_id = ask_about_a_step(client)
    (run,) = client.get("/api/v1/runs").json()["items"]
    assert cancel(client, run).status_code == 200
    client.headers["x-principal-id"] = "ben"
    refused(decide(client, job_id, verb), 409, "approval_not_actionable")


@both
@pytest.mark.parametrize("stale", [{"job_hash": "0" * 64}, {"revision": 2}])
def test_what_was_not_seen_is_not_decided_on(stale: dict[str, Any], verb: str, client: httpx.Client) -> None:
    """The hash of another job of the same topic and input is another one, too."""
    job_id, twin = ask_about_a_job(client), ask_about_a_job(client)
    client.headers["x-principal-id"] = "ben"
    body = as_seen(client, job_id)
    refused(decide(client, job_id, verb, **body | stale), 409, "approval_stale_request")
    refused(decide(client, twin, verb, **body), 409, "approval_stale_request")
    assert client.get(f"/api/v1/approvals/{job_id}").json()["status"] == "waiting"
    check_first(decide(client, job_id, verb, **body), job_id, verb, "ben")
    # On file it is on file: who resends anything is told what was decided.
    check_replayed(decide(client, job_id, verb, **body | stale), decide(client, job_id, verb, **body).json())


@pytest.mark.parametrize("name", ["bus_msg_id", "message_id", "decided_by", "approved_by", "approved_at"])
def test_a_client_names_neither_the_message_nor_the_decider(name: str, client: httpx.Client) -> None:
    body = {"topic": "pay", "input": 1, "approval": True}
    refused(client.post("/api/v1/jobs", json=body | {name: "x"}), 400, "request_invalid")
    job_id = ask_about_a_job(client)
    client.headers["x-principal-id"] = "ben"
    refused(decide(client, job_id, "approve", **{name: "x"}), 400, "request_invalid")
    assert client.get(f"/api/v1/approvals/{job_id}").json()["status"] == "waiting"


# --- who ------------------------------------------------------------------------------------------------


def same_but_for_the_date(answer: httpx.Response) -> tuple[Any, ...]:
    headers = [(name, value) for name, value in answer.headers.items() if name != "date"]
    return answer.status_code, headers, answer.content


def test_a_job_of_another_tenant_is_answered_as_one_that_never_was(serve: Serve, store: Any) -> None:
    served = serve(store)
    ann, ben = served.holder("admin", principal="ann"), served.holder("approver", principal="ben")
    stranger = served.holder("approver", tenant="globex", principal="ben")
    waiting, decided, ended = (ask_about_a_job(ann) for _ in range(3))
    for job_id, verb in ((decided, "approve"), (ended, "reject")):
        assert decide(ben, job_id, verb).status_code == 200
    body = as_seen(ben, waiting)
    for ask in (
        lambda job_id: decide(stranger, job_id, "approve"),
        lambda job_id: decide(stranger, job_id, "reject", **body),
        lambda job_id: decide(stranger, job_id, "approve", revision=9),
        lambda job_id: stranger.get(f"/api/v1/approvals/{job_id}"),
        lambda job_id: stranger.get(f"/api/v1/jobs/{job_id}"),
    ):
        unknown = ask(f"job_{'0' * 32}")
        refused(unknown, 404, "job_not_found")
        for job_id in (waiting, decided, ended):
            assert same_but_for_the_date(ask(job_id)) == same_but_for_the_date(unknown)
    assert ben.get(f"/api/v1/approvals/{waiting}").json()["status"] == "waiting"


@both
def test_one_person_with_two_keys_does_not_decide_on_their_own_submission(
    verb: str, serve: Serve, store: Any
) -> None:
    served = serve(store)
    admin = served.holder("admin", principal="ann")
    own = served.holder("approver", principal="ann")
    for ask in (ask_about_a_job, ask_about_a_step):
        job_id = ask(admin)
        # The role comes first: an admin decides on nothing, whosever it is.
        refused(decide(admin, job_id, verb), 403, "forbidden")
        refused(decide(own, job_id, verb), 403, "self_approval_denied")
        refused(decide(own, job_id, verb, **as_seen(own, job_id)), 403, "self_approval_denied")
        other = served.holder("approver", principal="ben")
        check_first(decide(other, job_id, verb), job_id, verb, "ben")
        refused(decide(own, job_id, verb), 403, "self_approval_denied")


def test_who_starts_a_run_is_who_submits_the_steps_that_follow(serve: Serve, store: Any) -> None:
    """The step is opened by a worker's result; the worker's person did not ask for it, the starter did."""
    served = serve(store)
    admin = served.holder("admin", principal="ann")
    worker = served.holder("worker", principal="wes")
    define(admin, "two", {"id": "check", "topic": "pay"}, GATED | {"depends_on": ["check"]})
    run_id = start_run(served.holder("submitter", principal="sue"), name="two").json()["run_id"]
    assert succeed(worker, lease(worker)).status_code == 200
    job_id = admin.get(f"/api/v1/runs/{run_id}").json()["steps"][1]["job_id"]
    assert admin.get(f"/api/v1/approvals/{job_id}").json()["submitted_by"] == "sue"
    refused(
        decide(served.holder("approver", principal="sue"), job_id, "approve"), 403, "self_approval_denied"
    )
    wes = served.holder("approver", principal="wes")
    check_first(decide(wes, job_id, "approve"), job_id, "approve", "wes")
