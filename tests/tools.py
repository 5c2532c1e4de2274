"""Tools for tests: declared with everything filled in that a test does not speak of."""

from collections.abc import Sequence
from typing import Any

import semel
from semel.audit.events import Event
from semel.call.step import Step
from semel.kernel.record import Record
from semel.ledger.ledger import Ledger
from semel.stores.base import ReadEvents


def declared(**said: Any) -> Any:
    """A recorded tool unless something else is said."""
    return semel.tool_contract(**{"class_": "write-non-idempotent", **said})


def keyed(**said: Any) -> Any:
    """A tool that forwards its key to a downstream which remembers it."""
    return declared(**{"downstream_window": "1h", **said})


def a_step(ledger: Ledger, name: str = "refund-1", **said: Any) -> Step:
    return ledger.step(**{"conversation": "conv-42", "step": name, **said})


_other_processes: list[Ledger] = []


def another_process(ledger: Ledger) -> Ledger:
    """The ledger as another process has it: there the name of a tool may be another function's."""
    _other_processes.append(Ledger(ledger.store, tenant=ledger.tenant))
    return _other_processes[-1]


def end_other_processes() -> None:
    """Their threads end with the test: none of them speaks in the log of the next one."""
    while _other_processes:
        _other_processes.pop().keeper.abandon()


def the_record(ledger: Ledger) -> Record:
    """The only record of a tool call."""
    [record] = ledger.records.list(scope="tool")
    return record


def state(ledger: Ledger) -> str:
    return ledger.records.effective_state(the_record(ledger))


def events(ledger: Ledger) -> Sequence[Event]:
    """Everything that was written down, what is still only counted included."""
    ledger.keeper.flush()
    return ledger.store.ask(ReadEvents(tenant=ledger.tenant))


def kinds(ledger: Ledger) -> list[str]:
    return [event.kind for event in events(ledger)]
