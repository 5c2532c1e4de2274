"""What a process that runs tools shows to Prometheus: names, labels, bounds, forks, several processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

import semel
from semel import errors, instrumentation
from semel.instrumentation import numbers
from semel.instrumentation.numbers import CODES_MAX, OTHER, TOOLS_MAX, UNSEEN_MAX
from semel.testing import FakeClock
from tests.patience import PATIENCE_S
from tests.tools import a_step, another_process, declared

# The interface's list, written down once more.
PROMISED = {
    "semel_calls_total": {"tool", "answer"},
    "semel_call_seconds": {"tool", "stage"},
    "semel_retry_age_seconds": {"tool"},
}


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[CollectorRegistry]:
    """A registry in which the calls of this test are, and no others."""
    monkeypatch.setattr(numbers, "_tools", {})
    registry = CollectorRegistry()
    with instrumentation.use(instrumentation.prometheus(registry=registry)):
        yield registry


def samples(text: str) -> dict[str, list[dict[str, str]]]:
    """The labels of all samples, by name."""
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


def calls(registry: CollectorRegistry, tool: str, answer: str) -> float | None:
    return registry.get_sample_value("semel_calls_total", {"tool": tool, "answer": answer})


def measured(registry: CollectorRegistry, tool: str, stage: str) -> float | None:
    return registry.get_sample_value("semel_call_seconds_count", {"tool": tool, "stage": stage})


def busy(ledger: Any) -> None:
    """Everything happens once: done, replayed, failed."""
    with a_step(ledger):
        pay = declared(name="pay")(lambda to: to)
        pay("a")
        pay("a")
        with pytest.raises(errors.InvalidArguments):
            pay("a", "b")


@pytest.mark.parametrize(("name", "labels"), PROMISED.items())
def test_every_promised_metric_is_there_with_exactly_its_labels(registry, ledger, name, labels) -> None:
    busy(ledger)
    seen = samples(generate_latest(registry).decode())
    suffixes = {"_count": set(), "_bucket": {"le"}} if name.endswith("_seconds") else {"": set()}
    for suffix, more in suffixes.items():
        assert {frozenset(each) for each in seen[name + suffix]} == {frozenset(labels | more)}


def test_calls_are_counted_by_tool_and_answer(registry, ledger, way):
    tool = way.tool(name="pay")(lambda to: 1 / int(to))
    for each in (ledger, ledger, another_process(ledger)):
        with a_step(each):
            way.call(tool, "1")
    with a_step(ledger):
        for _ in range(2):
            with pytest.raises(errors.EffectFailed):
                way.call(tool, "0")
    with pytest.raises(errors.NoStep):
        way.call(tool, "1")
    seen = {
        answer: calls(registry, "pay", answer) for answer in ("done", "replayed", "EFFECT_FAILED", "NO_STEP")
    }
    assert seen == {"done": 1, "replayed": 2, "EFFECT_FAILED": 2, "NO_STEP": 1}


def test_doubt_stands_at_zero_from_the_first_call_of_a_recorded_tool(registry, ledger):
    with a_step(ledger):
        declared(name="pay")(lambda: 1)()
        declared(name="look", class_="read")(lambda: 1)()
    for code in ("OUTCOME_UNKNOWN", "OWNERSHIP_LOST", "UPSTREAM_TIMEOUT", "replayed"):
        assert (calls(registry, "pay", code), calls(registry, "look", code)) == (0, None)


def test_the_stages_that_a_call_came_to_are_measured(registry, ledger, clock):
    def pay(to: str) -> str:
        clock.advance("5s")
        return to

    tool = declared()(pay)
    with a_step(ledger):
        tool("a")
        tool("a")
    assert [measured(registry, "pay", stage) for stage in ("claim", "tool", "settle")] == [1, 1, 1]
    labels = {"tool": "pay", "stage": "tool"}
    assert registry.get_sample_value("semel_call_seconds_sum", labels) == 5
    assert registry.get_sample_value("semel_call_seconds_bucket", labels | {"le": "2.5"}) == 0
    assert registry.get_sample_value("semel_call_seconds_bucket", labels | {"le": "5.0"}) == 1
    declared(name="look", class_="read")(lambda: 1)()
    assert [measured(registry, "look", stage) for stage in ("claim", "tool", "settle")] == [None, 1, None]


def test_a_store_replay_and_a_refusal_of_the_store_are_measured_as_claims(registry, ledger):
    tool = declared(name="pay")(lambda to: to)
    for each in (ledger, another_process(ledger)):
        with a_step(each):
            tool("a")
    assert [measured(registry, "pay", stage) for stage in ("claim", "tool", "settle")] == [2, 1, 1]


def test_ages_of_retries_are_shown_though_nobody_has_written_them_down_yet(registry, ledger, clock):
    tool = declared(name="pay")(lambda to: to)
    with a_step(ledger):
        tool("a")
        clock.advance("2m")
        tool("a")
        tool("a")
        clock.advance("2h")
        tool("a")
    labels = {"tool": "pay"}
    assert registry.get_sample_value("semel_retry_age_seconds_count", labels) == 3
    assert registry.get_sample_value("semel_retry_age_seconds_bucket", labels | {"le": "600.0"}) == 2
    assert registry.get_sample_value("semel_retry_age_seconds_sum", labels) == 120 + 120 + 7320


def test_the_ages_of_one_moment_fall_under_their_own_bounds(registry):
    of = numbers.numbers_of("pay", recorded=True)
    of.retried([500_000, 5_000_000, 50_000_000], since_us=0)
    of.retried([0], since_us=1_000_000)  # clocks that disagree make no age below nothing
    assert of.ages.counts[:3] == [2, 1, 1]
    assert of.ages.total == 55.5


# --- bounds ---------------------------------------------------------------------------------------


def test_tools_beyond_the_first_share_a_label(registry):
    for number in range(TOOLS_MAX + 5):
        declared(name=f"look-{number}", class_="read")(lambda: 1)()
    assert calls(registry, "look-0", "done") == 1
    assert calls(registry, OTHER, "done") == 5
    assert len(samples(generate_latest(registry).decode())["semel_calls_total"]) == TOOLS_MAX + 1


def test_codes_of_a_tools_own_beyond_the_first_are_failures(registry, ledger):
    def pay(number: int) -> semel.ToolResult[int]:
        return semel.ToolResult.failure(f"DECLINED_{number}")

    tool = declared()(pay)
    with a_step(ledger):
        for number in range(CODES_MAX + 3):
            with pytest.raises(errors.EffectFailed):
                tool(number)
    assert calls(registry, "pay", "DECLINED_0") == 1
    assert calls(registry, "pay", "EFFECT_FAILED") == 3


def test_no_key_argument_or_secret_is_shown(registry, ledger):
    def pay(to: str, password: str) -> semel.ToolResult[str]:
        return semel.ToolResult.failure(password)

    tool = declared(secret=("password",))(pay)
    with a_step(ledger, "step-canary", conversation="conversation-canary", principal="principal-canary"):
        with pytest.raises(errors.EffectFailed):
            tool("argument-canary", "canary")
        key = ledger.records.list()[0].request.at.key
    text = generate_latest(registry).decode()
    assert "canary" not in text
    assert key not in text
    assert "acme" not in text


# --- measuring ------------------------------------------------------------------------------------


def test_calls_that_nobody_looks_at_are_counted_and_after_many_no_longer_measured(registry, ledger):
    tool = declared(name="pay")(lambda to: to)
    with a_step(ledger):
        for number in range(UNSEEN_MAX + 50):
            tool(str(number))
        assert calls(registry, "pay", "done") == UNSEEN_MAX + 50
        assert measured(registry, "pay", "tool") == UNSEEN_MAX
        # Somebody has looked just now, so all that follows is measured.
        for number in range(2 * UNSEEN_MAX):
            tool(f"more {number}")
    assert calls(registry, "pay", "done") == 3 * UNSEEN_MAX + 50
    assert measured(registry, "pay", "tool") == 3 * UNSEEN_MAX


def test_who_looked_long_ago_does_not_look_any_more(registry, monkeypatch):
    clock = FakeClock()
    monkeypatch.setattr(numbers, "SYSTEM", clock)
    of = numbers.numbers_of("pay", recorded=True)
    numbers.every_tool()
    clock.advance("9m")
    for _ in range(UNSEEN_MAX):
        of.ran(0.1)
    assert of.measured
    clock.advance("2m")
    for _ in range(UNSEEN_MAX):
        of.ran(0.1)
    assert not of.measured
    numbers.every_tool()
    assert of.measured


def test_nothing_is_measured_where_nobody_shows_it(no_hooks, ledger):
    tool = declared(name="unshown")(lambda to: to)
    with a_step(ledger):
        tool("a")
    assert not any(numbers.numbers_of("unshown", recorded=True).stages[0].counts)


# --- several of everything ------------------------------------------------------------------------


def test_calls_of_many_threads_and_ledgers_are_all_counted(registry):
    tool = declared(name="pay")(lambda to: to)

    def call(number: int) -> None:
        with semel.open("memory://") as ledger, a_step(ledger, str(number)):
            for number in range(300):
                tool(str(number))
                tool(str(number))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (calls(registry, "pay", "done"), calls(registry, "pay", "replayed")) == (2_400, 2_400)


def test_a_registry_that_has_the_names_already_is_left_alone(no_hooks, ledger, caplog):
    registry = CollectorRegistry()
    Counter("semel_calls", "Somebody else's.", registry=registry)
    instrumentation.use(instrumentation.prometheus(registry=registry))
    assert "semel_calls" in caplog.text
    with a_step(ledger):
        assert declared(name="pay")(lambda to: to)("a") == "a"
    instrumentation.use()


FORKING = """
import os, semel
from prometheus_client import generate_latest
pay = semel.tool_contract(name="pay")(lambda to: to)
with semel.open("memory://") as ledger, ledger.step(conversation="c", step="s"):
    pay("a")
    if os.fork() == 0:
        pay("b"); pay("b")
        print(generate_latest().decode(), flush=True)
        os._exit(0)
    os.wait()
"""


def test_a_forked_child_counts_from_nothing() -> None:
    text = run(FORKING)
    assert 'semel_calls_total{answer="done",tool="pay"} 1.0' in text
    assert 'semel_calls_total{answer="replayed",tool="pay"} 1.0' in text


MULTIPROCESS = """
import os, semel
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
pay = semel.tool_contract(name="pay")(lambda to: to)
for child in range(2):
    if os.fork() == 0:
        with semel.open("memory://") as ledger, ledger.step(conversation="c", step="s"):
            pay("a"); pay("a")
        os._exit(0)
    os.wait()
registry = CollectorRegistry()
MultiProcessCollector(registry)
print(generate_latest(registry).decode())
"""


def test_processes_that_share_a_folder_are_added_up(tmp_path: Path) -> None:
    text = run(MULTIPROCESS, PROMETHEUS_MULTIPROC_DIR=str(tmp_path))
    assert 'semel_calls_total{answer="done",tool="pay"} 2.0' in text
    assert 'semel_calls_total{answer="replayed",tool="pay"} 2.0' in text
    assert 'semel_call_seconds_count{stage="tool",tool="pay"} 2.0' in text
    assert 'semel_retry_age_seconds_count{tool="pay"} 2.0' in text


def run(program: str, **environment: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert ended.stderr == ""
    return ended.stdout


# --- a library process, scraped -------------------------------------------------------------------

SERVING = """
import sys, semel
from prometheus_client import start_http_server
server, _ = start_http_server(0, "127.0.0.1")
pay = semel.tool_contract(name="pay")(lambda to: to)
with semel.open("memory://") as ledger, ledger.step(conversation="c", step="s"):
    pay("a"); pay("a")
    print(server.server_port, flush=True)
    sys.stdin.read()
"""


def test_a_program_that_serves_its_registry_serves_its_calls_too() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer:
            text = answer.read().decode()
        process.stdin.close()
    assert process.returncode == 0
    assert 'semel_calls_total{answer="done",tool="pay"} 1.0' in text
    assert 'semel_calls_total{answer="replayed",tool="pay"} 1.0' in text
    assert 'semel_call_seconds_count{stage="settle",tool="pay"} 1.0' in text
    assert 'semel_retry_age_seconds_count{tool="pay"} 1.0' in text


# --- what it costs to have it ---------------------------------------------------------------------

LOADED = """
import sys, semel
def loaded(): return [name for name in ("prometheus_client", "opentelemetry") if name in sys.modules]
pay = semel.tool_contract(name="pay")(lambda to: to)
with semel.open("memory://") as ledger:
    print(loaded())
    with ledger.step(conversation="c", step="s"):
        pay("a")
    print(loaded())
"""


def test_prometheus_client_is_loaded_by_the_first_call_and_opentelemetry_by_nobody() -> None:
    assert run(LOADED).splitlines() == ["[]", "['prometheus_client']"]


def test_a_process_without_prometheus_client_calls_as_ever() -> None:
    without = "import sys\nsys.modules['prometheus_client'] = None\n" + LOADED
    assert run(without).splitlines() == ["['prometheus_client']"] * 2
