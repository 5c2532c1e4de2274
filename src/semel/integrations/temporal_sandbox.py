"""Refuses to be loaded as a copy by the sandbox of Temporal's workflows, and names the fix.

A copy would not see the conversation that a workflow opens with the other one.
"""

from __future__ import annotations

from temporalio import workflow

if workflow.unsafe.in_sandbox() and not workflow.unsafe.is_imports_passed_through():
    raise RuntimeError(
        "Semel has to pass through the workflow sandbox, which would load a copy of it for each run: "
        "import it inside `with workflow.unsafe.imports_passed_through():`."
    )
