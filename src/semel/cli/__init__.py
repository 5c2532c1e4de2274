"""The command `semel`: a file per command.

target             the store or gateway that a command looks at      output  for people and programs
table              tables that fit the screen                        summaries  of commands in --help
operations         what commands ask of it                           store_operations  of a store itself
server_operations  of a gateway, over HTTP                           serve_sample  `serve --sample`

approvals, audit, completion, console, dead_letters, demo, doctor, jobs, records, runbook, runs, serve, tools,
windows, worker: the commands of these names; api_keys: `semel keys`.

Exit codes: 0 done, 1 a check failed, 2 usage, 3 refused by a rule, 4 the store cannot be reached.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

import semel
from semel.cli.api_keys import keys
from semel.cli.approvals import approvals
from semel.cli.audit import audit_
from semel.cli.completion import completion
from semel.cli.console import console
from semel.cli.dead_letters import dead_letters
from semel.cli.demo import demo
from semel.cli.doctor import examine
from semel.cli.jobs import jobs
from semel.cli.output import complain
from semel.cli.records import records
from semel.cli.runbook import runbook
from semel.cli.runs import runs
from semel.cli.serve import serve
from semel.cli.summaries import whole_summaries
from semel.cli.target import asks_gateway
from semel.cli.tools import tools
from semel.cli.windows import windows
from semel.cli.worker import worker
from semel.errors import (
    ApprovalError,
    OpenError,
    RecordNotInDoubt,
    SemelError,
    StoreCorrupt,
    StoreUnavailable,
)

DONE, CHECK_FAILED, USAGE, REFUSED, UNREACHABLE = range(5)

# What a shell reports for a process that ended by Ctrl-C.
INTERRUPTED = 130


class _Semel(click.Group):
    """The group that turns whatever a command raises into a message and an exit code."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> NoReturn:
        words = list(sys.argv[1:] if args is None else args)
        try:
            _check_text(words)
            code = super().main(words, *rest, **({"prog_name": "semel"} | extra | {"standalone_mode": False}))
        except Exception as error:
            code = _complaint(error, words)
            if code is None:
                raise
        sys.exit(code if isinstance(code, int) else DONE)


def _check_text(words: Sequence[str]) -> None:
    """Names and reasons are kept and sent as UTF-8; other bytes of a command line cannot be."""
    for number, word in enumerate(words, 1):
        try:
            word.encode()
        except UnicodeEncodeError:
            raise click.UsageError(f"Word {number} of the command is not UTF-8. Nothing was done.") from None


def _complaint(error: Exception, words: Sequence[str]) -> int | None:
    """The exit code of a foreseeable error, which has been told; None for any other."""
    as_json = "--json" in words
    match error:
        case click.ClickException() if as_json:
            complain("USAGE", error.format_message(), "See --help.", as_json)
            return error.exit_code
        case click.ClickException():
            error.show()
            return error.exit_code
        case click.Abort():
            complain("INTERRUPTED", "Interrupted.", "", as_json)
            return INTERRUPTED
        case SemelError():
            complain(error.code, error.message, error.corrective_action or _next(error, words), as_json)
            unreachable = isinstance(error, OpenError | StoreUnavailable | StoreCorrupt)
            return UNREACHABLE if unreachable else REFUSED
    return None


def _next(error: SemelError, words: Sequence[str]) -> str:
    """Where to look, for what the library itself cannot advise on."""
    match error:
        case SemelError() if error.code.lower().endswith("_not_found") and words[0] in _LISTED:
            if asks_gateway(words):
                return f"`semel {words[0]} list` shows what the key's tenant has."
            return f"`semel {words[0]} list --all-tenants` shows what there is; --tenant says where to look."
        case RecordNotInDoubt():
            return "`semel records show` says how it stands."
        case ApprovalError():
            return "`semel approvals list` says how it stands."
    return ""


# Groups with a list of what their commands name.
_LISTED = ("records", "approvals", "runs", "jobs", "dead-letters")


@click.group(cls=_Semel, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(semel.__version__, prog_name="semel", message="%(prog)s %(version)s")
def main() -> None:
    """Side effects that land once, however often they are retried."""


_COMMANDS = (
    (demo, serve, worker, console, runbook, keys),
    (records, approvals, runs, jobs, dead_letters, tools),
    (audit_, examine, windows, completion),
)
for command in (each for group in _COMMANDS for each in group):
    main.add_command(command)
whole_summaries(main)
