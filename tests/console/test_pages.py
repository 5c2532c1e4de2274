"""The console as a browser without JavaScript meets it: what a page shows, and what its forms do."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from semel.audit.verify import verify
from semel.console.app import DONE, pages
from semel.console.sessions import Sessions
from semel.flow.document_store import DocumentStore
from semel.gateway.auth import ROLES, ApiKeys
from semel.gateway.server import embedded
from semel.gateway.settings import GatewaySettings
from semel.stores.base import SealEvents
from semel.stores.memory import MemoryStore
from tests.console.conftest import Browser, Console, forms_of
from tests.console.scenes import HOSTILE, in_doubt, put_aside, send_payout, send_transfer
from tests.fake_clock import FakeClock
from tests.gateway.conftest import Served, define, start_run

PAGES = ("/", "/in-doubt", "/records", "/approvals", "/runs", "/jobs", "/dead-letters", "/tools", "/audit")


def ask(served: Served, text: str = "large", **labels: str) -> str:
    body = {"topic": "pay", "input": {"order": text}, "approval": True, "labels": labels}
    answer = served.client(X_Principal_Id="bot").post("/api/v1/jobs", json=body)
    return str(answer.json()["job_id"])


def signed_in(console: Console, **settings: Any) -> tuple[Served, Browser]:
    served, browser = console(**settings)
    assert "What needs a person" in browser.sign_in(name="ann").text
    return served, browser


def test_every_empty_page_says_what_would_be_there(console: Console) -> None:
    _, browser = signed_in(console)
    for path in PAGES:
        page = browser.get(path)
        assert page.status_code == 200, (path, page.text)
        assert "would" in page.text, path


def test_a_filter_that_nothing_fits_does_not_say_that_there_is_nothing(console: Console) -> None:
    served, browser = signed_in(console)
    in_doubt(served.services.store)
    ask(served)
    for path in ("/in-doubt?tool=another", "/approvals?status=rejected", "/records?tool=another"):
        text = browser.get(path).text
        assert "Nothing fits this filter" in text, path
        assert "would" not in text, path


def test_a_filter_that_was_mistyped_stays_in_its_field(console: Console) -> None:
    _, browser = signed_in(console)
    page = browser.get("/jobs?topic=send+mail&status=queued")
    assert page.status_code == 400
    assert 'name="topic" value="send mail"' in page.text
    assert 'role="alert"><b>Not done.</b> topic:' in page.text
    assert "hx-get" not in page.text  # it would be refused again and again
    assert "Show all" in page.text


def test_a_call_in_doubt_is_listed_explained_and_settled_once(console: Console) -> None:
    served, browser = signed_in(console)
    record = in_doubt(served.services.store)
    assert record["id"] in browser.get("/").text
    assert record["id"] in browser.get("/in-doubt").text
    page = f"/records/{record['id']}"
    shown = browser.get(page).text
    assert "What to ask:" in shown
    assert record["key"] in shown
    assert "1400000" in shown
    happened = forms_of(shown)[f"/console{page}/resolve"]
    settled = browser.post(f"{page}/resolve", happened | {"result": '{"refund": "re_1"}'})
    assert "Settled: it happened" in settled.text
    assert "re_1" in settled.text
    again = browser.post(f"{page}/resolve", happened | {"result": '{"refund": "re_1"}'})
    assert "said before" in again.text
    other = browser.post(f"{page}/resolve", happened | {"outcome": "did_not_happen"})
    assert other.status_code == 409
    assert "Not done." in other.text
    assert record["id"] not in browser.get("/in-doubt").text


def test_a_call_of_a_worker_leads_to_its_job_and_says_how_the_run_goes_on(console: Console) -> None:
    served, browser = signed_in(console)
    job = f"job_{'0' * 32}"
    page = f"/records/{in_doubt(served.services.store, conversation=f'job:{job}')['id']}"
    doubtful = browser.get(page).text
    assert f'href="/console/jobs/{job}"' in doubtful
    assert "run it again" not in doubtful
    settled = browser.send(page, f"{page}/resolve", outcome="did_not_happen").text
    assert "run it again" in settled
    other = in_doubt(served.services.store, payment="p-2", conversation='job:job_"><script>alert(1)')["id"]
    assert "<script>alert" not in browser.get(f"/records/{other}").text


def test_a_job_that_failed_over_a_call_in_doubt_leads_to_its_record(console: Console) -> None:
    served, browser = signed_in(console)
    client, record = served.client(), in_doubt(served.services.store)["id"]
    client.post("/api/v1/jobs", json={"topic": "pay", "input": {}})
    (job,) = client.post("/api/v1/leases", json={"topics": ["pay"]}).json()["jobs"]
    error = {
        "code": "OUTCOME_UNKNOWN",
        "message": f"Ask, then `semel records resolve {record}`.",
        "retriable": False,
    }
    result = {"fence": job["fence"], "status": "failed", "error": error}
    assert client.post(f"/api/v1/jobs/{job['job_id']}/result", json=result).status_code == 200
    assert f'href="/console/records/{record}"' in browser.get(f"/jobs/{job['job_id']}").text


def test_a_result_that_is_not_json_is_refused_and_stays_in_its_field(console: Console) -> None:
    served, browser = signed_in(console)
    page = f"/records/{in_doubt(served.services.store)['id']}"
    answer = browser.send(page, f"{page}/resolve", result="re_1 without quotes")
    assert answer.status_code == 400
    assert "re_1 without quotes</textarea>" in answer.text
    assert "in doubt" in answer.text


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ('{"transfer": 100000000000000000001}', "more than 64 bits; send it as a text"),
        ('{"a": 1, "a": 2}', "names a member of an object twice"),
        ("[1e400]", "is not JSON"),
        ('"\\u0000"', "NUL"),
    ],
)
def test_a_result_that_would_not_be_kept_as_it_was_typed_is_refused(
    console: Console, typed: str, why: str
) -> None:
    served, browser = signed_in(console)
    page = f"/records/{in_doubt(served.services.store)['id']}"
    answer = browser.send(page, f"{page}/resolve", result=typed)
    assert answer.status_code == 400
    assert why in answer.text
    assert "Nothing was changed" in answer.text
    assert browser.send(page, f"{page}/resolve", result='{"refund": "re_1"}').status_code == 200
    assert browser.send(page, f"{page}/amend", result=typed).status_code == 400


@pytest.mark.parametrize(
    "typed",
    [
        {"result": "[" * 300 + "]" * 300},
        {"result:integer:amount_minor": "[" * 300 + "]" * 300},
        {"result:string": "a field of no name"},
        {"result:secret:amount_minor": "5"},
        {"fence": "9" * 3_000},
    ],
    ids=["deep", "deep in a field", "no name", "no such kind", "long fence"],
)
def test_a_form_that_cannot_be_passed_on_is_refused_and_nothing_entered_is_lost(
    console: Console, typed: dict[str, str]
) -> None:
    served, browser = signed_in(console)
    page = f"/records/{in_doubt(served.services.store)['id']}"
    answer = browser.send(page, f"{page}/resolve", **{"result": "", **typed})
    assert answer.status_code == 400
    assert "Not done." in answer.text
    assert typed.get("result", "") in answer.text


def test_an_answer_about_an_earlier_attempt_settles_nothing(console: Console) -> None:
    served, browser = signed_in(console)
    page = f"/records/{in_doubt(served.services.store)['id']}"
    stale = browser.send(page, f"{page}/resolve", fence="1")
    assert stale.status_code == 409
    assert "another attempt" in stale.text


def test_a_question_is_approved_once_and_a_second_click_says_so(console: Console) -> None:
    served, browser = signed_in(console)
    job = ask(served)
    page = f"/approvals/{job}"
    assert job in browser.get("/").text
    fields = browser.forms(page)[f"/console{page}/approve"]
    assert "Approved." in browser.post(f"{page}/approve", fields).text
    assert "approved before" in browser.post(f"{page}/approve", fields).text
    rejected = browser.post(f"{page}/reject", fields | {"token": "0" * 64})
    assert rejected.status_code == 403


def test_a_page_that_was_overtaken_says_by_whom(console: Console) -> None:
    served, ann = signed_in(console)
    job = ask(served)
    page = f"/approvals/{job}"
    reject = ann.forms(page)[f"/console{page}/reject"]
    served.client(X_Principal_Id="bob").post(f"/api/v1/approvals/{job}/approve")
    answer = ann.post(f"{page}/reject", reject | {"reason": "no"})
    assert answer.status_code == 409
    assert "Approved by bob" in answer.text


def test_a_question_that_expired_since_it_was_drawn_says_so() -> None:
    clock = FakeClock()
    settings = GatewaySettings(url="memory://", dev=True, log="none")
    with embedded(settings, MemoryStore(clock=clock), pages=pages()) as (url, services):
        served, browser = Served(url, services), Browser(url)
        with served.clients, browser.http:
            browser.sign_in(name="ann")
            page = f"/approvals/{ask(served)}"
            fields = browser.forms(page)[f"/console{page}/approve"]
            clock.advance(8 * 86_400.0)
            browser.sign_in(name="ann")
            answer = browser.post(f"{page}/approve", fields)
            assert "Not done." in answer.text
            assert "Expired" in answer.text
            assert f"/console{page}/approve" not in forms_of(answer.text)


def test_what_is_approved_is_what_was_shown(console: Console) -> None:
    served, browser = signed_in(console)
    page = f"/approvals/{ask(served)}"
    answer = browser.send(page, f"{page}/approve", job_hash="0" * 64)
    assert answer.status_code == 409
    assert "waiting" in answer.text


def test_a_question_says_why_it_is_asked(console: Console) -> None:
    served, browser = signed_in(console)
    body = {"topic": "pay", "input": {"order": 1}, "approval": {"reason": "more than 10 000 EUR"}}
    job = served.client(X_Principal_Id="bot").post("/api/v1/jobs", json=body).json()["job_id"]
    page = f"/approvals/{job}"
    assert "more than 10 000 EUR" in browser.get(page).text
    # Its words are the asker's: a field for the decider's is empty.
    assert browser.forms(page)[f"/console{page}/approve"]["reason"] == ""


def test_nothing_of_what_is_approved_is_left_out_however_long_it_is(console: Console) -> None:
    served, browser = signed_in(console)
    body = {"topic": "pay", "input": {"first": "z" * 50_000, "then": "to-Mallory"}, "approval": True}
    job = served.client(X_Principal_Id="bot").post("/api/v1/jobs", json=body).json()["job_id"]
    assert "to-Mallory" in browser.get(f"/approvals/{job}").text
    assert "to-Mallory" not in browser.get(f"/jobs/{job}").text  # where nothing is decided it is cut


def test_a_question_of_ones_own_is_for_somebody_else_to_decide(console: Console) -> None:
    served, browser = console()
    browser.sign_in(name="bot")
    page = f"/approvals/{ask(served)}"
    assert not {f"/console{page}/approve", f"/console{page}/reject"} & browser.forms(page).keys()
    assert "somebody else has to decide" in browser.get(page).text


def test_a_rejection_has_its_reason(console: Console) -> None:
    served, browser = signed_in(console)
    page = f"/approvals/{ask(served)}"
    assert "too much" in browser.send(page, f"{page}/reject", reason="too much").text


def test_a_run_is_shown_cancelled_and_run_again(console: Console) -> None:
    served, browser = signed_in(console)
    client = served.client()
    define(
        client,
        "ship",
        {"id": "pack", "topic": "pack"},
        {"id": "send", "topic": "send", "depends_on": ["pack"]},
    )
    run = start_run(client, {"order": 7}, name="ship").json()["run_id"]
    page = f"/runs/{run}"
    assert run in browser.get("/runs?status=running").text
    assert "<svg" in browser.get(page).text
    assert "Cancelled." in browser.send(page, f"{page}/cancel").text
    fields = browser.forms(page)[f"/console{page}/rerun"] | {"from_step": "pack"}
    first, second = browser.post(f"{page}/rerun", fields), browser.post(f"{page}/rerun", fields)
    assert "This is the new run." in first.text
    assert "nothing was begun again" in second.text
    assert first.url.path == second.url.path


def test_steps_whose_long_names_begin_alike_are_told_apart_in_the_drawing(console: Console) -> None:
    served, browser = signed_in(console)
    steps = [{"id": f"notify-every-customer-{number}", "topic": "notify"} for number in range(2)]
    define(served.client(), "ship", *steps)
    run = start_run(served.client(), {}, name="ship").json()["run_id"]
    labels = re.findall(r'<text x="[0-9]+" y="[0-9]+">([^<]*)<', browser.get(f"/runs/{run}").text)
    assert len(set(labels)) == 2
    assert all(len(label) <= 18 for label in labels)


def test_slots_are_shown_against_each_limit(console: Console) -> None:
    served, browser = signed_in(console)
    define(served.client(), "ship", {"id": "pack", "topic": "pack"}, max_concurrent_runs=1)
    start_run(served.client(), {}, name="ship")
    text = browser.get("/").text
    assert "<b>1 of 10</b> Slots used" in text
    assert "<b>1 of 1</b> Slots of ship" in text


def test_a_limit_that_is_used_up_is_shown_however_many_others_there_are(console: Console) -> None:
    served, browser = signed_in(console)
    define(served.client(), "ship", {"id": "pack", "topic": "pack"}, max_concurrent_runs=1)
    start_run(served.client(), {}, name="ship")
    for number in range(25):
        define(served.client(), f"idle-{number}", {"id": "pack", "topic": "pack"}, max_concurrent_runs=2)
    text = browser.get("/").text
    assert "<b>1 of 1</b> Slots of ship" in text
    assert text.index("Slots of ship") < text.index("Slots of idle-24")  # the fullest first
    served.client().delete("/api/v1/workflows/ship")
    assert "Slots of idle-24" in browser.get("/").text


def test_a_dead_letter_is_sent_again_once(console: Console) -> None:
    served, browser = signed_in(console)
    letter = asyncio.run(put_aside(served.services.store))
    page = f"/dead-letters/{letter}"
    assert letter in browser.get("/").text
    assert letter in browser.get("/dead-letters?status=put_aside&consumer=mailer").text
    assert letter not in browser.get("/dead-letters?consumer=another").text
    assert "<script>alert" not in browser.get(page).text
    fields = browser.forms(page)[f"/console{page}/retry"]
    assert f"semel dead-letters retry {letter}" in browser.get(page).text
    sent = browser.post(f"{page}/retry", fields).text
    assert "Sent again." in sent
    assert "semel dead-letters retry" not in sent  # nor is it done again on a command line
    assert "sent again before" in browser.post(f"{page}/retry", fields).text
    assert letter not in browser.get("/").text
    assert letter not in browser.get("/dead-letters?status=put_aside").text
    assert letter in browser.get("/dead-letters?status=retried").text


def test_a_job_is_cancelled(console: Console) -> None:
    served, browser = signed_in(console)
    job = served.client().post("/api/v1/jobs", json={"topic": "mail", "input": {"to": "a"}}).json()["job_id"]
    page = f"/jobs/{job}"
    assert job in browser.get("/jobs?topic=mail").text
    assert "Cancelled." in browser.send(page, f"{page}/cancel").text


def test_a_tool_shows_its_contract_its_calls_and_its_ages(console: Console) -> None:
    served, browser = signed_in(console)
    record = in_doubt(served.services.store)
    assert "issue_refund" in browser.get("/tools").text
    page = browser.get("/tools/issue_refund").text
    assert record["id"] in page
    assert "Pays a customer back." in page
    assert browser.get("/tools/issue_refund/ages").status_code == 200
    assert "would be here" in browser.get("/tools/issue_refund/duplicates").text
    assert browser.get("/tools/another").status_code == 404


def test_the_audit_log_is_searched_and_exported(console: Console) -> None:
    served, browser = signed_in(console)
    record = in_doubt(served.services.store)
    assert record["id"] in browser.get("/audit").text
    assert record["id"] in browser.get(f"/audit?key={record['key']}").text
    assert record["id"] not in browser.get("/audit?tool=another").text
    assert record["key"] in browser.get("/audit/export").text
    assert "whole history" in browser.get(f"/audit?key={record['key']}").text


def test_the_audit_log_begins_with_what_happened_last(console: Console) -> None:
    served, browser = signed_in(console)
    first, last = (in_doubt(served.services.store, payment=name)["id"] for name in ("p-1", "p-2"))
    page = browser.get("/audit").text
    assert page.index(last) < page.index(first)
    turned = browser.get("/audit?order=oldest").text
    assert turned.index(first) < turned.index(last)
    assert 'href="?order=oldest"' in page
    # A search keeps the order, and its pages do.
    assert browser.forms("/audit?order=oldest")[""]["order"] == "oldest"
    assert browser.get("/audit?order=odd").status_code == 200


def test_the_audit_page_has_the_head_that_verify_prints(console: Console) -> None:
    served, browser = signed_in(console)
    store = served.services.store
    in_doubt(store)
    while store.ask(SealEvents()) is not None:
        pass
    head = verify(store, tenants=("default",)).head
    assert head is not None
    page = browser.get("/audit").text
    assert head.hash.hex() in page
    assert "Every event is under a seal" in page


@pytest.mark.parametrize("tool", [send_payout, send_transfer], ids=["dataclass", "model"])
def test_a_result_is_given_in_fields_of_the_tools_schema(
    console: Console, tool: Callable[..., object]
) -> None:
    served, browser = signed_in(console)
    call = partial(tool, supplier="Baker", amount_minor=5)
    page = f"/records/{in_doubt(served.services.store, call=call)['id']}"
    # The last one is a whole number that its type would not hold again.
    for amount in ("five", "5.5", "true", "100000000000000000001"):
        wrong = {"result:string:payout_id": "po_1", "result:integer:amount_minor": amount}
        refused = browser.send(page, f"{page}/resolve", **wrong)
        assert refused.status_code == 400
        assert "amount_minor has to be of the type integer" in refused.text
    again = forms_of(refused.text)[f"/console{page}/resolve"]
    assert again["result:string:payout_id"] == "po_1"
    settled = browser.post(f"{page}/resolve", again | {"result:integer:amount_minor": "5"})
    assert "Settled: it happened" in settled.text
    assert "po_1" in settled.text


def test_a_question_that_was_withdrawn_says_by_whom_and_when(console: Console) -> None:
    served, browser = signed_in(console)
    page = f"/approvals/{(job := ask(served))}"
    served.client(X_Principal_Id="bot").post(f"/api/v1/jobs/{job}/cancel")
    text = browser.get(page).text
    assert "Cancelled by bot" in text
    assert "<time" in text.split("Cancelled by bot")[1][:200]


def test_what_users_write_is_shown_and_never_run(console: Console) -> None:
    served, browser = console()
    browser.sign_in(name=HOSTILE.replace("\u202e", ""))
    client = served.client(X_Principal_Id="bot")
    define(client, "ship", {"id": "pack", "topic": "pack"})
    record = in_doubt(served.services.store)
    run = start_run(client, {"text": HOSTILE}, name="ship").json()["run_id"]
    job = ask(served, HOSTILE, label=HOSTILE[:200])
    letter = asyncio.run(put_aside(served.services.store))
    browser.send(f"/approvals/{job}", f"/approvals/{job}/reject", reason=HOSTILE)
    (failing,) = client.post("/api/v1/leases", json={"topics": ["pack"]}).json()["jobs"]
    error = {"code": "X", "message": HOSTILE, "traceback": HOSTILE}
    failed = {"fence": failing["fence"], "status": "failed", "error": error}
    assert client.post(f"/api/v1/jobs/{failing['job_id']}/result", json=failed).status_code == 200
    for path in (*PAGES, f"/records/{record['id']}", f"/runs/{run}", f"/approvals/{job}", f"/jobs/{job}",
                 f"/jobs/{failing['job_id']}", f"/dead-letters/{letter}", "/tools/issue_refund",
                 "/tools/issue_refund/ages", "/tools/issue_refund/duplicates", "/sign-in",
                 f"/records?tool={HOSTILE}", f"/audit?by={HOSTILE}", f"/nowhere/{HOSTILE}",
                 f"/tools/{HOSTILE}", f"/?told={HOSTILE}"):  # fmt: skip
        text = browser.get(path).text
        # Nothing turns what is read around, but in the field where it was typed.
        assert "\u202e" not in text or "?" in path, path
        assert "<script>alert" not in text, path
        assert "<img src=x" not in text, path
        assert "49" not in text.split("{{7*7}}")[0][-3:], path


def test_an_address_says_nothing_that_is_not_so(console: Console) -> None:
    """As one that somebody kept, or sends: what a page says was done is so while it is still so."""
    served, browser = signed_in(console)
    record, job = in_doubt(served.services.store), ask(served)
    for told in ("happened", "did-not-happen", "probed", "amended", "said-before"):
        page = browser.get(f"/records/{record['id']}?told={told}").text
        assert 'role="status"' not in page, told
    for told in ("approved", "rejected", "already-approved", "already-rejected"):
        assert 'role="status"' not in browser.get(f"/approvals/{job}?told={told}").text, told
    assert 'role="status"' not in browser.get(f"/jobs/{job}?told=cancelled").text


def test_what_is_not_there_is_said_on_a_page_that_leads_on(console: Console) -> None:
    _, browser = signed_in(console)
    for path in (f"/records/rec_{'0' * 32}", "/records?state=odd", "/tools/none"):
        page = browser.get(path)
        assert page.status_code in (400, 404)
        assert 'aria-label="Pages"' in page.text, path
        assert "<b>ann</b>" in page.text, path


# --- who may ---------------------------------------------------------------------------------------


def holder(served: Served, browser: Browser, *roles: str, **whose: str) -> None:
    assert browser.sign_in(key=served.key(*roles, **whose)).status_code == 200


@pytest.mark.parametrize("role", ROLES)
def test_a_role_sees_and_does_only_what_is_its_own(console: Console, role: str) -> None:
    served, browser = console(dev=False)
    record = in_doubt(served.services.store, "acme")
    admin = served.holder("admin", "submitter", principal="root")
    job = admin.post("/api/v1/jobs", json={"topic": "pay", "input": {}, "approval": True}).json()["job_id"]
    holder(served, browser, role)
    resolve, approve = f"/records/{record['id']}/resolve", f"/approvals/{job}/approve"
    assert (f"/console{resolve}" in browser.forms(f"/records/{record['id']}")) is (role == "admin")
    assert (f"/console{approve}" in browser.forms(f"/approvals/{job}")) is (role == "approver")
    assert ("/console/audit" in browser.get("/").text) is (role in ("admin", "auditor"))
    session = browser.forms("/")["/console/sign-out"]["token"]
    for action in (resolve, approve):
        assert browser.post(action, {"token": session}).status_code == 403  # a token is of one form
    if role not in ("admin", "auditor"):
        assert browser.get("/audit").status_code == 403


def forged(served: Served, browser: Browser, action: str) -> dict[str, str]:
    """The form that goes there, with its right token, though no page showed it."""

    async def token() -> str:
        sessions = Sessions(DocumentStore(served.services.store), "key")
        session = await sessions.find(browser.http.cookies["semel_console"])
        assert session is not None
        return session.form_token(f"/console{action}")

    return {"token": asyncio.run(token()), "outcome": "did_not_happen", "result": "1"}


def acts(served: Served) -> dict[str, str]:
    """Every address that does something to a thing of the tenant `acme`, and the role it takes."""
    record = in_doubt(served.services.store, "acme")["id"]
    client = served.holder("admin", "submitter", principal="root")
    define(client, "ship", {"id": "pack", "topic": "pack"})
    run = start_run(client, {}, name="ship").json()["run_id"]
    question, job = (
        client.post("/api/v1/jobs", json={"topic": "pay", "input": {}, "approval": asked}).json()["job_id"]
        for asked in (True, False)
    )
    letter = asyncio.run(put_aside(served.services.store, tenant="acme"))
    return {
        **{f"/records/{record}/{act}": "admin" for act in ("resolve", "amend", "probe")},
        **{f"/approvals/{question}/{act}": "approver" for act in ("approve", "reject")},
        **{f"/runs/{run}/{act}": "submitter" for act in ("cancel", "rerun")},
        f"/jobs/{job}/cancel": "submitter",
        f"/dead-letters/{letter}/retry": "admin",
    }


def test_every_address_that_does_something_is_among_those_that_are_tried(console: Console) -> None:
    served, _ = console(dev=False)
    tried = {re.sub("/[a-z]+_[0-9a-f]{32}/", "/*/", action) for action in acts(served)}
    assert tried == {re.sub("{.*}", "*", path) for path in DONE}


@pytest.mark.parametrize("role", ROLES)
def test_what_a_role_may_not_do_is_refused_even_with_the_right_token(console: Console, role: str) -> None:
    served, browser = console(dev=False)
    its_own = {"admin": ("admin", "submitter")}.get(role, (role,))
    holder(served, browser, role)
    for action, needed in acts(served).items():
        answer = browser.post(action, forged(served, browser, action))
        assert (answer.status_code == 403) is (needed not in its_own), action


def test_another_tenants_things_are_not_there(console: Console) -> None:
    served, browser = console(dev=False)
    things = acts(served)
    holder(served, browser, *ROLES, tenant="other")
    for action in things:
        page = action.rpartition("/")[0]
        thing = page.rpartition("/")[2]
        assert thing not in browser.get("/").text
        assert browser.get(page).status_code == 404, page
        assert browser.post(action, forged(served, browser, action)).status_code == 404, action
        assert thing not in browser.get("/audit/export").text


# --- sessions --------------------------------------------------------------------------------------


def test_nobody_sees_anything_without_a_session(console: Console) -> None:
    served, browser = console(dev=False)
    record = in_doubt(served.services.store, "acme")
    for path in (*PAGES, f"/records/{record['id']}"):
        answer = browser.get(path)
        assert answer.status_code == 401
        assert record["id"] not in answer.text.replace(f"/records/{record['id']}", "")


def test_a_session_ends_with_sign_out_and_with_its_key(console: Console) -> None:
    served, browser = console(dev=False)
    holder(served, browser, "admin")
    stolen = served.client(Cookie=f"semel_console={browser.http.cookies['semel_console']}")
    assert stolen.get("/console/").status_code == 200
    browser.send("/", "/sign-out")
    assert stolen.get("/console/").status_code == 401
    key = served.key("admin")
    browser.sign_in(key=key)
    asyncio.run(ApiKeys(DocumentStore(served.services.store)).revoke(key.split("_")[1]))
    assert browser.get("/").status_code == 401


def test_a_page_that_refreshes_itself_keeps_no_session_alive() -> None:
    """Somebody went home and left the overview open: it asks every few seconds, and nobody looks."""
    clock = FakeClock()
    settings = GatewaySettings(url="memory://", dev=True, log="none")
    with embedded(settings, MemoryStore(clock=clock), pages=pages()) as (url, _):
        browser = Browser(url)
        with browser.http:
            browser.sign_in(name="ann")
            asked = []
            for _ in range(7):
                asked.append(browser.http.get("/console/", headers={"hx-request": "true"}).status_code)
                clock.advance(600.0)
            assert asked == [200] * 6 + [401]


def test_signing_in_again_ends_the_session_before(console: Console) -> None:
    served, browser = signed_in(console)
    first = browser.http.cookies["semel_console"]
    browser.sign_in(name="bob")
    assert browser.http.cookies["semel_console"] != first
    stolen = served.client(Cookie=f"semel_console={first}")
    assert stolen.get("/console/").status_code == 401


def test_what_was_sent_after_the_session_ended_can_be_sent_again(console: Console) -> None:
    served, browser = signed_in(console)
    page = f"/approvals/{ask(served)}"
    fields = browser.forms(page)[f"/console{page}/reject"] | {"reason": "a long reason"}
    browser.send("/", "/sign-out")
    lost = browser.post(f"{page}/reject", fields)
    assert lost.status_code == 401
    wrong = browser.post("/sign-in", forms_of(lost.text)["/console/sign-in"] | {"name": " "})
    back = browser.post("/sign-in", forms_of(wrong.text)["/console/sign-in"] | {"name": "ann"})
    assert back.status_code == 200
    assert "Not done yet" in back.text
    assert "waiting" in back.text  # the question as it is now
    again = forms_of(back.text)[f"/console{page}/reject"]
    assert again["reason"] == "a long reason"
    assert "Rejected by ann" in browser.post(f"{page}/reject", again).text


def test_a_field_is_kept_under_the_very_name_that_it_had(console: Console) -> None:
    """A member of a result may have any name: also one with a sign that nobody sees."""
    served, browser = signed_in(console)
    page = f"/records/{in_doubt(served.services.store)['id']}"
    fields = browser.forms(page)[f"/console{page}/resolve"] | {"result:string:no\u00ad": "7"}
    browser.send("/", "/sign-out")
    kept = forms_of(browser.post(f"{page}/resolve", fields).text)["/console/sign-in"]
    assert kept["kept.result:string:no\u00ad"] == "7"


def test_what_was_sent_under_an_earlier_session_is_in_its_field_again(console: Console) -> None:
    served, browser = signed_in(console)
    page = f"/records/{in_doubt(served.services.store)['id']}"
    fields = browser.forms(page)[f"/console{page}/resolve"] | {"result": '{"refund": "re_7"}'}
    browser.sign_in(name="ann")  # in another tab, of the same browser
    answer = browser.post(f"{page}/resolve", fields)
    assert answer.status_code == 403
    assert "Not done." in answer.text
    assert "re_7" in answer.text
    again = forms_of(answer.text)[f"/console{page}/resolve"] | {"result": '{"refund": "re_7"}'}
    assert "Settled: it happened" in browser.post(f"{page}/resolve", again).text


def test_nothing_entered_is_lost_by_a_sign_in_that_fails(console: Console) -> None:
    served, browser = console(dev=False)
    holder(served, browser, "approver")
    asked = served.holder("submitter", principal="bot")
    job = asked.post("/api/v1/jobs", json={"topic": "pay", "input": {}, "approval": True}).json()["job_id"]
    page = f"/approvals/{job}"
    fields = browser.forms(page)[f"/console{page}/reject"] | {"reason": "a long reason"}
    browser.send("/", "/sign-out")
    text = browser.post(f"{page}/reject", fields).text
    browser.http.cookies.delete("semel_sign_in")  # as if it had been used in another tab
    for _ in range(12):  # too old a page, wrong keys, too many of them
        text = browser.post("/sign-in", forms_of(text)["/console/sign-in"] | {"key": "semel_0_x"}).text
    assert "Too many" in text
    assert forms_of(text)["/console/sign-in"]["kept.reason"] == "a long reason"


def test_people_behind_one_address_sign_in_as_often_as_they_like(console: Console) -> None:
    _, browser = console()
    assert {browser.sign_in(name=f"ann {number}").status_code for number in range(15)} == {200}


def test_two_tabs_can_ask_who_it_is(console: Console) -> None:
    _, browser = console()
    first = browser.forms("/sign-in")["/console/sign-in"]
    browser.get("/sign-in")
    assert "What needs a person" in browser.post("/sign-in", first | {"name": "ann"}).text


def test_the_address_of_a_form_leads_to_its_page(console: Console) -> None:
    """As after a refusal, when somebody presses Enter in the address bar; and for what refreshes itself."""
    served, browser = signed_in(console)
    page = f"/records/{in_doubt(served.services.store)['id']}"
    assert browser.get(f"{page}/resolve").url.path == f"/console{page}"
    assert browser.http.get("/console/sign-out").headers["allow"] == "POST"
    assert browser.http.request("OPTIONS", f"/console{page}").status_code == 405


def test_guessing_keys_is_slowed_down(console: Console) -> None:
    _, browser = console(dev=False)
    answers = [browser.sign_in(key="semel_0123456789abcdef_guess").status_code for _ in range(12)]
    assert answers[0] == 401
    assert answers[-1] == 429


# --- pages of others -------------------------------------------------------------------------------


def test_forms_of_other_pages_are_refused(console: Console) -> None:
    served, browser = signed_in(console)
    page = f"/approvals/{ask(served)}"
    fields = browser.forms(page)[f"/console{page}/approve"]
    for origin in ("http://evil.example", "null", ""):
        assert browser.post(f"{page}/approve", fields, origin=origin).status_code == 403
    assert browser.post(f"{page}/approve", fields | {"token": ""}).status_code == 403
    for host in (
        "evil.example",
        "127.0.0.1.evil.example",
        "[::1].evil.example",
        "127.0.0.1:1@evil.example",
        "",
    ):
        refused = browser.http.get("/console/", headers={"host": host})
        assert refused.status_code == 403, host
        assert "roles" not in refused.text
    assert "waiting" in browser.get(page).text


def test_a_browser_is_told_to_run_and_keep_nothing(console: Console) -> None:
    _, browser = signed_in(console)
    page = browser.get("/")
    assert "unsafe" not in page.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert page.headers["cache-control"] == "no-store"
    assert " style=" not in page.text
    assert " onclick=" not in page.text


def test_every_answer_is_guarded_and_none_leads_to_a_host_of_others(console: Console) -> None:
    _, browser = signed_in(console)
    ways = """GET /; GET /sign-in; GET /nowhere; GET /records?state=odd; GET /records/rec_0; GET ; GET /runs/;
        GET /runs//; GET /static/console.css; GET /static/no.css; GET /audit/export; GET /jobs/job_0/cancel;
        HEAD /runs; PUT /runs; OPTIONS /sign-out; POST /sign-out"""
    browser.http.follow_redirects = False
    for host in (browser.http.base_url.netloc.decode(), "evil.example"):
        for way in ways.split(";"):
            method, path = way.strip(" \n").ljust(4).split(" ")
            answer = browser.http.request(method, f"/console{path}", headers={"host": host})
            assert "default-src 'none'" in answer.headers.get("content-security-policy", ""), way
            assert answer.headers["x-content-type-options"] == "nosniff", way
            assert answer.headers.get("location", "/console").startswith("/console"), way


def test_what_else_is_tried_from_outside_does_nothing(console: Console) -> None:
    served, browser = signed_in(console)
    page = f"/approvals/{ask(served)}"
    fields = browser.forms(page)[f"/console{page}/approve"]
    for path in ("../app.py", "..%2f..%2fapp.py", "%2e%2e/app.py", "no.css"):
        assert browser.get(f"/static/{path}").status_code == 404, path
    override = {"x-http-method-override": "POST", "content-type": "application/x-www-form-urlencoded"}
    browser.http.request("GET", f"/console{page}/approve", params=fields, headers=override)
    assert browser.post(f"{page}/approve", fields | {"reason": "x" * (4 << 20)}).status_code == 413
    many = fields | {f"n{number}": "" for number in range(100)}
    assert browser.post(f"{page}/approve", many).status_code == 400
    head = browser.http.head(f"/console{page}")
    assert (head.status_code, head.headers["cache-control"], head.content) == (200, "no-store", b"")
    other = browser.http.get(f"/console{page}", headers={"x-tenant-id": "other", "x-principal-id": "eve"})
    assert "<b>ann</b>" in other.text  # a session says whose it is, and nothing else does
    assert "waiting" in browser.get(page).text


def test_a_token_that_was_planted_is_not_taken_over(console: Console) -> None:
    _, browser = console()
    browser.http.cookies.set("semel_console", "0" * 64, path="/console")
    assert "What needs a person" in browser.sign_in(name="ann").text
    held = [cookie.value for cookie in browser.http.cookies.jar if cookie.name == "semel_console"]
    assert any(value != "0" * 64 for value in held)
    stolen = Browser(str(browser.http.base_url))
    with stolen.http:
        stolen.http.cookies.set("semel_console", "0" * 64, path="/console")
        assert stolen.get("/").status_code == 401


def test_behind_a_proxy_its_name_counts_and_cookies_are_secure(console: Console) -> None:
    _, browser = console(public_url="https://semel.example")
    assert browser.get("/").status_code == 403
    for other in ("semel.example:80", "semel.example:4430", "semel.example:443:443", "evil.example:443"):
        assert browser.http.get("/console/sign-in", headers={"host": other}).status_code == 403, other
    # Some proxies name the port, too, that goes without saying.
    assert browser.http.get("/console/sign-in", headers={"host": "semel.example:443"}).status_code == 401
    answer = browser.http.get("/console/sign-in", headers={"host": "semel.example"})
    cookie = answer.headers["set-cookie"].lower()
    assert all(word in cookie for word in ("secure", "httponly", "samesite=strict", "path=/console"))


def test_a_cookie_is_taken_back_as_it_was_given(console: Console) -> None:
    """Whatever is said of it keeps it from scripts, other sites and plain HTTP."""
    _, browser = console(public_url="https://semel.example")
    browser.http.headers["host"] = "semel.example"
    browser.http.follow_redirects = False
    said = []

    def send(action: str, fields: dict[str, str], cookies: str) -> str:
        answer = browser.post(action, fields, origin="https://semel.example", cookie=cookies)
        assert answer.status_code == 303
        said.extend(answer.headers.get_list("set-cookie"))
        return said[-2 if action == "/sign-in" else -1].partition(";")[0]

    asked = browser.get("/sign-in")
    before = asked.headers["set-cookie"].partition(";")[0]
    session = send("/sign-in", forms_of(asked.text)["/console/sign-in"] | {"name": "ann"}, before)
    page = browser.http.get("/console/", headers={"cookie": session})
    send("/sign-out", forms_of(page.text)["/console/sign-out"], session)
    assert len(said) == 3
    for cookie in said:
        assert all(word in cookie.lower() for word in ("; secure", "; httponly", "; samesite=strict")), cookie


def test_signing_in_leads_back_to_where_one_was_and_nowhere_else(console: Console) -> None:
    _, browser = console()
    fields = forms_of(browser.get("/runs?status=failed").text)["/console/sign-in"] | {"name": "ann"}
    assert str(browser.post("/sign-in", fields).url).endswith("/console/runs?status=failed")
    for back in ("https://evil.example/", "//evil.example", "/console/\\evil", "/api/v1/runs"):
        fields = browser.forms("/sign-in")["/console/sign-in"] | {"name": "ann", "back": back}
        assert browser.post("/sign-in", fields).url.path == "/console/"
