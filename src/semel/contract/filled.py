"""Parameters beside the arguments: Semel fills those that are `semel.filled`, others the `semel.Injected`."""

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


class Injected:
    """Marks a parameter, as `Annotated[T, semel.Injected]`, that a framework or the calling code fills.

    It stays in the signature, and is in no schema, key or record: every entry takes it from the present call.
    """
