"""`semel tools`: the catalogue of what the ledgers of a store have run."""

from __future__ import annotations

from collections.abc import Sequence

import click

from semel.cli.operations import Data
from semel.cli.output import Cell, compact
from semel.cli.records import age
from semel.cli.target import Target, lists_tenants, looks_at_store


@click.group()
def tools() -> None:
    """Look at the tools that were run, as their contracts say."""


@tools.command("list")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@looks_at_store
@lists_tenants
def list_(target: Target, limit: int) -> None:
    """Tools, those that were first seen last on top."""
    with target.lists() as lists:
        items = lists.tools(limit)
    target.show_list(
        "No tools were run", items, ("TOOL", "VERSION", "CLASS", "WINDOW", "IN DOUBT", "SEEN"), _row
    )


def _row(tool: Data) -> Sequence[Cell]:
    return (
        tool["name"],
        tool["version"],
        tool["class"],
        tool["window"] or "-",
        tool["on_unknown"] or "-",
        age(tool["last_seen_at"]),
    )


@tools.command()
@click.argument("name", metavar="TOOL")
@click.option("--version", metavar="N", help="This major version. [the newest]")
@looks_at_store
def show(target: Target, name: str, version: str | None) -> None:
    """The whole contract of a tool, as it was last seen."""
    with target.operations() as operations:
        tool = operations.tool(name, version)
    if target.out.as_json:
        target.out.data(tool)
        return
    target.out.facts(_facts(tool))
    for warning in tool["warnings"]:
        target.out.say()
        target.out.say(warning)


def _facts(tool: Data) -> list[tuple[str, str]]:
    others = [each["version"] for each in tool["versions"] if each["version"] != tool["version"]]
    facts = {
        "Tool": f"{tool['name']} {tool['version']}",
        "Other versions": ", ".join(others),
        "Purpose": tool["purpose"],
        "Owner": tool["owner"],
        "Class": tool["class"],
        "Window": tool["window"] or "",
        "Lease": tool["lease"] or "",
        "In doubt": tool["on_unknown"] or "",
        "Downstream": tool["downstream_window"] or "",
        "Scopes": ", ".join(tool["scopes"]),
        "Secret": ", ".join(tool["secret"]),
        "Arguments": _schema(tool["schema"]),
        "Result": _schema(tool["result_schema"]),
        "Seen": f"{tool['first_seen_at']} to {tool['last_seen_at']}",
    }
    return [(name, text) for name, text in facts.items() if text]


def _schema(schema: Data | None) -> str:
    return "too large to be kept" if schema is None else compact(schema)
