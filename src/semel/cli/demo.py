"""`semel demo`: Semel at work."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich.text import Text

from semel.cli.output import Output, complain
from semel.lab import demo as sunday
from semel.lab.demo import DemoAttempt, DemoLane, DemoOutcome

_ENDS = {None: "paid again", "in_doubt": "in doubt", "done": "done once"}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Answer with JSON.")
def demo(as_json: bool) -> int:
    """The Sunday incident: one refund decided, three crashes, replayed by the orchestrator.

    Without Semel the customer gets 4 refunds, with it 1. Exits 1 if not. Workers are real processes, and they
    really die by kill -9; everything is on the loopback and in a temporary directory, and gone afterwards.
    """
    out = Output(as_json)
    if not as_json:
        _introduce(out)
    try:
        outcome = sunday.play(lambda attempt: None if as_json else _tell(out, attempt))
    except sunday.DemoError as failure:
        complain("DEMO_FAILED", str(failure), "Run it again; nothing was left behind.", as_json)
        return 1
    if as_json:
        lanes = [asdict(lane) for lane in outcome.lanes]
        out.data({"ok": outcome.ok, "problems": outcome.problems, "lanes": lanes})
    else:
        _conclude(out, outcome)
    return 0 if outcome.ok else 1


def _introduce(out: Output) -> None:
    out.say("Sunday, 03:12. An agent decides one refund of 14,000.00. Its worker crashes")
    out.say("three times, and each time the orchestrator starts the step again.")


def _tell(out: Output, attempt: DemoAttempt) -> None:
    if attempt.lane == sunday.NAIVE:
        out.say()
        out.say(f"Attempt {attempt.number}{_crash(attempt)}", "bold")
    style = "red" if attempt.refunds > 1 else "green"
    worker = f"worker {attempt.pid} {_ending(attempt)}"
    out.say(f"  {attempt.lane:<31} {worker:<33} refunds: {attempt.refunds}", style)


def _crash(attempt: DemoAttempt) -> str:
    killed = attempt.ended == "killed"
    return f", killed when {sunday.CRASH_POINTS[attempt.place]}" if killed else ""


def _ending(attempt: DemoAttempt) -> str:
    match attempt.ended:
        case "killed":
            return "killed -9"
        case "refused":
            return str(attempt.answer)
        case _:
            return f"reports {attempt.answer}"


def _conclude(out: Output, outcome: DemoOutcome) -> None:
    out.say()
    columns = ("", "KILLED", "REQUESTS", "REFUNDS", "PAID", "IN THE END")
    out.table(columns, [_row(lane) for lane in outcome.lanes])
    parked = outcome.lanes[-1]
    out.say()
    out.say("Where the provider takes no key nobody can know: Semel does not guess, it asks.")
    out.say("A person looks into the provider's book and would type, were this store kept:")
    out.command(f"semel records resolve {parked.record_id} --happened")
    out.say()
    for problem in outcome.problems:
        out.say(f"NOT AS IT SHOULD BE: {problem}", "bold red")
    if outcome.ok:
        naive, guarded, _ = outcome.lanes
        out.say(f"Without Semel {naive.refunds} refunds, with it {guarded.refunds}.", "bold green")


def _row(lane: DemoLane) -> tuple[str | Text, ...]:
    crashes = sum(attempt.ended == "killed" for attempt in lane.attempts)
    style = "bold red" if lane.refunds > 1 else "bold green"
    end = _ENDS.get(lane.state, str(lane.state))
    refunds = Text(str(lane.refunds), style)
    return lane.name, str(crashes), str(lane.requests), refunds, f"{lane.paid_minor / 100:,.2f}", end
