"""`semel serve`, in which every request for the tenant's lock is noted as it goes to the store.

`python -m semel.lab.runbooks.watched_gateway FILE serve …`: FILE has the moments of all of them, by the
monotonic clock of the machine, when the gateway has stopped.
"""

from __future__ import annotations

import runpy
import sys
from array import array
from pathlib import Path

from semel.flow import indexes
from semel.flow.document_store import DocumentStore
from semel.kernel.clock import SYSTEM
from semel.stores.documents import Commit, Committed


def watch() -> array[float]:
    """From now on the moments come into this."""
    moments, write = array("d"), DocumentStore.write

    async def noted(self: DocumentStore, commit: Commit) -> Committed:
        if any(draft.id == indexes.LOCK for draft in commit.put):
            moments.append(SYSTEM.monotonic())
        return await write(self, commit)

    DocumentStore.write = noted  # type: ignore[method-assign]
    return moments


def read(file: Path) -> list[float]:
    """What a gateway that has stopped has left."""
    moments = array("d")
    moments.frombytes(file.read_bytes())
    return moments.tolist()


def serve(file: Path) -> None:
    moments = watch()
    try:
        runpy.run_module("semel", run_name="__main__", alter_sys=True)
    finally:
        file.write_bytes(moments.tobytes())


if __name__ == "__main__":
    serve(Path(sys.argv.pop(1)))
