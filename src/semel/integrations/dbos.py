"""DBOS: tool contracts in steps, with keys that follow from the workflow.

    from semel.integrations.dbos import retriable, step

    @DBOS.step(retries_allowed=True, should_retry=retriable)
    def charge_card(order: str, amount: int) -> str:
        with step(ledger, "charge"):
            return charge(order, amount)

    conversation   the workflow's id, which recovery and `DBOS.resume_workflow` keep, or the one that is given
    step           the name that its author gives

DBOS writes a step's exception down and raises it at every replay. So what is unfinished leaves the step as
itself only while DBOS has tries left, and then as `StepUnfinished`, which DBOS does not write down: the
workflow stays pending, and its next recovery, or `DBOS.resume_workflow`, meets the same keys. A step that
waits for a person uses up one try, however long that takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from dbos import DBOS

from semel.contract.raised import contracts_answer
from semel.errors import SemelError, StepError
from semel.integrations.engines import EngineStep
from semel.ledger.ledger import Ledger

# How often a waiting step looks whether a person has decided.
_LOOK_AGAIN_S = 2.0


class StepUnfinished(BaseException):
    """A call of this step is unfinished, and DBOS has no try left: its workflow stays pending.

    Not an `Exception`, which DBOS would take for the step's end. `__cause__` is how the call ended.
    """


def step(
    ledger: Ledger,
    name: str,
    *,
    conversation: str | None = None,
    scopes: Iterable[str] = (),
    principal: str = "",
) -> EngineStep:
    """The step of this name in the running workflow; `with`, and `async with` in an `async def`.

    `conversation` is for actions that outlive a workflow: "charge order 42" is one action in all of them.
    """
    workflow_id = DBOS.workflow_id
    if workflow_id is None:
        raise StepError(
            "This is not called by a DBOS workflow, so there is no workflow's id to make keys from; "
            "nothing ran.",
            corrective_action="Call the DBOS step from a workflow, or start it with DBOS.start_workflow.",
        )
    return _DbosStep(ledger, conversation or f"dbos:{workflow_id}", (name,), scopes, principal)


def retriable(error: BaseException) -> bool:
    """For `should_retry=`: whether another try can help. It cannot after what a contract has settled."""
    answer = contracts_answer(error) or error
    return not isinstance(answer, SemelError) or answer.retriable


class _DbosStep(EngineStep):
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._is_left_open(error) and not _on_event_loop():
            while self.is_undecided():
                self.ledger.clock.sleep(_LOOK_AGAIN_S)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._is_left_open(error):
            while await asyncio.to_thread(self.is_undecided):
                await self.ledger.clock.asleep(_LOOK_AGAIN_S)

    def _is_left_open(self, error: BaseException | None) -> bool:
        """Whether the error leaves a call unfinished that DBOS is going to try again; else StepUnfinished."""
        if not isinstance(error, Exception) or not self.unfinished:
            return False
        if not self.is_parked and _tries_left():
            return True
        tools = ", ".join(call.tool for call in self.unfinished)
        raise StepUnfinished(
            f"{tools}: {error} The workflow stays pending; DBOS.resume_workflow({DBOS.workflow_id!r}), or "
            "the recovery when DBOS starts again, goes on here."
        ) from error


def _tries_left() -> bool:
    status: Any = DBOS.step_status
    if status is None or status.max_attempts is None:
        return False
    return bool(status.current_attempt + 1 < status.max_attempts)


def _on_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
