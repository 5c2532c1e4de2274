"""`semel dead-letters`: list, show, retry."""

from __future__ import annotations

from collections.abc import Sequence

import click

from semel.cli.operations import Data
from semel.cli.output import Cell
from semel.cli.records import age
from semel.cli.target import Target, lists_tenants, looks_at_store
from semel.kernel.clock import SYSTEM


@click.group("dead-letters")
def dead_letters() -> None:
    """Look at messages that a consumer could not handle; send them again."""


@dead_letters.command("list")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@looks_at_store
@lists_tenants
def list_(target: Target, limit: int) -> None:
    """Dead letters, newest first."""
    with target.lists() as lists:
        items = lists.dead_letters(limit)
    target.show_list("No dead letters", items, ("LETTER", "RETRIED", "AGE", "TYPE", "TOPIC"), _row)


def _row(letter: Data) -> Sequence[Cell]:
    retried = "yes" if letter["retried_at"] else "no"
    return letter["id"], retried, age(letter["dead_at"]), letter["type"], letter["topic"] or "-"


@dead_letters.command()
@click.argument("id_", metavar="LETTER")
@looks_at_store
def show(target: Target, id_: str) -> None:
    """A dead letter: which message it is, and why it was put aside."""
    with target.operations() as operations:
        letter = operations.dead_letter(id_)
    if target.out.as_json:
        target.out.data(letter)
    else:
        target.out.facts(_facts(letter))


def _facts(letter: Data) -> list[tuple[str, str]]:
    retried = f"{letter['retried_at']} by {letter['retried_by']}" if letter["retried_at"] else ""
    facts = {
        "Letter": letter["id"],
        "Message": letter["message_id"],
        "Type": letter["type"],
        "Topic": letter["topic"] or "",
        "Run": letter["run_id"] or "",
        "Job": letter["job_id"] or "",
        "Consumer": letter["consumer"],
        "Deliveries": str(letter["deliveries"]),
        "Error": letter["error"],
        "Put aside": letter["dead_at"],
        "Retried": retried,
    }
    return [(name, text) for name, text in facts.items() if text]


@dead_letters.command()
@click.argument("id_", metavar="LETTER")
@click.option("--key", metavar="KEY", help="The same key again is the same retry. [a new one]")
@looks_at_store
def retry(target: Target, id_: str, key: str | None) -> None:
    """Send the message again, once."""
    with target.operations() as operations:
        letter, replayed = operations.retry_dead_letter(id_, key or SYSTEM.token().hex())
    if target.out.as_json:
        target.out.data(letter)
    else:
        before = " with this key before; nothing was changed" if replayed else ""
        target.out.say(f"{id_} is sent again, says {letter['retried_by']}{before}.")
