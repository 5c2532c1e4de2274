"""Calls as lines of a log."""

from __future__ import annotations

import logging

import pytest

from semel import errors, instrumentation
from tests.tools import a_step, declared


@pytest.fixture
def lines(no_hooks, caplog):
    instrumentation.use(instrumentation.logging)
    caplog.set_level(logging.DEBUG, "semel.calls")
    return lambda: [(each.levelname, each.message) for each in caplog.records if each.name == "semel.calls"]


def test_a_claim_and_a_replay_are_for_debugging(lines, ledger, clock, way):
    tool = way.tool(name="pay", version="2.1.0")(lambda to: to)
    with a_step(ledger):
        way.call(tool, "a")
        clock.advance("90s")
        way.call(tool, "a")
    assert lines() == [
        ("DEBUG", "semel: pay 2.1.0: done (claim 0.000000 s, tool 0.000000 s, settle 0.000000 s)"),
        ("DEBUG", "semel: pay 2.1.0: replayed, settled 90.000 s ago"),
    ]


def test_a_doubt_is_a_warning(lines, ledger, way):
    def pay(to: str) -> None:
        raise TimeoutError("canary")

    tool = way.tool()(pay)
    with a_step(ledger):
        with pytest.raises(TimeoutError):
            way.call(tool, "canary")
        with pytest.raises(errors.OutcomeUnknown):
            way.call(tool, "canary")
    assert [level for level, _ in lines()] == ["WARNING", "WARNING"]
    assert all("OUTCOME_UNKNOWN" in text and "canary" not in text for _, text in lines())


def test_a_refusal_is_for_debugging(lines, ledger):
    with pytest.raises(errors.NoStep):
        declared(name="pay")(lambda to: to)("a")
    [(level, text)] = lines()
    assert (level, "NO_STEP" in text) == ("DEBUG", True)


def test_another_logger_can_be_given(no_hooks, ledger, caplog):
    caplog.set_level(logging.DEBUG, "mine")
    instrumentation.use(instrumentation.logging(logger=logging.getLogger("mine")))
    with a_step(ledger):
        declared(name="pay")(lambda to: to)("a")
    assert [each.name for each in caplog.records] == ["mine"]
