"""Semel: claim a key once, settle it once, let everyone else read the settlement."""

from semel import errors
from semel.call.declare import GuardedTool, tool_contract
from semel.call.drive import current_fence, current_key
from semel.call.step import outside_step
from semel.contract.filled import filled
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
from semel.flow.forgetting import close_windows
from semel.flow.run_progress import RunsFollow
from semel.kernel.keys import Key
from semel.ledger.default import conversation, resume, step, use
from semel.ledger.ledger import Ledger, open
from semel.windows.entity import DedupWindow

__all__ = [
    "Approval",
    "CannotTell",
    "DedupWindow",
    "DidNotHappen",
    "GuardedTool",
    "Happened",
    "Job",
    "Key",
    "Ledger",
    "PartialSuccess",
    "ToolCall",
    "ToolError",
    "ToolResult",
    "Transaction",
    "conversation",
    "current_fence",
    "current_key",
    "errors",
    "filled",
    "handler",
    "open",
    "outside_step",
    "resume",
    "step",
    "tool_contract",
    "use",
]

# A ledger knows nothing of runs. A decision on a step moves its run on all the same, and a sweep forgets runs
# and keys in time.
Ledger.follows, Ledger.chores = RunsFollow(), (close_windows,)

__version__ = "0.1.0"
