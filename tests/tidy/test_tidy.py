"""Style is executed: each rule here is a table on top and one test below that fails on a breach.

Every rule is also shown a breach, so that none of them passes because it stopped looking.
"""

from __future__ import annotations

import ast
import http
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.tidy import source

# From the inside out. A module may import its own row and the rows above, never one below.
# A name stands for itself and everything under it; the longest one counts. "" is semel/__init__.py.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("kernel",),
    ("windows", "instrumentation.numbers", "instrumentation.hooks"),
    ("contract", "call.unfinished"),
    ("audit.events", "call.cache", "call.outcome", "ledger.counters"),
    ("stores",),
    ("instrumentation",),
    ("ledger.running", "call.wishes", "call.entering", "call.drive"),
    ("audit.leaves", "windows.age_counters", "ledger.catalogue", "ledger.request_keys", "questions"),
    ("ledger.sweep", "ledger.keeper", "ledger.records", "ledger.explain", "ledger.closing"),
    ("call.step", "ledger"),
    ("call.guarded_call",),
    ("call.claiming", "call.settling"),
    ("call.doubt", "call.failing", "ledger.probing"),
    ("call.question",),
    ("call.guard",),
    ("call",),
    ("audit", "ledger.doctor", "windows.advice"),
    # What is above does without runs; what it needs to know of them the next row but one hands over.
    ("flow",),
    ("",),
    ("testing", "agents", "client"),
    ("flow.bus",),
    ("worker", "integrations"),
    ("gateway",),
    ("console",),
    ("lab",),
    ("cli", "__main__"),
)

# The rooms that know nothing of runs: every part of them stands above the flow.
INNER_ROOMS = ("kernel", "contract", "call", "ledger", "questions", "audit", "windows", "stores")

# Nobody outside these imports them, whatever the rows say; the command starts what it is asked to start.
CLOSED = {
    "gateway": {"gateway", "console", "cli"},
    "console": {"console", "cli"},
    "lab": {"lab", "cli"},
    "cli": {"cli", "__main__"},
}

# What `semel` offers, and where it is explained: the section of the interface it belongs to.
PUBLIC: dict[str, str] = {
    "Approval": "contract",
    "CannotTell": "contract",
    "DedupWindow": "window",
    "DidNotHappen": "contract",
    "GuardedTool": "contract",
    "Happened": "contract",
    "Injected": "contract",
    "Job": "worker",
    "Key": "step",
    "Ledger": "ledger",
    "PartialSuccess": "contract",
    "Question": "contract",
    "ToolCall": "contract",
    "ToolError": "contract",
    "ToolResult": "contract",
    "Transaction": "contract",
    "contract_for": "contract",
    "conversation": "ledger",
    "current_fence": "contract",
    "current_key": "contract",
    "errors": "contract",
    "filled": "contract",
    "handler": "worker",
    "instrumentation": "contract",
    "open": "ledger",
    "outside_step": "step",
    "resume": "ledger",
    "step": "ledger",
    "tool_contract": "contract",
    "use": "ledger",
}

# Only clock.py reads a clock or rolls dice; a name stands for everything under it.
TIME_AND_CHANCE = (
    "time.time",
    "time.time_ns",
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "time.perf_counter_ns",
    "time.process_time",
    "time.clock_gettime",
    "time.clock_gettime_ns",
    "time.gmtime",
    "time.localtime",
    "time.sleep",
    "asyncio.sleep",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
    "random",
    "secrets",
    "os.urandom",
    "os.getrandom",
    "uuid.uuid1",
    "uuid.uuid4",
    "uuid.uuid7",
)

# Measuring is no decision, so these may look at a stopwatch.
STOPWATCH = ("time.perf_counter", "time.perf_counter_ns")
MAY_MEASURE = ("lab", "testing", "bench")

MAY_PRINT = ("lab", "cli", "__main__", "bench")

# The call without layers has none between it and the clock either; the simulation has a seed.
MAY_READ_CLOCKS = ("kernel.clock", "bench.bare", "bench.queueing")

# The bench compares Semel with statements written by hand, so it writes some by hand.
MAY_WRITE_SQL = ("bench",)

# Who answers over HTTP knows statuses; and who asks, or reads what a tool's own client of HTTP raised.
MAY_KNOW_STATUSES = (
    "gateway",
    "console",
    "integrations.asgi",
    "contract.transport",
    "client",
    "lab.runbooks",
)

# Round hundreds are many a number; the others are hardly ever anything else.
STATUSES = frozenset(http.HTTPStatus) - {100, 200, 300, 400, 500}

# A class has a name of its own in the library, so that a reader who meets it knows which one is meant. Aside:
# names that an integration shares with another one, because its users import them by that name.
SHARED_CLASS_NAMES: dict[str, set[str]] = {  # by name: the modules that may each have one
    "SemelMiddleware": {f"integrations.{name}" for name in ("agent_framework", "fastmcp", "langgraph")},
}

NAMELESS = {"utils", "util", "common", "helpers", "helper", "manager", "managers", "misc"}

# Longer than nine in ten functions of the code we admire by far; such a function tells two stories.
FUNCTION_LINES_MAX = 60

# Statements are written in one case, prose begins with a capital and goes on small.
SQL = re.compile(
    r"\s*(?-i:(?![A-Z][a-z]))(SELECT\s.+\sFROM\s|SELECT\s+\w+\(|INSERT\s+(OR\s+\w+\s+)?INTO\s|REPLACE\s+INTO\s|UPDATE\s+\S+\s+SET\s"
    r"|DELETE\s+FROM\s|WITH\s+\w+.*\sAS\s*\(|(CREATE|DROP|ALTER)\s+(TEMP\w*\s+|UNIQUE\s+)?(TABLE|INDEX|TRIGGER|VIEW)\s)",
    re.IGNORECASE | re.DOTALL,
)

# Spelt in pieces, so that this file does not break its own rule.
MACHINE_PATH = re.compile(
    r"(?<![\w.~-])/(?:" + "|".join(("work", "root", "home", "Users", "tmp", "opt")) + r")/\w"
)
REGISTRY = re.compile(
    "|".join(("pypi" + r"\.org", "python" + "hosted", "index-" + "url", "find-" + "links")), re.IGNORECASE
)


MODULES = source.modules()
# Not in the wheel, but of the same style. The library does not import it, so it may import everything.
BENCH = source.modules(source.ROOT / "bench", source.ROOT)
KNOWN = {*MODULES, *(room for rooms in LAYERS for room in rooms)}


def within(name: str, rooms: tuple[str, ...] | set[str]) -> bool:
    return any(name == room or (room and name.startswith(f"{room}.")) for room in rooms)


def row(name: str) -> int | None:
    """The row of the module: that of the longest name in the table which covers it."""
    rows = {room: number for number, rooms in enumerate(LAYERS) for room in rooms}
    parts = name.split(".")
    covering = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((rows[room] for room in covering if room in rows), None)


def upward_imports(module: source.Module) -> list[str]:
    return [
        f"{module.at(node)} imports {reached or 'semel'}"
        for node, reached in source.imports(module, KNOWN)
        if (row(reached) or 0) > (row(module.name) or 0) or not open_to(reached, module.name)
    ]


def open_to(reached: str, importer: str) -> bool:
    return all(within(importer, guests) for room, guests in CLOSED.items() if within(reached, (room,)))


def clock_reads(module: source.Module) -> list[str]:
    return [
        f"{module.at(node)} uses {name}"
        for node, name in source.called_names(module)
        if within(name, TIME_AND_CHANCE) and not (name in STOPWATCH and within(module.name, MAY_MEASURE))
    ]


def sql_texts(module: source.Module) -> list[str]:
    return [f"{module.at(node)} {text[:40]!r}" for node, text in source.texts(module) if SQL.match(text)]


def bench_imports(module: source.Module) -> list[str]:
    return [module.at(node) for node in source.bench_imports(module)]


def http_statuses(module: source.Module) -> list[str]:
    """Numbers that are a status of HTTP; round ones where they are compared with a status or given as one."""
    telling = [each for each in source.numbers(module) if each[1] in STATUSES]
    numbers = dict((*telling, *source.numbers_beside(module, "status")))
    return [f"{module.at(node)} {number}" for node, number in numbers.items() if 100 <= number < 600]


def prints(module: source.Module) -> list[str]:
    return [module.at(node) for node in source.prints(module)]


def long_functions(module: source.Module) -> list[str]:
    return [
        f"{module.at(node)} {node.name} has {lines} lines"
        for node in source.functions(module)
        if (lines := _lines_of_code(node)) > FUNCTION_LINES_MAX
    ]


def _lines_of_code(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Without the further lines of a docstring: who explains more is not to be told to explain less."""
    whole = (node.end_lineno or node.lineno) - node.lineno + 1
    return whole - (ast.get_docstring(node, clean=False) or "").count("\n")


def repeated_classes(modules: Iterable[source.Module]) -> list[str]:
    """Each class whose name another class has too, wherever in its module it stands."""
    lines: dict[str, list[str]] = {}
    for module in modules:
        for node in source.classes(module):
            if module.name not in SHARED_CLASS_NAMES.get(node.name, set()):
                lines.setdefault(node.name, []).append(module.at(node))
    return [f"{name} at {', '.join(at)}" for name, at in lines.items() if len(at) > 1]


def machine_words(text: str) -> list[str]:
    return [found.group() for pattern in (MACHINE_PATH, REGISTRY) for found in pattern.finditer(text)]


def breaches(rule, but=()) -> list[str]:
    checked = [one for one in (MODULES | BENCH).values() if not within(one.name, but)]
    return [breach for module in checked for breach in rule(module)]


def unnamed_modules(package: source.Module) -> list[str]:
    """Modules and packages of this one that its docstring does not name: it is the map of its room."""
    text = ast.get_docstring(package.tree) or ""
    inside = [
        path
        for path in package.path.parent.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    ]
    names = {path.stem for path in inside} - {"__init__", "__pycache__"}
    return sorted(name for name in names if not re.search(rf"\b{name}\b", text))


def test_the_docstring_of_a_room_names_all_that_is_in_it() -> None:
    rooms = [module for module in MODULES.values() if module.path.name == "__init__.py" and module.name]
    assert {room.name: unnamed for room in rooms if (unnamed := unnamed_modules(room))} == {}


def test_every_module_has_a_row_in_the_layers() -> None:
    assert {"kernel.clock", "errors", "stores.memory"} <= set(MODULES)
    assert [name for name in MODULES if row(name) is None] == []


def test_no_module_imports_one_further_out() -> None:
    assert breaches(upward_imports, but=("bench",)) == []


def test_every_part_of_an_inner_room_stands_above_the_flow() -> None:
    flow = LAYERS.index(("flow",))
    assert [name for name in MODULES if within(name, INNER_ROOMS) and (row(name) or 0) >= flow] == []


def test_the_library_knows_nothing_of_the_bench() -> None:
    assert {"bench", "bench.run"} <= set(BENCH)
    assert breaches(bench_imports, but=("bench",)) == []


def test_time_and_chance_come_from_the_clock_alone() -> None:
    assert breaches(clock_reads, but=MAY_READ_CLOCKS) == []


def test_every_public_name_is_listed_and_every_listed_one_is_there() -> None:
    # Here, not on top: a library that cannot be imported should fail this test, not hide the others.
    import semel

    assert sorted(semel.__all__) == sorted(PUBLIC)
    assert [name for name in PUBLIC if not hasattr(semel, name)] == []


def test_no_module_is_named_after_nothing() -> None:
    assert [name for name in MODULES | BENCH if NAMELESS & set(name.split("."))] == []


def test_every_class_has_a_name_of_its_own() -> None:
    assert repeated_classes(MODULES.values()) == []


def test_atomic_steps_are_sql_files_not_strings() -> None:
    assert breaches(sql_texts, but=MAY_WRITE_SQL) == []


def test_only_who_speaks_http_knows_its_statuses() -> None:
    assert breaches(http_statuses, but=(*MAY_KNOW_STATUSES, "bench")) == []


def test_the_library_does_not_print() -> None:
    assert breaches(prints, but=MAY_PRINT) == []


def test_no_function_outgrows_a_screen() -> None:
    assert breaches(long_functions) == []


def test_no_file_names_this_machine_or_a_package_registry() -> None:
    found = {str(path): words for path, text in source.text_files() if (words := machine_words(text))}
    assert found == {}


def test_every_folder_of_tests_is_a_package() -> None:
    folders = {path.parent for path in (source.ROOT / "tests").rglob("test_*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def module(text: str, name: str = "kernel.record") -> source.Module:
    return source.parse(text, source.LIBRARY / f"{name.replace('.', '/')}.py")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kernel.record", "from semel.call import guard"),
        ("kernel.record", "from semel.call.guard import perform"),
        ("kernel.record", "import semel.call.guard"),
        ("kernel.record", "from ..call.guard import perform"),
        ("kernel.record", "def late():\n    from ..call import guard"),
        ("kernel.record", "import semel"),
        ("stores.memory", "from ..ledger.ledger import Ledger"),
        ("stores.memory", "from semel.testing import FakeClock"),
        ("worker", "from semel.gateway import app"),
        ("gateway.app", "from semel.lab import demo"),
        *((room, "from semel.flow.model import Run") for room in INNER_ROOMS),
    ],
)
def test_an_upward_import_is_found(name: str, text: str) -> None:
    assert len(upward_imports(module(text, name))) == 1


@pytest.mark.parametrize("text", ["import bench", "import bench.run", "from bench.run import measure"])
def test_an_import_of_the_bench_is_found(text: str) -> None:
    assert bench_imports(module(text)) == ["kernel.record:1"]
    assert bench_imports(module("import benches\nfrom .bench import run\nbench = 1")) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "call.guard",
            "from semel import errors\nfrom semel.kernel.record import Record\nfrom ..kernel import keys",
        ),
        ("stores.sqlite", "from .base import Store\nfrom ..record import Record"),
        ("cli", "import semel\nfrom semel.lab import demo"),
        ("kernel.record", "import semelparous\nfrom pydantic import BaseModel"),
    ],
)
def test_an_inward_import_is_left_alone(name: str, text: str) -> None:
    assert upward_imports(module(text, name)) == []


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.time()",
        "import time as t\nnow = t.monotonic",
        "from time import time_ns\ntime_ns()",
        "import datetime\ndatetime.datetime.now(datetime.UTC)",
        "from datetime import datetime as moment\nmoment.now()",
        "import random\nrandom.random()",
        "from random import SystemRandom\nSystemRandom()",
        "import secrets\nsecrets.token_bytes()",
        "import os\nos.urandom(16)",
        "import uuid\nuuid.uuid4()",
    ],
)
def test_a_look_at_a_clock_or_a_roll_of_dice_is_found(text: str) -> None:
    assert clock_reads(module(text)) != []


def test_a_stopwatch_is_for_the_lab_the_bench_and_testing() -> None:
    text = "import time\ntime.perf_counter()"
    assert clock_reads(module(text, "call.guard")) != []
    assert clock_reads(module(text, "lab.runbooks")) == []
    assert clock_reads(module(text, "bench.run")) == []


@pytest.mark.parametrize(
    "text",
    [
        'x = "SELECT a, b FROM records WHERE key = ?"',
        'x = """\n  insert or ignore into records values (?)"""',
        'x = f"UPDATE {table} SET state = ?"',
        'x = "DELETE FROM records WHERE key = ?"',
        'x = "CREATE TABLE IF NOT EXISTS records (key BLOB)"',
    ],
)
def test_sql_in_a_string_is_found(text: str) -> None:
    assert len(sql_texts(module(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        'x = "PRAGMA journal_mode = WAL"',
        'x = "BEGIN IMMEDIATE"',
        'x = "COMMIT"',
        'x = "update the contract, then try again"',
        'x = "Select another step from the list"',
        '"""SELECT a FROM b: prose about a statement."""',
    ],
)
def test_pragmas_transactions_and_prose_are_no_sql(text: str) -> None:
    assert sql_texts(module(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        'KINDS = {"run_not_found": (404, "There is no such run.")}',
        "if answer.status_code >= 500:\n    wait()",
        "while 400 != status:\n    wait()",
        "reply(body, status=200)",
    ],
)
def test_a_status_of_http_is_found(text: str) -> None:
    assert len(http_statuses(module(text, "flow.problems"))) == 1


def test_other_round_numbers_are_no_status_of_http() -> None:
    assert http_statuses(module('_PAGE = 200\nx = status == "done"\nlist(limit=500)\nage = 400 * DAY')) == []


def test_a_class_name_that_exists_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (
        module("class Step: ...", "call.step"),
        module("class Run:\n    class Step: ...", "flow.model"),
    )
    assert repeated_classes([one]) == repeated_classes([one, module("Step = 1", "flow.model")]) == []
    assert repeated_classes([one, other]) == ["Step at call.step:1, flow.model:2"]
    monkeypatch.setitem(SHARED_CLASS_NAMES, "Step", {"flow.model"})
    assert repeated_classes([one, other]) == []


def test_a_print_and_a_long_function_are_found() -> None:
    assert prints(module("def f():\n    print(1)")) == ["kernel.record:2"]
    assert prints(module("x.print(1)")) == []
    long = 'def f():\n    """\n\n\n"""\n' + "    x = 1\n" * (FUNCTION_LINES_MAX - 1)
    assert len(long_functions(module(long))) == 1


@pytest.mark.parametrize("parts", [("", "root", "x"), ("sqlite:///", "tmp", "a.db"), ("(", "home", "me")])
def test_a_path_of_a_machine_is_found(parts: tuple[str, ...]) -> None:
    assert len(machine_words("/".join(parts))) == 1


def test_a_registry_is_found_and_a_relative_path_is_not() -> None:
    assert len(machine_words("https://" + "pypi" + ".org/project")) == 1
    assert machine_words("docs/home/x ./tmp/x https://example.org/home/x sqlite:////absolute.db") == []


def test_the_files_of_the_repository_are_seen() -> None:
    seen = {path for path, _ in source.text_files()}
    assert {Path("pyproject.toml"), Path("tests/tidy/test_tidy.py")} <= seen
    assert not any(".venv" in path.parts for path in seen)
