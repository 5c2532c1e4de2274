"""One guarded call: what is called, on whose behalf, and what the guard knows of it."""

from __future__ import annotations

from typing import Any

from semel.call.step import Visit
from semel.contract.contract import Contract
from semel.contract.exact import Exact
from semel.kernel.keys import Key
from semel.ledger.ledger import Ledger
from semel.ledger.running import RunningCall


class Call(RunningCall):
    """A call whose arguments fit and whose key is known."""

    __slots__ = (
        "arguments",
        "canonical",
        "exact",
        "fingerprint",
        "keep",
        "ledger",
        "looks_first",
        "open_calls",
        "replayed",
        "step",
    )

    fingerprint: bytes  # set by the guard

    def __init__(
        self,
        contract: Contract,
        ledger: Ledger,
        key: Key,
        arguments: dict[str, Any],
        exact: Exact | None,
        canonical: bytes,
        instance: Any,
        visit: Visit | None,
        outer: RunningCall | None,
    ) -> None:
        RunningCall.__init__(self, contract, ledger.tenant, key, arguments, instance, outer)
        self.ledger = ledger
        self.arguments = arguments
        self.exact = exact  # the same, if all have exactly their declared types
        self.canonical = canonical
        self.step = None if visit is None else visit.step
        self.open_calls = () if visit is None else visit.open_calls  # of the numbered steps around it
        self.keep = True  # whether its settlement may be kept in the process
        self.looks_first = False  # whether the store is asked for a settlement before the claim is made
        self.replayed = False  # whether its answer is an earlier call's
