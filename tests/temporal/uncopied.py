"""A workflow that forgets to pass the import through: the sandbox would load a copy of Semel for each run."""

from __future__ import annotations

from temporalio import workflow

from semel.integrations.temporal import EntityWindow


@workflow.defn
class Copies:
    @workflow.run
    async def run(self) -> int:
        return len(EntityWindow())
