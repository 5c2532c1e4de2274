"""What the pages show is true: their links hold and their examples run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import check_docs

PAGES = check_docs.pages()
page = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(check_docs.ROOT)))


@page
def test_every_link_inside_the_repository_leads_somewhere(page: Path) -> None:
    assert check_docs.broken_links(page) == []


@page
def test_the_examples_of_a_page_run_to_their_end(page: Path) -> None:
    failure = check_docs.run_examples(page)
    assert failure is None, failure


def written(folder: Path, text: str, name: str = "page.md") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[a](missing.md)", "no such file"),
        ("[a](#nowhere)\n# Somewhere\n", "no such heading"),
        ("[a](other.md#nowhere)", "no such heading"),
        ("![a](missing.png)", "no such file"),
        ("[a](../../outside.md)", "leads out of the repository"),
    ],
)
def test_a_link_that_leads_nowhere_is_found(tmp_path: Path, text: str, why: str) -> None:
    written(tmp_path, "# Other\n", "other.md")
    [found] = check_docs.broken_links(written(tmp_path, text), tmp_path)
    assert why in found


def test_links_that_hold_and_links_in_code_are_left_alone(tmp_path: Path) -> None:
    written(tmp_path, "# The `other` page, again!\n", "other.md")
    text = "[a](other.md#the-other-page-again) [b](#top) [c](https://example.org) `[d](no.md)`\n# Top\n"
    fenced = "```text\n[e](no.md)\n```\n"
    assert check_docs.broken_links(written(tmp_path, text + fenced), tmp_path) == []


def test_a_failing_example_is_reported_with_the_line_of_the_page(tmp_path: Path) -> None:
    text = "# Page\n\n```python\nx = 1\n```\n\nThen:\n\n```python\nassert x == 2\n```\n"
    failure = check_docs.run_examples(written(tmp_path, text))
    assert failure is not None
    assert "line 10" in failure


def test_later_blocks_use_what_earlier_ones_defined(tmp_path: Path) -> None:
    text = "```python\nx = 1\n```\n\n- in a list:\n\n  ```python\n  assert x == 1\n  ```\n"
    assert check_docs.run_examples(written(tmp_path, text)) is None


def test_a_failing_test_in_a_page_is_reported(tmp_path: Path) -> None:
    text = "```python\ndef test_that_fails():\n    assert False\n```\n"
    failure = check_docs.run_examples(written(tmp_path, text))
    assert failure is not None
    assert "1 failed" in failure


def test_a_block_is_left_out_only_with_a_reason(tmp_path: Path) -> None:
    with_reason = "<!-- not run: needs a server -->\n```python\nraise SystemExit(1)\n```\n"
    without = "<!-- not run: -->\n```python\nraise SystemExit(1)\n```\n"
    assert check_docs.run_examples(written(tmp_path, with_reason)) is None
    assert check_docs.run_examples(written(tmp_path, without)) is not None
