"""`semel runs`: list, show, cancel, rerun."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import click

from semel.cli.operations import Data
from semel.cli.output import Cell, compact
from semel.cli.records import age
from semel.cli.target import Target, lists_tenants, looks_at_store
from semel.gateway.bodies import RunStatus
from semel.kernel.clock import SYSTEM


@click.group()
def runs() -> None:
    """Look at runs of workflows; cancel them, or run them again."""


@runs.command("list")
@click.option("--workflow", "workflow_id", metavar="ID", help="Only of this workflow.")
@click.option("--status", type=click.Choice(get_args(RunStatus)), help="Only these.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@looks_at_store
@lists_tenants
def list_(target: Target, workflow_id: str | None, status: str | None, limit: int) -> None:
    """Runs, newest first."""
    with target.lists() as lists:
        items = lists.runs(workflow_id, status, limit)
    columns = ("RUN", "STATUS", "AGE", "WORKFLOW")
    target.show_list("No runs", items, columns, _row, filtered=bool(workflow_id or status))


def _row(run: Data) -> Sequence[Cell]:
    return run["run_id"], run["status"], age(run["created_at"]), run["workflow_id"]


@runs.command()
@click.argument("run_id", metavar="RUN")
@looks_at_store
def show(target: Target, run_id: str) -> None:
    """A run: its steps, what went in and came out, and what happened when."""
    with target.operations() as operations:
        run = operations.run(run_id)
    if target.out.as_json:
        target.out.data(run)
        return
    target.out.facts(_facts(run))
    if run["steps"]:
        target.out.say()
        target.out.table(("JOB", "STATUS", "STEP"), [_step(step) for step in run["steps"]])
    target.out.say()
    target.out.table(("AT", "EVENT", "STEP", "BY"), [_event(event) for event in run["timeline"]])


def _facts(run: Data) -> list[tuple[str, str]]:
    facts = {
        "Run": run["run_id"],
        "Workflow": run["workflow_id"],
        "Status": run["status"],
        "Rerun of": run["rerun_of"] or "",
        "Created": run["created_at"],
        "Ended": run["ended_at"] or "",
        "Input": compact(run["input"]),
        "Result": "" if run["result"] is None else compact(run["result"]),
        "Error": "" if run["error"] is None else compact(run["error"]),
    }
    return [(name, text) for name, text in facts.items() if text]


def _step(step: Data) -> Sequence[Cell]:
    return step["job_id"] or "-", step["status"], step["id"]


def _event(event: Data) -> Sequence[Cell]:
    return event["at"], event["type"], event.get("step_id", ""), event.get("by", "")


@runs.command()
@click.argument("run_id", metavar="RUN")
@looks_at_store
def cancel(target: Target, run_id: str) -> None:
    """Nothing of the run goes on; its slot is free."""
    with target.operations() as operations:
        run, replayed = operations.cancel_run(run_id)
    if target.out.as_json:
        target.out.data(run)
    else:
        before = " before; nothing was changed" if replayed else ""
        target.out.say(f"{run_id} was cancelled{before}.")


@runs.command()
@click.argument("run_id", metavar="RUN")
@click.option("--from-step", required=True, metavar="STEP", help="It and what follows from it run again.")
@click.option("--key", metavar="KEY", help="The same key again is the same rerun. [a new one]")
@looks_at_store
def rerun(target: Target, run_id: str, from_step: str, key: str | None) -> None:
    """Begin a new run that keeps what succeeded elsewhere than from STEP on."""
    with target.operations() as operations:
        run, replayed = operations.rerun(run_id, from_step, key or SYSTEM.token().hex())
    if target.out.as_json:
        target.out.data(run)
    else:
        before = " with this key before; nothing was changed" if replayed else ""
        target.out.say(f"{run_id} runs again from {from_step} as {run['run_id']}{before}.")
