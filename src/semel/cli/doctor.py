"""`semel doctor`: is this store safe; exits 1 if something is dangerous."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich.text import Text

from semel.cli.target import Target, looks_at_store_itself
from semel.errors import StoreCorrupt
from semel.ledger import doctor
from semel.stores.base import Finding

_STYLES = {"ok": "green", "note": "yellow", "danger": "bold red"}


@click.command("doctor")
@looks_at_store_itself
def examine(target: Target) -> int:
    """Is this store safe: what would be lost, and when. Exits 1 if something is dangerous."""
    with target.out.progress("Looking at the store"):
        findings = _examined(target)
    safe = doctor.safe(findings)
    if target.out.as_json:
        target.out.data({"safe": safe, "findings": [asdict(finding) for finding in findings]})
        return 0 if safe else 1
    target.out.table(("", "WHAT", "FOUND"), [_row(finding) for finding in findings])
    fixes = [(finding.subject, finding.fix) for finding in findings if finding.fix]
    if fixes:
        target.out.say()
        target.out.table(("WHAT", "TO DO"), fixes)
    target.out.say()
    target.out.say("Nothing dangerous was found." if safe else "This store is not safe as it is.")
    return 0 if safe else 1


def _row(finding: Finding) -> tuple[Text, str, str]:
    return Text(finding.level, _STYLES[finding.level]), finding.subject, finding.text


def _examined(target: Target) -> list[Finding]:
    try:
        with target.ledger() as ledger:
            return doctor.examine(ledger.store, target.tenant)
    except StoreCorrupt as damage:
        return [Finding("danger", "integrity", damage.message, damage.corrective_action)]
