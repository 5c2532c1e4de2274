"""Pages over more records than are looked at for one of them."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import semel
from bench.workload import remember_in_bulk, seal
from semel.cli import main
from semel.console.app import pages
from semel.gateway.server import embedded
from semel.gateway.settings import GatewaySettings
from semel.stores.sqlite import statements
from semel.stores.urls import open_store
from tests.console.conftest import Browser
from tests.console.scenes import in_doubt
from tests.console.test_pages import PAGES

# Each with few hits or none: what is read is what is looked through.
_SEARCHES = (
    "/records?tool=issue_refund",
    "/records?state=failed",
    "/audit?tool=issue_refund",
    "/audit?order=oldest&by=nobody",
    "/tools/issue_refund",
    "/tools/usual",
    "/runs?status=failed",
    "/jobs?topic=none",
)


@semel.tool_contract(name="usual", value="low")
def usual() -> str:
    """Called by everybody."""
    return "done"


def made(path: Path, calls: int = 3_000) -> dict[str, str]:
    """One refund in doubt, older than so many calls of another tool."""
    url = f"sqlite:///{path}"
    store = open_store(url)
    record = in_doubt(store)
    store.close()
    with semel.open(url) as ledger, ledger.step(conversation="c", step="s"):
        usual()
    remember_in_bulk(str(path), calls)
    with semel.open(url) as ledger:
        seal(ledger.store)
    return record


def test_what_is_rare_is_found_by_going_back_page_by_page(tmp_path: Path) -> None:
    path = tmp_path / "semel.db"
    record, url = made(path), f"sqlite:///{path}"
    settings = GatewaySettings(url=url, dev=True, log="none")
    with embedded(settings, open_store(url), pages=pages()) as (where, _):
        browser = Browser(where)
        with browser.http:
            browser.sign_in(name="ann")
            first = browser.get("/records?tool=issue_refund").text
            assert record["id"] not in first
            assert "Look at older ones" in first
            (older,) = re.findall(r'href="(\?[^"]*cursor=[^"]*)" rel="next"', first)
            assert record["id"] in browser.get(f"/records{older.replace('&amp;', '&')}").text
            assert "Look at older ones" in browser.get("/tools/issue_refund").text
            # Found at once: in doubt, by its key, by its id.
            for path_ in ("/in-doubt", f"/records?key={record['key']}", f"/records/{record['id']}"):
                assert record["id"] in browser.get(path_).text, path_


def test_the_audit_log_is_read_on_page_by_page_in_both_orders(tmp_path: Path) -> None:
    path = tmp_path / "semel.db"
    record, url = made(path), f"sqlite:///{path}"
    settings = GatewaySettings(url=url, dev=True, log="none")
    with embedded(settings, open_store(url), pages=pages()) as (where, _):
        browser = Browser(where)
        with browser.http:
            browser.sign_in(name="ann")
            newest, oldest = browser.get("/audit").text, browser.get("/audit?order=oldest").text
            assert record["id"] not in newest
            assert record["id"] in oldest
            for page, title in ((newest, "Older"), (oldest, "Later")):
                (on,) = re.findall(rf'href="(\?[^"]*cursor=[^"]*)" rel="next">{title}<', page)
                there = browser.get(f"/audit{on.replace('&amp;', '&')}").text
                assert there.count("<tr>") == page.count("<tr>") == 51
                assert there != page
            searched = browser.get("/audit?tool=issue_refund").text
            while record["id"] not in searched:
                (on,) = re.findall(r'href="(\?[^"]*cursor=[^"]*)" rel="next"', searched)
                searched = browser.get(f"/audit{on.replace('&amp;', '&')}").text


def steps_of_each_page(path: Path, monkeypatch: pytest.MonkeyPatch, calls: int) -> dict[str, int]:
    """How many hundreds of steps SQLite's machine makes for each page."""
    record, url = made(path, calls), f"sqlite:///{path}"
    steps: list[int] = []
    connect = sqlite3.connect

    def counted(*given: Any, **named: Any) -> sqlite3.Connection:
        connection = connect(*given, **named)
        connection.set_progress_handler(lambda: steps.append(1), 100)
        return connection

    monkeypatch.setattr(sqlite3, "connect", counted)
    of_page = {}
    settings = GatewaySettings(url=url, dev=True, log="none")
    with embedded(settings, open_store(url), pages=pages()) as (where, _):
        browser = Browser(where)
        with browser.http:
            browser.sign_in(name="ann")
            ways = {"a record": f"/records/{record['id']}", "a key": f"/records?key={record['key']}"}
            for page in (*PAGES, *_SEARCHES, *ways):
                counts = []
                for _ in range(2):  # the gateway's upkeep may fall into one of them
                    steps.clear()
                    assert browser.get(ways.get(page, page)).status_code == 200
                    counts.append(len(steps))
                of_page[page] = min(counts)
    monkeypatch.undo()
    return of_page


def test_every_page_takes_as_much_work_in_a_history_four_times_as_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = steps_of_each_page(tmp_path / "short.db", monkeypatch, 3_000)
    long = steps_of_each_page(tmp_path / "long.db", monkeypatch, 12_000)
    grown = {page: (short[page], long[page]) for page in short if long[page] > 1.5 * short[page] + 10}
    assert grown == {}


def test_a_record_is_found_by_its_id_without_reading_the_others(tmp_path: Path) -> None:
    path = tmp_path / "semel.db"
    record = made(path)
    connection = sqlite3.connect(path)
    steps: list[int] = []
    connection.set_progress_handler(lambda: steps.append(1), 100)
    assert connection.execute(statements.FIND_ADDRESS, ("default", record["id"])).fetchone() == (
        "tool",
        record["key"],
    )
    connection.close()
    assert len(steps) < 10  # a thousand steps of SQLite's machine; the records are three thousand


def test_the_command_line_follows_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "semel.db"
    record = made(path)
    words = ["records", "list", "--tool", "issue_refund", "--url", f"sqlite:///{path}"]
    shown = CliRunner().invoke(main, words, catch_exceptions=False)
    assert record["id"] in shown.output
