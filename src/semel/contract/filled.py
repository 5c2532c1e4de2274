"""`semel.filled`: the default that a parameter has in the source and never at run time."""

from __future__ import annotations

from typing import Any


class Filled:
    """Its only instance is `filled`."""

    def __repr__(self) -> str:
        return "semel.filled"

    def __reduce__(self) -> str:
        return "filled"  # a copy is the same one


# Any, because it stands as the default of a Key as well as of a Transaction.
filled: Any = Filled()
"""The default of a `Key` or `Transaction` parameter, which Semel fills: no checker asks callers for it."""
