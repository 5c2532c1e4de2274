"""Checks the pages people read: links inside the repository hold, and Python examples run.

All ```python blocks of one page are one program, run in order in an empty folder, so a later block may use
what an earlier one defined. A page that defines `test_…` functions runs under pytest. A block right after
the line `<!-- not run: why -->` is left out, and the reason is printed. Addresses outside the repository
are not fetched.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# An example is meant to be typed in; one that runs longer than this is a program.
EXAMPLE_S_MAX = 60

_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+|~~~+)(?P<language>[\w-]*)")
_NOT_RUN = re.compile(r"<!-- not run: (?P<why>.+?) -->")
_LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)(?:\s+\"[^\"]*\")?\)")
_CODE_SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
_HEADING = re.compile(r"^#{1,6}\s+(?P<text>.+?)\s*#*$")
_OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    language: str
    first_line: int
    lines: tuple[str, ...]
    not_run: str | None

    @property
    def runs(self) -> bool:
        return self.language == "python" and self.not_run is None


def pages(root: Path = ROOT) -> list[Path]:
    """Every page of the repository: those at its top, and all under docs and examples."""
    return sorted({*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("examples/**/*.md")})


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in order; a fence left open runs to the end, as renderers have it."""
    found: list[Block] = []
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        fence = _FENCE.match(lines[number])
        if fence:
            block = _block(lines, number, fence)
            found.append(block)
            number += len(block.lines) + 1
        number += 1
    return found


def _block(lines: list[str], opening: int, fence: re.Match[str]) -> Block:
    indent, ticks = len(fence["indent"]), fence["ticks"]
    body: list[str] = []
    for line in lines[opening + 1 :]:
        if line.strip().startswith(ticks):
            break
        body.append(line[indent:] if not line[:indent].strip() else line)
    not_run = _NOT_RUN.search(lines[opening - 1]) if opening else None
    return Block(fence["language"], opening + 2, tuple(body), not_run["why"] if not_run else None)


def program(text: str) -> str:
    """The page's Python as one program; lines keep their numbers, so that tracebacks point at the page."""
    lines = [""] * len(text.splitlines())
    for block in filter(lambda each: each.runs, blocks(text)):
        start = block.first_line - 1
        lines[start : start + len(block.lines)] = block.lines
    return "\n".join(lines).rstrip() + "\n" if any(lines) else ""


def run_examples(page: Path) -> str | None:
    """None if the page's examples run to their end, else what they printed."""
    source = program(page.read_text(encoding="utf-8"))
    if not source:
        return None
    with tempfile.TemporaryDirectory() as folder:
        # The file carries the page's name, and its lines the page's numbers.
        script = Path(folder) / f"{page.stem.replace('-', '_').replace('.', '_')}_page.py"
        script.write_text(source, encoding="utf-8")
        return _run(_command(script, source), Path(folder))


def _command(script: Path, source: str) -> list[str]:
    if re.search(r"^(async )?def test_", source, re.MULTILINE):
        return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(script)]
    return [sys.executable, str(script)]


def _run(command: list[str], folder: Path) -> str | None:
    # A store named in the caller's environment is not the example's to write to.
    environment = {name: value for name, value in os.environ.items() if name != "SEMEL_URL"}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=EXAMPLE_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"still running after {EXAMPLE_S_MAX} s"
    return None if done.returncode == 0 else (done.stdout + done.stderr).strip()


def broken_links(page: Path, root: Path = ROOT) -> list[str]:
    """`line: target, why` for each link of the page that leads nowhere inside the repository."""
    found = []
    for number, target in _links(page.read_text(encoding="utf-8")):
        why = _broken(page, target, root)
        if why:
            found.append(f"{number}: {target}, {why}")
    return found


def _links(text: str) -> Iterator[tuple[int, str]]:
    for number, line in _prose(text):
        for link in _LINK.finditer(_CODE_SPAN.sub("", line)):
            yield number, link["target"].strip("<>")


def _prose(text: str) -> Iterator[tuple[int, str]]:
    fenced = {
        number
        for block in blocks(text)
        for number in range(block.first_line - 1, block.first_line + len(block.lines) + 1)
    }
    for number, line in enumerate(text.splitlines(), start=1):
        if number not in fenced:
            yield number, line


def _broken(page: Path, target: str, root: Path) -> str | None:
    if _OUTSIDE.match(target):
        return None
    path, _, anchor = target.partition("#")
    there = (page.parent / path).resolve() if path else page
    if not there.is_relative_to(root):
        return "leads out of the repository"
    if not there.exists():
        return "no such file"
    if anchor and there.suffix == ".md" and anchor not in anchors(there.read_text(encoding="utf-8")):
        return "no such heading"
    return None


def anchors(text: str) -> set[str]:
    """The anchors that renderers give the page's headings; a repeated heading gets a number."""
    found: set[str] = set()
    for _, line in _prose(text):
        heading = _HEADING.match(line)
        if heading:
            found.add(_unused(_slug(heading["text"]), found))
    return found


def _slug(heading: str) -> str:
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def _unused(slug: str, taken: set[str]) -> str:
    number, name = 0, slug
    while name in taken:
        number += 1
        name = f"{slug}-{number}"
    return name


def report(page: Path, root: Path = ROOT) -> bool:
    """Print what holds and what does not on one page; True if all of it holds."""
    name = page.relative_to(root)
    text = page.read_text(encoding="utf-8")
    links, failure = broken_links(page, root), run_examples(page)
    for link in links:
        print(f"{name}:{link}")
    for block in blocks(text):
        if block.not_run:
            print(f"{name}:{block.first_line}: not run: {block.not_run}")
    if failure:
        print(f"{name}: an example failed\n{failure}")
    run, linked = sum(block.runs for block in blocks(text)), sum(1 for _ in _links(text))
    right = not links and not failure
    print(f"{name}: {linked} links, {run} examples, {'right' if right else 'wrong'}")
    return right


def main() -> int:
    wrong = [page for page in pages() if not report(page)]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
