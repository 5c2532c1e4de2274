"""The .sql files of this folder as text: one file, one atomic step. `{name}` stands for parts/name.sql."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import NamedTuple

_PART = re.compile(r"\{(\w+)\}")


class Statement(NamedTuple):
    """A statement, and under which name a connection prepares it."""

    name: bytes
    text: bytes


def _read(folder: str, name: str) -> str:
    text = (files(__package__) / folder / f"{name}.sql").read_text(encoding="utf-8")
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--")).strip()


def _whole(text: str) -> str:
    while _PART.search(text):
        text = _PART.sub(lambda part: _read("parts", part[1]), text)
    return text


def step(name: str) -> Statement:
    return Statement(name.encode(), _whole(_read("steps", name)).encode())


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


LOOK = step("look")
CLAIM = step("claim")
RETAKE = step("retake")
RENEW = step("renew")
SETTLE = step("settle")
PARK = step("park")
RELEASE = step("release")
RESOLVE = step("resolve")
AMEND = step("amend")

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
READ_META = step("read_meta")
FIND_SCHEMA = step("find_schema")
LOCK_SCHEMA = step("lock_schema")
WRITE_META = step("write_meta")
SETTINGS = step("settings")
HEALTH = step("health")
