"""Does what one page says, in order, in the present folder: Python in one process, commands in one shell.

Started by `check_docs` with the page's blocks on standard input; it ends with 1, and says where, at the first
that does not do what the page shows. It imports nothing of this repository, so that a page finds only what a
reader would find.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# `ready PORT` returns once somebody listens there, or fails if what was started last has ended.
_PRELUDE = """
ready() {
  until (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; do
    kill -0 $! 2>/dev/null || { echo "what should listen on port $1 has ended"; return 1; }
    sleep 0.1
  done
}
"""

# How a command on a page is qualified, in words that a reader understands too.
_EXIT = re.compile(r"\s+# exit (?P<status>\d+)$")
_LATER = re.compile(r"\s+# after a moment$")

# Only what never comes takes this long, also where the machine is busy.
_MOMENT_S_MAX = 120
_PORT = re.compile(r"--port[ =](?P<port>\d+)")


class Differs(Exception):
    """Something on the page is not as it says."""


class Shell:
    """One shell for all commands of a page, as a reader has one terminal; what it starts may go on."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._number = 0
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._send(_PRELUDE)

    def run(self, text: str) -> tuple[int | None, str]:
        """The exit status, None if the shell itself has ended, and what was printed."""
        self._number += 1
        script = self._scratch / f"{self._number}.sh"
        printed = self._scratch / f"{self._number}.out"
        script.write_text(text + "\n", encoding="utf-8")
        self._send(f'. "{script}" >"{printed}" 2>&1 </dev/null; printf "%s\\n" $?\n')
        assert self._bash.stdout is not None
        status = self._bash.stdout.readline().strip()
        said = printed.read_text(encoding="utf-8") if printed.exists() else ""
        return (int(status) if status else None), said

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the shell; what it started in the background goes on."""
        self._bash.communicate()

    def _send(self, text: str) -> None:
        assert self._bash.stdin is not None
        self._bash.stdin.write(text)
        self._bash.stdin.flush()


def run_sh(shell: Shell, block: dict[str, Any]) -> None:
    """Every command of the block has to succeed."""
    lines = [with_patience(line) for line in block["lines"]]
    # As many empty lines before it as the page has, so that bash names the page's lines.
    text = "\n" * (block["first_line"] - 2) + "\n".join(
        ["set -e; trap 'echo \"line $LINENO: $BASH_COMMAND\"' ERR", *lines, "trap - ERR; set +e"]
    )
    status, said = shell.run(text)
    if status != 0:
        raise Differs(f"line {block['first_line']}: the block failed\n{said}")


def run_console(shell: Shell, block: dict[str, Any]) -> None:
    """Each command after a `$` ends as it says (`# exit 3`, else 0), and prints what the page shows.

    One that says `# after a moment` is typed again until it does.
    """
    for number, command, expected in commands(block["lines"], block["first_line"]):
        until = time.monotonic() + (_MOMENT_S_MAX if _LATER.search(command) else 0)
        difference = _difference(shell, command, expected)
        while difference and time.monotonic() < until:
            time.sleep(0.2)
            difference = _difference(shell, command, expected)
        if difference:
            raise Differs(f"line {number}: {command}\n{difference}")


def _difference(shell: Shell, command: str, expected: Sequence[str]) -> str | None:
    wanted = _EXIT.search(command)
    status, said = shell.run(with_patience(_LATER.sub("", _EXIT.sub("", command))))
    if status != (int(wanted["status"]) if wanted else 0):
        return f"ended with {status}\n{said}"
    if expected and not agrees(expected, said.splitlines()):
        return "\n".join(["the page shows", *expected, "and it printed", said])
    return None


def commands(lines: Sequence[str], first_line: int) -> list[tuple[int, str, list[str]]]:
    """Each command with its line and the output that follows it; one that ends with a backslash goes on."""
    found: list[tuple[int, str, list[str]]] = []
    for number, line in enumerate(lines, start=first_line):
        if line.startswith("$ "):
            found.append((number, line[2:], []))
        elif not found:
            raise Differs(f"line {number}: a console block begins with a command after `$ `")
        elif found[-1][1].endswith("\\") and not found[-1][2]:
            at, command, shown = found[-1]
            found[-1] = (at, f"{command[:-1]} {line.strip()}", shown)
        else:
            found[-1][2].append(line.rstrip())
    for _, _, shown in found:
        while shown and not shown[-1]:
            shown.pop()
    return found


def agrees(expected: Sequence[str], printed: Sequence[str]) -> bool:
    """Whether the output is what the page shows: … is anything, alone any lines; blanks count as one."""
    pattern = "".join(r"(?:.*\n)*" if line.strip() == "…" else f"{_pattern(line)}\n" for line in expected)
    text = "".join(f"{line.rstrip()}\n" for line in printed).rstrip("\n") + "\n"
    return re.fullmatch(pattern, text) is not None


def _pattern(line: str) -> str:
    parts = (re.escape(part) for part in line.rstrip().split("…"))
    return re.sub(r"(\\ )+", r"[ ]+", ".*".join(parts))


def with_patience(line: str) -> str:
    """A line that starts a server in the background, and then waits until it listens; others as they are."""
    if not line.rstrip().endswith("&"):
        return line
    named = _PORT.search(line)
    if named:
        return f"{line} ready {named['port']}"
    return f"{line} ready $SEMEL_PORT" if "semel serve" in line else line


def run_python(module: types.ModuleType, block: dict[str, Any], page: str) -> None:
    """The block as a part of the page's one program; tracebacks name the page and its lines."""
    source = "\n" * (block["first_line"] - 1) + "\n".join(block["lines"]) + "\n"
    code = compile(source, page, "exec", dont_inherit=True)
    exec(code, module.__dict__)


def run_tests(blocks: Sequence[dict[str, Any]], page: str) -> None:
    """A page that defines tests is a test file; its lines have the page's numbers."""
    lines = [""] * max(block["first_line"] - 1 + len(block["lines"]) for block in blocks)
    for block in blocks:
        start = block["first_line"] - 1
        lines[start : start + len(block["lines"])] = block["lines"]
    script = Path(f"{re.sub(r'[^a-zA-Z0-9]', '_', Path(page).stem)}_page.py")
    script.write_text("\n".join(lines) + "\n", encoding="utf-8")
    # Without the plug-ins that happen to be installed here, as a reader would have it; it is faster, too.
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(script)],
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    if done.returncode:
        raise Differs("a test of the page failed")


def run_page(page: str, blocks: Sequence[dict[str, Any]]) -> None:
    """All blocks, in order; raises at the first that fails."""
    plain = [block for block in blocks if block["language"] == "python" and not block["title"]]
    is_test_file = any(re.match(r"(async )?def test_", line) for block in plain for line in block["lines"])
    module = types.ModuleType("__main__")
    module.__file__ = page
    sys.modules["__main__"] = module
    with tempfile.TemporaryDirectory() as scratch, Shell(Path(scratch)) as shell:
        for block in blocks:
            if block["first"]:
                run_sh(shell, {"first_line": block["first_line"] - 2, "lines": [block["first"]]})
            if block["title"]:
                write_file(block)
            elif block["language"] == "sh":
                run_sh(shell, block)
            elif block["language"] == "console":
                run_console(shell, block)
            elif not is_test_file:
                run_python(module, block, page)
        if is_test_file:
            run_tests(plain, page)


def write_file(block: dict[str, Any]) -> None:
    """The block as the file that it is called; a second block of that name goes on in it."""
    path = Path(block["title"])
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write("\n".join(block["lines"]) + "\n")


def main() -> int:
    plan = json.load(sys.stdin)
    sys.path[0] = os.getcwd()
    try:
        run_page(plan["page"], plan["blocks"])
    except Differs as difference:
        print(difference, file=sys.stderr)
        return 1
    except BaseException as failure:
        # From the page's first frame on: ours are of no use to whoever mends the page.
        frames = failure.__traceback__
        while frames and frames.tb_frame.f_code.co_filename != plan["page"]:
            frames = frames.tb_next
        traceback.print_exception(type(failure), failure, frames or failure.__traceback__)
        return 1
    return 0


if __name__ == "__main__":
    # What the page left open (a thread, a server of its own) is its own business: it has done what it says.
    sys.exit(main())
