"""Semel: claim a key once, settle it once, let everyone else read the settlement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semel.kernel.late_imports import late_import
from semel.ledger import beyond

if TYPE_CHECKING:
    from semel import errors, instrumentation
    from semel.call.declare import GuardedTool, contract_for, tool_contract
    from semel.call.entering import current_fence, current_key
    from semel.call.step import outside_step
    from semel.contract.filled import Injected, filled
    from semel.contract.handlers import Job, handler
    from semel.contract.result import (
        Approval,
        CannotTell,
        DidNotHappen,
        Happened,
        ToolCall,
        ToolError,
        ToolResult,
    )
    from semel.contract.transaction import Transaction
    from semel.errors import PartialSuccess
    from semel.kernel.keys import Key
    from semel.ledger.default import conversation, resume, step, use
    from semel.ledger.ledger import Ledger, open
    from semel.questions.approvals import Question
    from semel.windows.entity import DedupWindow

__all__ = [
    "Approval",
    "CannotTell",
    "DedupWindow",
    "DidNotHappen",
    "GuardedTool",
    "Happened",
    "Injected",
    "Job",
    "Key",
    "Ledger",
    "PartialSuccess",
    "Question",
    "ToolCall",
    "ToolError",
    "ToolResult",
    "Transaction",
    "contract_for",
    "conversation",
    "current_fence",
    "current_key",
    "errors",
    "filled",
    "handler",
    "instrumentation",
    "open",
    "outside_step",
    "resume",
    "step",
    "tool_contract",
    "use",
]

__version__ = "0.1.0"

# Where each public name lives; loaded when it is first used, so that a program that only imports us does not
# wait for pydantic and asyncio.
_HOMES = {
    "errors": "",
    "instrumentation": "",
    "GuardedTool": "call.declare",
    "contract_for": "call.declare",
    "tool_contract": "call.declare",
    "current_fence": "call.entering",
    "current_key": "call.entering",
    "outside_step": "call.step",
    "Injected": "contract.filled",
    "filled": "contract.filled",
    "Job": "contract.handlers",
    "handler": "contract.handlers",
    "Approval": "contract.result",
    "CannotTell": "contract.result",
    "DidNotHappen": "contract.result",
    "Happened": "contract.result",
    "ToolCall": "contract.result",
    "ToolError": "contract.result",
    "ToolResult": "contract.result",
    "Transaction": "contract.transaction",
    "PartialSuccess": "errors",
    "Key": "kernel.keys",
    "conversation": "ledger.default",
    "resume": "ledger.default",
    "step": "ledger.default",
    "use": "ledger.default",
    "Ledger": "ledger.ledger",
    "open": "ledger.ledger",
    "Question": "questions.approvals",
    "DedupWindow": "windows.entity",
}

# Said by its full name without an import of its own, as in `semel.testing.hammer(…)`.
_ROOMS = ("agents", "client", "testing")

# Type checkers read the imports above. Were they shown this function, they would take every name for ours.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        import importlib  # only here, and only once per name

        home = "" if name in _ROOMS else _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'semel' has no attribute {name!r}")
        with late_import:
            if not home:
                return importlib.import_module(f"semel.{name}")
            value = globals()[name] = getattr(importlib.import_module(f"semel.{home}"), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


def _beyond_the_ledger() -> beyond.Parts:
    """A ledger knows nothing of runs. A decision on a step moves its run on all the same, and a sweep forgets
    runs and keys in time."""
    # Here, because a program that opens no ledger does not need them.
    with late_import:
        from semel.flow.forgetting import close_windows
        from semel.flow.run_progress import RunsFollow

    return RunsFollow(), (close_windows,)


beyond.parts = _beyond_the_ledger
