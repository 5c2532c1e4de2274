"""Checks the pages people read: links inside the repository hold, and what they show happens.

All `python`, `sh` and `console` blocks of a page are done in order, as a reader would: one folder, one
Python, one shell (`run_page`). A block with a name (```python title="shop.py") becomes that file. A page
that defines `test_…` functions is a test file, and runs under pytest. In a `console` block the lines after
a `$ command` are what it prints: … stands for anything in a line, and alone for any lines, and blanks count
as one; `# exit 3` at the end of a command says how it ends, `# after a moment` that it is typed again until
it does. A block right after the line `<!-- not run: why -->` is left out, and the reason is printed. `<!--
first: command -->` there makes what the reader of that page has already, a store for one.

Addresses of this machine get ports of their own: `localhost:8765` of a page is another port here, in
commands, in Python and in what they print, and SEMEL_PORT says it to `semel serve`. A line that starts a
server in the background (`semel serve --dev &`, or `--port N … &`) returns when it listens; all that a page
started ends with it. Addresses outside the repository are not fetched.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import takewhile
from pathlib import Path

from tools.pages import ROOT, Block, blocks, pages, prose, unmarked_blocks

# Only what is stuck takes this long, also where the machine is busy.
PAGE_S_MAX = 300

_RUNNER = Path(__file__).with_name("run_page.py")
_LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)(?:\s+\"[^\"]*\")?\)")
_DEFINED = re.compile(r"^\[(?P<name>[^\]]+)\]:\s+(?P<target>\S+)$")
_REFERRED = re.compile(r"\]\[(?P<name>[^\]]+)\]")
_CODE_SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
_HEADING = re.compile(r"^#{1,6}\s+(?P<text>.+?)\s*#*$")
_OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
# The repository itself, as pages name it that are also read elsewhere (README on a package index).
_OURS = re.compile(r"https://github\.com/semel-dev/semel/(?:blob|tree|raw)/main/(?P<path>.+)")
_PORT = re.compile(r"(?P<before>\b(?:localhost|127\.0\.0\.1):|--port[ =])(?P<port>\d{4,5})\b")


def has_commands(page: Path) -> bool:
    """Whether the page has something for a shell."""
    return any(block.runs and block.language != "python" for block in blocks(_text(page)))


def run_examples(page: Path, *, to_first_command: bool = False) -> str | None:
    """None if all that the page shows happens, or what comes before its first command; else what did not."""
    wanted = [block for block in blocks(_text(page)) if block.runs or block.is_file]
    if to_first_command:
        wanted = list(takewhile(lambda block: block.is_file or block.language == "python", wanted))
    if all(block.is_file for block in wanted):
        return None
    ports = _free_ports(wanted)
    plan = {"page": str(page), "blocks": [_with_ports(block, ports) for block in wanted]}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        return _run(json.dumps(plan), Path(folder), {"SEMEL_PORT": ports["8765"]})


def _free_ports(wanted: Iterable[Block]) -> dict[str, str]:
    """A free port of this machine for each that the blocks name, and for the gateway's own."""
    named = {match["port"] for block in wanted for line in block.lines for match in _PORT.finditer(line)}
    sockets = {port: socket.create_server(("127.0.0.1", 0)) for port in {*named, "8765"}}
    ports = {port: str(each.getsockname()[1]) for port, each in sockets.items()}
    for each in sockets.values():
        each.close()
    return ports


def _with_ports(block: Block, ports: dict[str, str]) -> dict[str, object]:
    lines = [_PORT.sub(lambda match: match["before"] + ports[match["port"]], line) for line in block.lines]
    return {**asdict(block), "lines": lines}


def _run(plan: str, folder: Path, variables: dict[str, str]) -> str | None:
    # A file, not a pipe, which servers that the page leaves running would keep open; and a group of its own,
    # so that they can be ended with it.
    with tempfile.TemporaryFile("w+", encoding="utf-8") as printed:
        page = subprocess.Popen(
            [sys.executable, str(_RUNNER)],
            cwd=folder,
            env=_environment() | variables,
            stdin=subprocess.PIPE,
            stdout=printed,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            page.communicate(plan, timeout=PAGE_S_MAX)
        except subprocess.TimeoutExpired:
            return f"still running after {PAGE_S_MAX} s"
        finally:
            _end_group(page)
        printed.seek(0)
        return None if page.returncode == 0 else printed.read().strip()


def _end_group(page: subprocess.Popen[str]) -> None:
    """Ends the page and all that it started: asked at first, as a person would, then killed."""
    for number, patience_s in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
        try:
            os.killpg(page.pid, number)
        except ProcessLookupError:
            break
        until = time.monotonic() + patience_s
        while time.monotonic() < until and _group_lives(page):
            time.sleep(0.02)
    page.wait()


def _group_lives(page: subprocess.Popen[str]) -> bool:
    page.poll()
    try:
        os.killpg(page.pid, 0)
    except ProcessLookupError:
        return False
    return True


def _environment() -> dict[str, str]:
    """Ours without a store of the caller's, with the command `semel`, and with lines as long as a page's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"
    return kept | {"PATH": path, "COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}


def broken_links(page: Path, root: Path = ROOT) -> list[str]:
    """`line: target, why` for each link of the page that leads nowhere inside the repository."""
    found = []
    for number, target in links(_text(page)):
        why = _broken(page, target, root)
        if why:
            found.append(f"{number}: {target}, {why}")
    return found + _undefined(_text(page))


def links(text: str) -> Iterator[tuple[int, str]]:
    """The targets of a page's links, and of those defined at its end, with their lines."""
    for number, line in prose(text):
        plain = _CODE_SPAN.sub("", line)
        for link in (*_LINK.finditer(plain), *_DEFINED.finditer(plain)):
            yield number, link["target"].strip("<>")


def _undefined(text: str) -> list[str]:
    lines = [(number, _CODE_SPAN.sub("", line)) for number, line in prose(text)]
    defined = {link["name"] for _, line in lines for link in _DEFINED.finditer(line)}
    referred = [(number, link["name"]) for number, line in lines for link in _REFERRED.finditer(line)]
    return [f"{number}: [{name}], not defined" for number, name in referred if name not in defined]


def _broken(page: Path, target: str, root: Path) -> str | None:
    ours = _OURS.fullmatch(target)
    if _OUTSIDE.match(target) and not ours:
        return None
    path, _, anchor = (ours["path"] if ours else target).partition("#")
    start = root if ours else page.parent
    there = (start / path).resolve() if path else page
    if not there.is_relative_to(root):
        return "leads out of the repository"
    if not there.exists():
        return "no such file"
    if anchor and there.suffix == ".md" and anchor not in anchors(_text(there)):
        return "no such heading"
    return None


def anchors(text: str) -> set[str]:
    """The anchors that renderers give the page's headings; a repeated heading gets a number."""
    found: set[str] = set()
    for _, line in prose(text):
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


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def report(page: Path, root: Path = ROOT) -> bool:
    """Print what holds and what does not on one page; True if all of it holds."""
    name, text = page.relative_to(root), _text(page)
    wrong = [*broken_links(page, root), *unmarked_blocks(text)]
    for each in wrong:
        print(f"{name}:{each}")
    for block in blocks(text):
        if block.not_run:
            print(f"{name}:{block.first_line}: not run: {block.not_run}")
    failure = run_examples(page)
    if failure:
        print(f"{name}: not as it says\n{failure}")
    run, linked = sum(block.runs for block in blocks(text)), sum(1 for _ in links(text))
    right = not wrong and not failure
    print(f"{name}: {linked} links, {run} examples, {'right' if right else 'wrong'}", flush=True)
    return right


def main(names: list[str]) -> int:
    """All pages, or those named."""
    chosen = [Path(name).resolve() for name in names] or pages()
    wrong = [page for page in chosen if not report(page)]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
