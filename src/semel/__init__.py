"""Semel: claim a key once, settle it once, let everyone else read the settlement."""

from semel import errors
from semel.declare import tool_contract
from semel.drive import current_fence, current_key
from semel.errors import PartialSuccess
from semel.keys import Key
from semel.ledger import Ledger, open
from semel.result import Approval, CannotTell, DidNotHappen, Happened, ToolCall, ToolError, ToolResult
from semel.transaction import Transaction
from semel.window import DedupWindow
from semel.worker.handlers import Job, handler

__all__ = [
    "Approval",
    "CannotTell",
    "DedupWindow",
    "DidNotHappen",
    "Happened",
    "Job",
    "Key",
    "Ledger",
    "PartialSuccess",
    "ToolCall",
    "ToolError",
    "ToolResult",
    "Transaction",
    "current_fence",
    "current_key",
    "errors",
    "handler",
    "open",
    "tool_contract",
]

__version__ = "0.1.0"
