"""`make screenshots`: the console's pictures for the documentation, taken anew in Debian's Chromium."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from semel.console.app import pages
from semel.gateway.server import embedded
from semel.gateway.settings import GatewaySettings
from semel.stores.urls import open_store
from tests.console.scenes import in_doubt, put_aside, send_payout
from tests.console.test_pages import ask
from tests.gateway.conftest import Served, define, start_run

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "assets" / "console"

# Wide enough for every column, small enough for a page of text.
_SIZE = {"width": 1100, "height": 760}


def main() -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium is missing; run: sudo apt-get install chromium")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        url = f"sqlite:///{place}/semel.db"
        settings = GatewaySettings(url=url, dev=True, log="none")
        with embedded(settings, open_store(url), pages=pages()) as (where, services):
            served = Served(where, services)
            with served.clients:
                things = made(served)  # before Playwright's event loop counts as running
                with sync_playwright() as playwright:
                    browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                    _take(browser, served, things)
                    browser.close()


def made(served: Served) -> dict[str, str]:
    """What there is to see, and the address of one of each."""
    store, client = served.services.store, served.client()
    refunds = [in_doubt(store, payment=f"p-{number}", reason="damaged") for number in (81, 82)]
    payout = in_doubt(
        store, payment="s-7", call=lambda: send_payout(supplier="Baker & Sons", amount_minor=98_000)
    )
    jobs = [ask(served, f"order-{number}") for number in range(2)]
    letter = asyncio.run(put_aside(store, "ConnectionError: mail.example:25 refused the connection"))
    steps: list[dict[str, Any]] = [
        {"id": "check", "topic": "check"},
        {"id": "pack", "topic": "pack", "depends_on": ["check"]},
        {"id": "label", "topic": "label", "depends_on": ["check"]},
        {"id": "send", "topic": "send", "depends_on": ["pack", "label"]},
    ]
    define(client, "ship", *steps)
    run = start_run(client, {"order": 7, "to": "Vienna"}, name="ship").json()["run_id"]
    (job,) = client.post("/api/v1/leases", json={"topics": ["check"]}).json()["jobs"]
    result = {"fence": job["fence"], "status": "succeeded", "result": {"in_stock": True}}
    client.post(f"/api/v1/jobs/{job['job_id']}/result", json=result)
    return {
        "refund": f"/records/{refunds[0]['id']}",
        "payout": f"/records/{payout['id']}",
        "question": f"/approvals/{jobs[0]}",
        "job": f"/jobs/{job['job_id']}",
        "letter": f"/dead-letters/{letter}",
        "run": f"/runs/{run}",
        "tool": "/tools/issue_refund",
    }


def _take(browser: Any, served: Served, things: dict[str, str]) -> None:
    scenes = (
        ("overview", "/", "light", _SIZE),
        ("record", things["payout"], "light", _SIZE),
        ("question-dark", things["question"], "dark", _SIZE),
        ("run", things["run"], "light", _SIZE),
        ("overview-narrow", "/", "dark", {"width": 360, "height": 760}),
    )
    for name, path, scheme, size in scenes:
        context = browser.new_context(color_scheme=scheme, viewport=size)
        page = context.new_page()
        page.goto(f"{served.url}/console/")
        page.get_by_label("Your name").fill("ann")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="What needs a person").wait_for()
        page.goto(f"{served.url}/console{path}")
        page.screenshot(path=FOLDER / f"{name}.png")
        context.close()


if __name__ == "__main__":
    main()
