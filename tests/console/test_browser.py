"""The console in a real browser: Debian's Chromium, on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest

from semel.console.app import pages
from semel.flow.document_store import DocumentStore
from semel.gateway.auth import ApiKeys
from semel.gateway.server import embedded
from semel.gateway.settings import GatewaySettings
from semel.stores.urls import open_store
from tests import missing
from tests.console.scenes import HOSTILE, in_doubt, put_aside
from tests.console.test_pages import PAGES, ask
from tests.gateway.conftest import Served, define, start_run
from tests.gateway.serving import quiet_environment

playwright = missing.library("playwright.sync_api")

Made = TypeVar("Made")

AXE = "axe-core@4.14.0"


# Of this file only: while Playwright is up, its event loop counts as running on this thread, so that nothing
# else that the same process tests could start one of its own.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    program = shutil.which("chromium")
    if program is None:
        missing.cannot("chromium is missing; run: sudo apt-get install chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The audit's program, from npm; it is not shipped."""
    npm = shutil.which("npm")
    if npm is None:
        missing.cannot("npm is missing; run: sudo apt-get install npm")
    folder = tmp_path_factory.mktemp("axe")
    subprocess.run([npm, "pack", "--silent", AXE], cwd=folder, check=True, capture_output=True)
    with tarfile.open(next(folder.glob("*.tgz"))) as package:
        package.extractall(folder, filter="data")
    return (folder / "package" / "axe.min.js").read_text()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/semel.db"
    from tests.postgres_server import shared_url

    return shared_url(f"console_{abs(hash(str(tmp_path)))}")


Open = Callable[..., Any]


@pytest.fixture
def served(url: str) -> Iterator[Served]:
    with ExitStack() as stack:
        settings = GatewaySettings(url=url, dev=True, log="none")
        where, services = stack.enter_context(embedded(settings, open_store(url), pages=pages()))
        gateway = Served(where, services)
        stack.enter_context(gateway.clients)
        yield gateway


@pytest.fixture
def tab(chromium: Any, served: Served) -> Iterator[Open]:
    """Opens tabs of people who signed in; whatever a page complains of fails the test."""
    complaints: list[str] = []
    with ExitStack() as stack:

        def start(name: str = "ann", **options: Any) -> Any:
            context = chromium.new_context(**options)
            stack.callback(context.close)
            page = context.new_page()
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("dialog", lambda dialog: complaints.append(dialog.message))
            page.on("console", lambda said: _noted(complaints, said))
            page.goto(f"{served.url}/console/")
            page.get_by_label("Your name").fill(name)
            page.get_by_role("button", name="Sign in").click()
            page.get_by_role("heading", name="What needs a person").wait_for()
            return page

        yield start
    assert complaints == []


def _noted(complaints: list[str], said: Any) -> None:
    if said.type == "error" and not re.search("status of|Status Error Code", said.text):
        complaints.append(said.text)


def elsewhere(work: Coroutine[Any, Any, Made]) -> Made:
    """Done on another thread: on this one Playwright's event loop runs."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, work).result()


def program(url: str, how: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.console.worker_that_dies", url, how],
        env=quiet_environment(), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_a_killed_call_is_settled_and_the_waiting_agent_gets_its_answer(
    served: Served, tab: Open, url: str
) -> None:
    with program(url, "kill") as killed:
        assert killed.wait() == -9
    with program(url, "wait") as agent:
        page = tab()
        page.get_by_role("region", name="In doubt").get_by_role("link").first.click()
        page.get_by_label("What it returned").fill('{"refund": "re_9"}')
        page.get_by_role("button", name="It happened").click()
        assert "it happened" in page.get_by_role("status").inner_text()
        assert agent.communicate()[0] == "{'refund': 're_9'}\n"
        assert agent.returncode == 0


def test_approving_in_two_tabs_at_once_is_one_decision(served: Served, tab: Open) -> None:
    address = f"{served.url}/console/approvals/{ask(served)}"
    ann, bob = tab("ann"), tab("bob")
    for page in (ann, bob):
        page.goto(address)
    ann.get_by_role("button", name="Approve").click()
    bob.get_by_role("button", name="Approve").click()
    assert "Approved." in ann.get_by_role("status").inner_text()
    assert "approved before" in bob.get_by_role("status").inner_text()
    assert "Approved by ann" in bob.inner_text("main")


def test_a_question_that_was_withdrawn_or_decided_since_it_was_drawn_says_so(
    served: Served, tab: Open
) -> None:
    page, client = tab(), served.client(X_Principal_Id="bot")
    job = ask(served)
    page.goto(f"{served.url}/console/approvals/{job}")
    client.post(f"/api/v1/jobs/{job}/cancel")
    page.get_by_role("button", name="Approve").click()
    assert "Not done." in page.get_by_role("alert").inner_text()
    job = ask(served, "another")
    page.goto(f"{served.url}/console/approvals/{job}")
    served.client(X_Principal_Id="bob").post(f"/api/v1/approvals/{job}/approve")
    page.get_by_label("Reason against it").fill("too much")
    page.get_by_role("button", name="Reject").click()
    assert "Approved by bob" in page.inner_text("main")


def test_a_rejection_carries_its_reason(served: Served, tab: Open) -> None:
    page = tab()
    page.goto(f"{served.url}/console/approvals/{ask(served)}")
    page.get_by_label("Reason against it").fill("too much")
    page.get_by_role("button", name="Reject").click()
    assert "too much" in page.inner_text("main")


def test_a_run_is_followed_to_its_end_without_a_reload(served: Served, tab: Open) -> None:
    client, page = served.client(), tab()
    define(client, "ship", {"id": "pack", "topic": "pack"})
    run = start_run(client, {"order": 1}, name="ship").json()["run_id"]
    page.goto(f"{served.url}/console/runs/{run}")
    assert "running" in page.inner_text("h1")
    (job,) = client.post("/api/v1/leases", json={"topics": ["pack"]}).json()["jobs"]
    result = {"fence": job["fence"], "status": "succeeded", "result": {"parcel": 1}}
    client.post(f"/api/v1/jobs/{job['job_id']}/result", json=result)
    page.locator("h1", has_text="succeeded").wait_for()
    page.get_by_role("button", name="Run again").click()
    assert "the new run" in page.get_by_role("status").inner_text()
    page.get_by_role("button", name="Cancel the run").click()
    page.locator("h1", has_text="cancelled").wait_for()


def test_a_refresh_keeps_the_place_of_the_keyboard_and_says_what_is_new(served: Served, tab: Open) -> None:
    first = in_doubt(served.services.store, reason="")
    page = tab()
    link = page.locator(f"#live a[href$='{first['id']}']")
    link.focus()
    in_doubt(served.services.store, payment="p-2", reason="")
    page.locator(".card b", has_text="2").wait_for()
    assert page.evaluate("document.activeElement.href").endswith(first["id"])
    assert "In doubt: 2." in page.locator("#news").inner_text()


def test_a_refresh_leaves_what_was_scrolled_where_it_was(served: Served, tab: Open) -> None:
    client, page = served.client(), tab(viewport={"width": 360, "height": 800})
    define(
        client, "ship", {"id": "pack", "topic": "pack"}, {"id": "send", "topic": "s", "depends_on": ["pack"]}
    )
    page.goto(f"{served.url}/console/runs/{start_run(client, {}, name='ship').json()['run_id']}")
    graph = page.get_by_role("region", name="Steps")
    assert graph.evaluate("each => { each.scrollLeft = 40; return each.scrollLeft }") == 40
    (job,) = client.post("/api/v1/leases", json={"topics": ["pack"]}).json()["jobs"]
    done = {"fence": job["fence"], "status": "succeeded", "result": {"parcel": 1}}
    client.post(f"/api/v1/jobs/{job['job_id']}/result", json=done)
    page.locator(".steps", has_text="pack succeeded").wait_for()
    assert graph.evaluate("each => each.scrollLeft") == 40


def test_a_refresh_that_failed_is_said_until_one_succeeds(served: Served, tab: Open) -> None:
    """What stands there says that the store answers."""
    page = tab()
    page.route("**/console/", lambda route: route.fulfill(status=503, body="The store cannot be reached."))
    page.get_by_role("alert").get_by_text("What you see is old").wait_for()
    page.unroute("**/console/")
    page.locator("#stale").wait_for(state="hidden")


def test_a_run_is_run_again_from_a_step(served: Served, tab: Open) -> None:
    client, page = served.client(), tab()
    define(
        client, "ship", {"id": "pack", "topic": "pack"}, {"id": "send", "topic": "s", "depends_on": ["pack"]}
    )
    run = start_run(client, {"order": 1}, name="ship").json()["run_id"]
    (job,) = client.post("/api/v1/leases", json={"topics": ["pack"]}).json()["jobs"]
    done = {"fence": job["fence"], "status": "succeeded", "result": {"parcel": 1}}
    client.post(f"/api/v1/jobs/{job['job_id']}/result", json=done)
    client.post(f"/api/v1/runs/{run}/cancel")
    page.goto(f"{served.url}/console/runs/{run}")
    page.get_by_label("From the step").select_option("send")
    page.get_by_role("button", name="Run again").click()
    assert "the new run" in page.get_by_role("status").inner_text()
    assert "pack succeeded" in page.locator(".steps").inner_text()  # kept from the run before


def test_a_dead_letter_is_sent_again_and_a_tool_shows_its_ages(served: Served, tab: Open) -> None:
    elsewhere(put_aside(served.services.store))
    in_doubt(served.services.store)
    page = tab()
    page.get_by_role("region", name="Dead letters").get_by_role("link").click()
    page.get_by_role("button", name="Send it again").dblclick()
    assert "ent again" in page.get_by_role("status").inner_text()
    page.get_by_role("navigation").get_by_role("link", name="Tools").click()
    page.get_by_role("link", name="issue_refund").click()
    assert "7d" in page.inner_text("dl")
    page.get_by_role("link", name="Read them").click()
    assert page.get_by_role("heading", name="retry ages").is_visible()


def test_a_wrong_role_and_another_tenant_are_shown_nothing_to_do(chromium: Any, url: str) -> None:
    settings = GatewaySettings(url=url, log="none")
    with embedded(settings, open_store(url), pages=pages()) as (where, services):
        served = Served(where, services)
        record = in_doubt(services.store, "acme")
        address = f"{where}/console/records/{record['id']}"
        for role, tenant, seen in (("auditor", "acme", True), ("admin", "other", False)):
            keys = ApiKeys(DocumentStore(services.store))
            context = chromium.new_context()
            page = context.new_page()
            page.goto(address)
            page.get_by_label("API key").fill(elsewhere(keys.create(tenant, "eve", (role,)))[1])
            page.get_by_role("button", name="Sign in").click()
            assert page.url == address
            assert page.get_by_role("heading", name="issue_refund").is_visible() is seen
            assert page.get_by_role("button", name="It happened").count() == 0
            context.close()
        served.clients.close()


def test_an_ended_session_leads_back_to_the_decision_with_what_was_typed(served: Served, tab: Open) -> None:
    page = tab()
    page.goto(f"{served.url}/console/approvals/{ask(served)}")
    page.get_by_label("Reason against it").fill("too much")
    page.context.clear_cookies()
    page.get_by_role("button", name="Reject").click()
    page.get_by_label("Your name").fill("ann")
    page.get_by_role("button", name="Sign in").click()
    assert "Not done yet" in page.get_by_role("status").inner_text()
    assert page.get_by_label("Reason against it").input_value() == "too much"
    page.get_by_role("button", name="Reject").click()
    assert "Rejected by ann" in page.inner_text("main")


def test_three_doubts_and_two_approvals_are_settled_by_reading_the_pages(served: Served, tab: Open) -> None:
    """From the overview, by its links and buttons alone: three clicks each."""
    for number in range(3):
        in_doubt(served.services.store, payment=f"p-{number}", reason="")
    jobs = [ask(served, f"order-{number}") for number in range(2)]
    page = tab()
    for _ in range(3):
        page.get_by_role("region", name="In doubt").get_by_role("link").first.click()
        page.get_by_role("button", name="It happened").click()
        page.get_by_role("link", name="What else needs a person").click()
    for _ in jobs:
        page.get_by_role("region", name="Waiting approvals").get_by_role("link").first.click()
        page.get_by_role("button", name="Approve").click()
        page.get_by_role("link", name="What else needs a person").click()
    assert "Nothing. Calls in doubt" in page.inner_text("main")


def test_without_javascript_everything_is_done_by_forms(served: Served, tab: Open) -> None:
    record = in_doubt(served.services.store)
    page = tab(java_script_enabled=False)
    page.goto(f"{served.url}/console/records/{record['id']}")
    assert page.get_by_role("button", name="Copy").count() == 0  # it would do nothing
    page.get_by_role("button", name="It did not happen").click()
    assert "it did not happen" in page.get_by_role("status").inner_text()
    page.get_by_role("button", name="Sign out").click()
    page.goto(f"{served.url}/console/in-doubt")
    assert page.get_by_role("heading", name="Sign in").is_visible()


def test_hostile_names_do_nothing_on_any_page(served: Served, tab: Open) -> None:
    page = tab(HOSTILE.replace("\u202e", ""))
    record, job = in_doubt(served.services.store), ask(served, HOSTILE)
    for path in (*PAGES, f"/records/{record['id']}", f"/approvals/{job}", f"/jobs/{job}"):
        page.goto(f"{served.url}/console{path}")
        assert page.locator("main img, main script").count() == 0


# Pages look the same on every store.
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1920])
def test_nothing_stands_in_anybodys_way(served: Served, tab: Open, axe: str, scheme: str, width: int) -> None:
    """Chromium's accessibility audit by axe-core; and no page is wider than the screen."""
    page = tab(color_scheme=scheme, viewport={"width": width, "height": 800}, bypass_csp=True)
    record, job = in_doubt(served.services.store), ask(served)
    define(served.client(), "ship", {"id": "pack", "topic": "pack"})
    run = start_run(served.client(), {}, name="ship").json()["run_id"]
    things = (
        f"/records/{record['id']}",
        f"/approvals/{job}",
        f"/jobs/{job}",
        f"/runs/{run}",
        "/tools/issue_refund",
        "/tools/issue_refund/ages",
        "/tools/issue_refund/duplicates",
        f"/dead-letters/{elsewhere(put_aside(served.services.store))}",
        "/runs?status=failed",
        "/nowhere",
    )
    for path in (*PAGES, *things):
        page.goto(f"{served.url}/console{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        page.evaluate(axe)
        found = page.evaluate("axe.run()")["violations"]
        assert [(each["id"], each["nodes"][0]["html"]) for each in found] == [], path


# As long as a principal may be; and as people are called, where the pages' names were squeezed beside it.
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", ["P" * 128, "accounting.night-shift@payments.example.com"])
@pytest.mark.parametrize("width", [360, 768, 900, 1100])
def test_a_long_name_leaves_the_pages_their_place(served: Served, tab: Open, name: str, width: int) -> None:
    page = tab(name, viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.get_by_role("navigation").bounding_box()["height"] < 120  # three lines


def test_a_button_whose_request_was_stopped_works_again(served: Served, tab: Open) -> None:
    """The network hung, the person pressed Escape: on the page that is still there, no button is dead."""
    page = tab()
    page.clock.install()
    page.goto(f"{served.url}/console/approvals/{ask(served)}")
    page.route("**/approve", lambda route: route.abort("aborted"))
    with page.expect_event("requestfailed"):
        page.get_by_role("button", name="Approve").click()
    page.unroute("**/approve")
    page.clock.fast_forward(10_000)
    page.get_by_role("button", name="Approve").click()
    page.get_by_text("Approved.").wait_for()


def test_a_page_is_worked_with_the_keyboard_alone(served: Served, tab: Open) -> None:
    page = tab()
    page.goto(f"{served.url}/console/approvals/{ask(served)}")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the content"
    page.get_by_role("button", name="Approve").focus()
    page.keyboard.press("Enter")
    assert "Approved." in page.get_by_role("status").inner_text()
