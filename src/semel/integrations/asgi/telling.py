"""What `semel.instrumentation` is told of a request: it is a call, and its tool the route."""

from __future__ import annotations

from semel.call.ending import Stages, retry_age_s, stages_of
from semel.call.guarded_call import Call
from semel.errors import OutcomeUnknown
from semel.instrumentation.hooks import LISTENERS
from semel.instrumentation.numbers import DONE, REPLAYED, numbers_of
from semel.kernel.record import Record


class RequestTold:
    """Counted when it is answered. Hooks hear of its end when the application has returned: in the task in
    which they heard of its start, and after what it did in the background."""

    def __init__(self, call: Call) -> None:
        contract = call.contract
        self._call = call
        self._numbers = numbers_of(contract.name, recorded=True)
        self._observed = (
            LISTENERS.started(contract.name, contract.version, contract.class_) if LISTENERS.asks else None
        )
        self._end: tuple[str, bool, Stages, float | None] | None = None
        if self._numbers.measured or self._observed is not None:
            call.timed, call.asked_at = True, call.ledger.clock.monotonic()

    def done(self) -> None:
        self._answered(DONE, self._call, replayed=False)

    def replayed(self, of: Record | Call) -> None:
        self._answered(REPLAYED, of, replayed=True)
        self.over()

    def refused(self, code: str, *, replayed: bool = False) -> None:
        self._answered(code, self._call, replayed=replayed)

    def in_doubt(self) -> None:
        self._answered(OutcomeUnknown.code, self._call, replayed=False)

    def _answered(self, answer: str, of: Record | Call, *, replayed: bool) -> None:
        stages_s = stages_of(of)
        self._numbers.answered(answer, stages_s)
        self._end = answer, replayed, stages_s, retry_age_s(of, self._call.ledger)

    def over(self) -> None:
        """Nothing more comes of the request."""
        if self._observed is not None and self._end is not None:
            self._observed.end(*self._end)
