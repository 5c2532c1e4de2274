"""The .sql files of this folder as text: one file, one atomic step. `{name}` stands for parts/name.sql.

A step of commands is written once and made into two statements: one takes plain values, of one command, the
other arrays, of many. `{asked ...}`, the columns that it asks for, and what is in parts/one and parts/many
are all that differs between them (docs/decisions/0048).
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import NamedTuple

_PART = re.compile(r"\{(\w+)\}")
_ASKED = re.compile(r"\{asked\s+([^}]*)\}")

# Of a command's own values: in front of them are the time, whether events are written, and the channel.
_FIRST = 4


class Statement(NamedTuple):
    """A statement, and under which name a connection prepares it."""

    name: bytes
    text: bytes


class CommandStep(NamedTuple):
    """The two statements of a step of commands, and the types of what it asks for of each command."""

    one: Statement
    many: Statement
    types: tuple[str, ...]


def _read(folder: str, name: str) -> str:
    text = (files(__package__) / folder / f"{name}.sql").read_text(encoding="utf-8")
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--")).strip()


def _whole(text: str) -> str:
    while _PART.search(text):
        text = _PART.sub(lambda part: _read("parts", part[1]), text)
    return text


def step(name: str) -> Statement:
    return Statement(name.encode(), _whole(_read("steps", name)).encode())


def command_step(name: str) -> CommandStep:
    text = _read("steps", name)
    match = _ASKED.search(text)
    assert match is not None, f"{name}.sql does not say what it asks for"
    columns = [column.split() for column in match[1].split(",")]
    types = tuple(type_ for _, type_ in columns)
    values = ", ".join(f"${place}::{type_} AS {name}" for place, (name, type_) in enumerate(columns, _FIRST))
    arrays = ", ".join(f"${place}::{type_}[]" for place, type_ in enumerate(types, _FIRST))
    names = ", ".join(name for name, _ in columns)
    one = text.replace(match[0], f"NOT MATERIALIZED (SELECT {values})")
    many = text.replace(match[0], f"MATERIALIZED (SELECT * FROM unnest({arrays}) AS a ({names}))")
    request = f"${_FIRST + len(columns)}::bigint"
    return CommandStep(
        Statement(name.encode(), _answered(one, "parts/one", request)),
        Statement(f"{name}_many".encode(), _answered(many, "parts/many", request)),
        types,
    )


def _answered(text: str, folder: str, request: str) -> bytes:
    text = text.replace("{answer}", _read(folder, "answer")).replace("{request}", request)
    return _whole(text).encode()


class Migration(NamedTuple):
    """Makes a schema of the one before it."""

    text: str
    works_with: int  # the oldest schema whose Semel can go on working once this one is there


def migrations() -> list[Migration]:
    """In order: the first makes schema 1, the second makes 2 of it."""
    names = sorted(file.name for file in (files(__package__) / "schema").iterdir())
    return [_migration(name.removesuffix(".sql")) for name in names if name.endswith(".sql")]


def _migration(name: str) -> Migration:
    raw = (files(__package__) / "schema" / f"{name}.sql").read_text(encoding="utf-8")
    works_with = re.search(r"^-- works with schema (\d+)", raw, re.MULTILINE)
    return Migration(_read("schema", name), int(works_with[1]) if works_with else int(name))


LOOK = command_step("look")
CLAIM = command_step("claim")
RETAKE = command_step("retake")
RENEW = command_step("renew")
SETTLE = command_step("settle")
PARK = command_step("park")
RELEASE = command_step("release")
RESOLVE = command_step("resolve")
AMEND = command_step("amend")

LIST_RECORDS = step("list_records")
LIST_ALL_RECORDS = step("list_all_records")
LIST_UNSETTLED = step("list_unsettled")
LIST_ALL_UNSETTLED = step("list_all_unsettled")
FIND_RECORD = step("find_record")
COUNT_RECORDS = step("count_records")
COUNT_UNSETTLED = step("count_unsettled")
READ_EVENTS = step("read_events")
READ_EVENTS_OF_RECORD = step("read_events_of_record")
READ_SEALS = step("read_seals")
APPEND_EVENTS = step("append_events")

COMMIT_DOCUMENTS = step("commit_documents")
FETCH_DOCUMENTS = step("fetch_documents")
SCAN_OLDEST = step("scan_oldest")
SCAN_NEWEST = step("scan_newest")
COUNT_DOCUMENTS = step("count_documents")
FIND_TENANTS = step("find_tenants")
WEIGH_DOCUMENTS = step("weigh_documents")

LAST_EVENT = step("last_event")
HORIZON = step("horizon")
HORIZON_REACHED = step("horizon_reached")
LAST_SEAL = step("last_seal")
UNSEALED_EVENTS = step("unsealed_events")
ADD_SEAL = step("add_seal")

SWEEP = step("sweep")
DROP_EVENTS = step("drop_events")

MARK_WAITED = step("mark_waited")

ECHO = step("echo")
GREET = step("greet")
JOIN = step("join")
MARK = step("mark")
PATH_TO_LEND = step("path_to_lend")
IDENTIFY = step("identify")
REACH_STANDBY = step("reach_standby")
READ_META = step("read_meta")
FIND_SCHEMA = step("find_schema")
LOCK_SCHEMA = step("lock_schema")
WRITE_META = step("write_meta")
SETTINGS = step("settings")
HEALTH = step("health")
