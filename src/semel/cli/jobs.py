"""`semel jobs`: list, show, cancel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import click

from semel.cli.operations import Data
from semel.cli.output import Cell, compact
from semel.cli.records import age
from semel.cli.target import Target, lists_tenants, looks_at_store
from semel.gateway.bodies import JobStatus


@click.group()
def jobs() -> None:
    """Look at jobs; cancel them."""


@jobs.command("list")
@click.option("--status", type=click.Choice(get_args(JobStatus)), help="Only these.")
@click.option("--topic", metavar="NAME", help="Only of this topic.")
@click.option("--run", "run_id", metavar="RUN", help="Only of this run.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@looks_at_store
@lists_tenants
def list_(target: Target, limit: int, **filters: str | None) -> None:
    """Jobs, newest first."""
    with target.lists() as lists:
        items = lists.jobs(filters, limit)
    columns = ("JOB", "STATUS", "AGE", "TOPIC")
    target.show_list("No jobs", items, columns, _row, filtered=any(filters.values()))


def _row(job: Data) -> Sequence[Cell]:
    return job["job_id"], job["status"], age(job["created_at"]), job["topic"]


@jobs.command()
@click.argument("job_id", metavar="JOB")
@looks_at_store
def show(target: Target, job_id: str) -> None:
    """A job: what it is given, how it stands, how it ended."""
    with target.operations() as operations:
        job = operations.job(job_id)
    if target.out.as_json:
        target.out.data(job)
    else:
        target.out.facts(_facts(job))


def _facts(job: Data) -> list[tuple[str, str]]:
    step = f", step {job['step_id']}" if job["step_id"] else ""
    facts = {
        "Job": job["job_id"],
        "Topic": job["topic"],
        "Status": job["status"],
        "Run": f"{job['run_id']}{step}" if job["run_id"] else "",
        "Attempts": str(job["attempt"]),
        "Submitted by": job["submitted_by"],
        "Labels": compact(job["labels"]) if job["labels"] else "",
        "Created": job["created_at"],
        "Ended": job["ended_at"] or "",
        "Input": compact(job["input"]),
        "Result": "" if job["result"] is None else compact(job["result"]),
        "Error": "" if job["error"] is None else compact(job["error"]),
    }
    return [(name, text) for name, text in facts.items() if text]


@jobs.command()
@click.argument("job_id", metavar="JOB")
@looks_at_store
def cancel(target: Target, job_id: str) -> None:
    """Nobody works on the job any more; its run goes on without it, and fails in the end."""
    with target.operations() as operations:
        job, replayed = operations.cancel_job(job_id)
    if target.out.as_json:
        target.out.data(job)
    else:
        before = " before; nothing was changed" if replayed else ""
        target.out.say(f"{job_id} was cancelled{before}.")
