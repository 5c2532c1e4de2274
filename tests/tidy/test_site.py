"""The site, built as `make docs` builds it, and looked at as a reader does: from the disk, without a net."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import missing
from tests.patience import PATIENCE_S
from tools.pages import ROOT

pytestmark = pytest.mark.full

TELEPHONE = {"width": 360, "height": 740}

# Whatever a browser fetches by itself; where a reader may click to is their own business.
_FETCHED = re.compile(
    r"<(?:script|img|iframe|source)[^>]*\ssrc=\"?(?P<src>[^\"\s>]+)|<link[^>]*\shref=\"?(?P<href>[^\"\s>]+)"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = missing.library("playwright.sync_api")
    chromium = shutil.which("chromium")
    if chromium is None:
        missing.cannot("chromium is not here: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


def opened(browser: Any, **options: Any) -> tuple[Any, list[str]]:
    """A page, and what goes wrong on it: requests that leave the disk, and errors of scripts."""
    page = browser.new_context(**options).new_page()
    page.set_default_timeout(PATIENCE_S * 1000)
    wrong: list[str] = []
    inside = ("file:", "data:", "blob:", "about:")
    page.on("request", lambda asked: wrong.extend([] if asked.url.startswith(inside) else [asked.url]))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda line: wrong.extend([line.text] if line.type == "error" else []))
    return page, wrong


def test_no_page_has_anything_fetched_from_elsewhere(site: Path) -> None:
    found = {}
    for path in site.rglob("*.html"):
        targets = [
            match["src"] or match["href"] for match in _FETCHED.finditer(path.read_text(encoding="utf-8"))
        ]
        assert targets
        found[path.name] = [target for target in targets if re.match(r"(https?:)?//", target)]
    assert {name: targets for name, targets in found.items() if targets} == {}
    for path in site.rglob("*.css"):
        assert not re.search(r"url\(\s*[\"']?(https?:)?//", path.read_text(encoding="utf-8"))


def test_notes_for_whoever_runs_pages_are_not_shown(site: Path) -> None:
    for path in site.rglob("*.html"):
        assert not re.search(r"(&lt;|<)!-- (not run|first):", path.read_text(encoding="utf-8"))


def test_no_list_or_table_was_taken_for_a_paragraph(site: Path) -> None:
    # A repository shows a list right after a line of text as one; the site wants an empty line between.
    lost = re.compile(r"<p>(?:(?!</p>).)*?\n(?:- |\d+\. |\| )", re.DOTALL)
    found = {path.name for path in site.rglob("*.html") if lost.search(path.read_text(encoding="utf-8"))}
    assert found == set()


def test_search_finds_from_the_disk_and_nothing_is_fetched(site: Path, browser: Any) -> None:
    page, wrong = opened(browser)
    page.goto((site / "index.html").as_uri())
    page.get_by_placeholder("Search").click()
    page.keyboard.type("OUTCOME_UNKNOWN")
    page.locator(".md-search-result__link").first.wait_for()
    assert "Troubleshooting" in page.locator(".md-search-result__list").inner_text()
    assert wrong == []


def test_no_page_is_wider_than_a_telephone(site: Path, browser: Any) -> None:
    page, wrong = opened(browser, viewport=TELEPHONE)
    wide = {}
    for address in addresses(site):
        page.goto((site / address).as_uri())
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > TELEPHONE["width"]:
            wide[address] = width
    assert wide == {}
    assert wrong == []


def addresses(site: Path) -> list[str]:
    """Every page that can be found by searching, without its parts; decisions are all of one kind."""
    index = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))
    found = sorted({entry["location"].partition("#")[0] or "index.html" for entry in index["docs"]})
    assert {"start.html", "reference/contracts.html"} <= set(found)
    return [address for address in found if not address.startswith("decisions/0")]


def test_drawings_have_the_colours_that_the_reader_chose(site: Path, browser: Any) -> None:
    inks = {}
    for scheme in ("light", "dark"):
        page, _ = opened(browser, color_scheme=scheme)
        page.goto((site / "concepts/sequences.html").as_uri())
        text = page.locator(".drawing svg text").first
        inks[scheme] = text.evaluate("node => getComputedStyle(node).fill")
        paper = page.locator("body").evaluate("node => getComputedStyle(node).backgroundColor")
        assert inks[scheme] != paper
    assert inks["light"] != inks["dark"]
