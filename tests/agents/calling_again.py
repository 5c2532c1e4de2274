"""Frameworks that hand a failure to the model and ask it to try again: the scripted model does so, once."""

from __future__ import annotations

from typing import Any

from tests.agents.script import Job, Round


def says(job: Job, turn: int, round_: int, last_answer: str) -> Round:
    """What the model says; `retry` among the job's options: it repeats a call whose answer is a failure."""
    failed = round_ == 1 and not last_answer.startswith("refund of")
    return job.says(turn, 0 if failed and job.options.get("retry") else round_)


def options(job: Job) -> dict[str, Any]:
    """What the job's options say to the integration."""
    return {name: value for name, value in job.options.items() if name != "retry"}


def only(job: Job, *names: str) -> dict[str, Any]:
    """What they say to a part of it."""
    return {name: value for name, value in job.options.items() if name in names}
