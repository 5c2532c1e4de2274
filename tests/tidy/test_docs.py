"""What the pages show is true: their links hold, and what they say to type does what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import semel
from tools import check_docs, draw_sequences, readme_figures, run_page, site_hooks
from tools import pages as doc_pages
from tools.published_readme import published

PAGES = doc_pages.pages()


def named(pages: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", pages, ids=lambda path: str(path.relative_to(doc_pages.ROOT)))


@named(PAGES)
def test_every_link_inside_the_repository_leads_somewhere(page: Path) -> None:
    assert check_docs.broken_links(page) == []


@named(PAGES)
def test_every_block_is_of_a_known_kind_and_hides_no_command(page: Path) -> None:
    assert doc_pages.unmarked_blocks(page.read_text(encoding="utf-8")) == []


@named(PAGES)
def test_the_python_of_a_page_runs_to_its_end_or_its_first_command(page: Path) -> None:
    failure = check_docs.run_examples(page, to_first_command=True)
    assert failure is None, failure


@pytest.mark.full
@named([page for page in PAGES if check_docs.has_commands(page)])
def test_all_that_a_page_says_to_type_does_what_it_says(page: Path) -> None:
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
        ("[a][b]\n\n[b]: missing.md", "no such file"),
        ("[a][b]", "not defined"),
        ("[a](https://github.com/semel-dev/semel/blob/main/missing.md)", "no such file"),
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


def test_a_page_that_leaves_early_has_not_run_to_its_end(tmp_path: Path) -> None:
    text = "```python\nraise SystemExit\n```\n```python\nassert False\n```\n"
    assert check_docs.run_examples(written(tmp_path, text)) is not None


def test_python_files_and_commands_of_a_page_are_done_in_order_in_one_folder(tmp_path: Path) -> None:
    text = (
        '```python title="greet.py"\nprint("hello from", open("who").read())\n```\n'
        '```python\nopen("who", "w").write("page")\n```\n'
        "```sh\nWORD=again\npython greet.py > said\n```\n"
        '```python\nassert open("said").read() == "hello from page\\n"\n```\n'
        "```console\n$ cat said; echo $WORD\nhello from page\nagain\n```\n"
    )
    assert check_docs.run_examples(written(tmp_path, text)) is None


def test_a_failing_command_is_reported_with_the_line_of_the_page(tmp_path: Path) -> None:
    text = "# Page\n\n```sh\ntrue\nfalse\necho not reached\n```\n"
    failure = check_docs.run_examples(written(tmp_path, text))
    assert failure is not None
    assert "line 5: false" in failure
    assert "not reached" not in failure


@pytest.mark.parametrize(
    ("shown", "right"),
    [
        ("$ echo one; echo two\none\ntwo", True),
        ("$ echo one; echo two\none", False),
        ("$ echo one; echo two\none\nthree", False),
        ("$ echo one; echo two", True),
        ("$ echo one; echo two\no…e\nt…", True),
        ("$ echo one; echo two\n…", True),
        ("$ echo one; echo two\n…\ntwo", True),
        ("$ echo one; echo two\n…\nthree", False),
        ("$ echo one \\\n    two\none two", True),
        ("$ echo 'one    two  '\none two", True),
        ("$ echo onetwo\none two", False),
        ("$ exit 3", False),
        ("$ (exit 3) # exit 3", True),
        ("$ true # exit 3", False),
        ("output without a command", False),
    ],
)
def test_a_console_block_shows_what_its_commands_print(tmp_path: Path, shown: str, right: bool) -> None:
    failure = check_docs.run_examples(written(tmp_path, f"```console\n{shown}\n```\n"))
    assert (failure is None) == right, failure


def test_what_a_reader_has_already_is_made_first(tmp_path: Path) -> None:
    text = "# Page\n\n<!-- first: echo there > had -->\n```console\n$ cat had\nthere\n```\n"
    assert check_docs.run_examples(written(tmp_path, text)) is None


def test_a_command_that_takes_a_moment_is_typed_again(tmp_path: Path) -> None:
    grow = "$ echo x >> seen; wc -l < seen # after a moment\n3"
    assert check_docs.run_examples(written(tmp_path, f"```console\n{grow}\n```\n")) is None


def test_a_server_of_a_page_has_a_port_of_its_own_is_waited_for_and_ends_with_the_page(
    tmp_path: Path,
) -> None:
    witness = tmp_path / "pid"
    text = (
        '```python title="serve.py"\n'
        "import http.server, sys\n"
        "handler = http.server.SimpleHTTPRequestHandler\n"
        "http.server.HTTPServer(('127.0.0.1', int(sys.argv[2])), handler).serve_forever()\n```\n"
        f"```sh\npython serve.py --port 8765 &\necho $! > {witness}\n```\n"
        "```python\nimport urllib.request\n"
        "address = 'http://localhost:8765/serve.py'\n"
        "assert ':' + '8765' not in address\n"
        "assert urllib.request.urlopen(address).status == 200\n```\n"
    )
    assert check_docs.run_examples(written(tmp_path, text)) is None
    process = Path(f"/proc/{witness.read_text().strip()}/cmdline")
    assert not process.exists() or b"serve.py" not in process.read_bytes()


def test_a_server_that_ends_at_once_is_a_failure_and_not_waited_for(tmp_path: Path) -> None:
    failure = check_docs.run_examples(written(tmp_path, "```sh\nfalse --port 8765 &\necho on\n```\n"))
    assert failure is not None
    assert "has ended" in failure


def test_what_comes_before_the_first_command_can_be_run_alone(tmp_path: Path) -> None:
    before = '```python title="a.py"\nx = 1\n```\n```python\nimport a\n```\n'
    page = written(tmp_path, f"{before}```sh\nfalse\n```\n```python\nassert False\n```\n")
    assert check_docs.run_examples(page, to_first_command=True) is None
    assert check_docs.run_examples(page) is not None
    assert check_docs.run_examples(written(tmp_path, "```python\n1 / 0\n```\n"), to_first_command=True)


@pytest.mark.parametrize("block", ["```\nx\n```", "```bash\nx\n```", "```text\n$ semel doctor\n```"])
def test_a_block_that_nobody_would_run_is_found(block: str) -> None:
    assert len(doc_pages.unmarked_blocks(block)) == 1


def test_only_pages_about_tests_need_what_tests_need() -> None:
    """A reader who has installed Semel alone pastes the blocks of all others."""
    needing = [
        page.name
        for page in doc_pages.pages()
        for block in doc_pages.blocks(page.read_text(encoding="utf-8"))
        if block.language == "python" and "import pytest" in block.lines and page.name != "testing.md"
    ]
    assert needing == []


def test_no_block_goes_on_before_the_server_that_it_starts_listens() -> None:
    """What runs the pages waits for it; a reader who pastes the block does not."""
    early = [
        f"{page.name}:{block.first_line}"
        for page in doc_pages.pages()
        for block in doc_pages.blocks(page.read_text(encoding="utf-8"))
        if block.language == "sh" and any(line.endswith(" &") for line in block.lines[:-1])
    ]
    assert early == []


def test_the_readme_is_one_screen_or_two_and_has_its_two_commands() -> None:
    text = (doc_pages.ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    assert {"make serve", "make test"} <= set(re.findall(r"^(make \w+)", text, re.MULTILINE))


def test_the_readme_shows_a_safe_tool_in_twelve_lines_and_says_nothing_that_is_the_default() -> None:
    text = (doc_pages.ROOT / "README.md").read_text(encoding="utf-8")
    example = next(block for block in doc_pages.blocks(text) if block.language == "python")
    assert len(example.lines) <= 12
    assert "@semel.tool_contract" in example.lines


def test_the_readme_has_six_figures_as_they_are_on_their_page() -> None:
    text = readme_figures.README.read_text(encoding="utf-8")
    assert len(readme_figures.rows(text)) == 6
    changed = readme_figures.in_step(text, readme_figures.FIGURES.read_text(encoding="utf-8"))
    assert text == changed, "python -m tools.readme_figures brings them in step"


def test_a_figure_that_differs_from_its_page_is_found() -> None:
    readme, page = "| call / bare | ≤ 1 × | 2 × | missed |\n", "| call / bare | ≤ 1 × | 1 × | reached |\n"
    assert readme_figures.in_step(readme, page) == page
    with pytest.raises(KeyError):
        readme_figures.in_step(readme.replace("call", "replay"), page)


def test_what_a_package_index_shows_has_no_relative_link() -> None:
    text = published(readme_figures.README.read_text(encoding="utf-8"), "https://example.org", "1.0.0")
    targets = [target for _, target in check_docs.links(text)]
    assert len(targets) > 10
    assert [target for target in targets if not target.startswith("https://")] == []


def test_the_reference_has_every_public_name() -> None:
    text = (doc_pages.ROOT / "docs/reference/python.md").read_text(encoding="utf-8")
    missing = {name for name in semel.__all__ if not re.search(rf"^::: semel\.{name}\b", text, re.MULTILINE)}
    # Values without a docstring, which the page of contracts explains; a module whose names are there.
    assert missing <= {"CannotTell", "DidNotHappen", "filled", "instrumentation"}, (
        "add them to docs/reference/python.md"
    )


def test_a_new_page_about_a_framework_is_in_the_menu_by_itself() -> None:
    index, old, new = (f"how-to/agents/{name}.md" for name in ("index", "old", "new"))
    menu = ["index.md", {"How to": ["how-to/index.md", {"Agents": [index, {"Old": old}]}]}]
    site_hooks.with_new_pages(menu, [index, new, old])
    assert menu[1] == {"How to": ["how-to/index.md", {"Agents": [index, {"Old": old}, new]}]}


def test_the_drawings_are_what_their_tool_draws() -> None:
    for name, sequence in draw_sequences.SEQUENCES.items():
        drawn = (draw_sequences.FOLDER / f"{name}.svg").read_text(encoding="utf-8")
        assert drawn == draw_sequences.draw(sequence), "python -m tools.draw_sequences draws them anew"


def test_commands_are_taken_apart_from_what_they_print() -> None:
    assert run_page.commands(["$ a", "x", "", "$ b"], 5) == [(5, "a", ["x"]), (8, "b", [])]
