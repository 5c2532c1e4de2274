"""The .sql files of this folder as text: one file, one atomic step."""

from __future__ import annotations

from importlib.resources import files


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip()


def statement(name: str) -> str:
    return _without_comments((files(__package__) / "steps" / f"{name}.sql").read_text(encoding="utf-8"))


def _scripts(folder: str) -> tuple[str, ...]:
    files_by_name = sorted((file.name, file) for file in (files(__package__) / folder).iterdir())
    return tuple(
        _without_comments(file.read_text(encoding="utf-8"))
        for name, file in files_by_name
        if name.endswith(".sql")
    )


# The schema and its migrations in order: the first makes version 1, the second makes 2 of it. Read with the
# module, like every step: a program may give up its rights before it opens a ledger.
SCHEMAS = _scripts("schema")

# For a file of the first schema, and of the second, from before tables were called semel_….
RENAMING = _scripts("renaming")

LOOK = statement("look")
CLAIM_NEW = statement("claim_new")
CLAIM = statement("claim")
RETAKE = statement("retake")
RENEW = statement("renew")
REVIVE = statement("revive")
SETTLE_HELD = statement("settle_held")
SETTLE = statement("settle")
PARK = statement("park")
RELEASE = statement("release")
RESOLVE_HAPPENED = statement("resolve_happened")
RESOLVE_CLEARED = statement("resolve_cleared")
AMEND = statement("amend")

# More save no more, and what is left over is written one by one.
EVENTS_AT_ONCE = 8


def _repeated(inserting: str, times: int) -> str:
    head, row = inserting.rsplit("\n", 1)
    return f"{head}\n{','.join([row] * times)}"


NOTE_EVENT = statement("note_event")
NEXT_EVENT = statement("next_event")
NOTE_EVENTS = _repeated(statement("note_events"), EVENTS_AT_ONCE)
READ_EVENTS = statement("read_events")
READ_EVENTS_OF_RECORD = statement("read_events_of_record")
OLDEST_SEALED_RUN = statement("oldest_sealed_run")
DROP_EVENTS = statement("drop_events")
DROP_TRACES = statement("drop_traces")
TRACE_EVENTS = statement("trace_events")
NEWEST_EVENT = statement("newest_event")

UNSEALED_EVENTS = statement("unsealed_events")
LAST_SEAL = statement("last_seal")
ADD_SEAL = statement("add_seal")
READ_SEALS = statement("read_seals")

SWEEP_LAPSED = statement("sweep_lapsed")
SWEEP_CLOSED = statement("sweep_closed")
SWEEP_EARLY = statement("sweep_early")
FILE_ANEW = statement("file_anew")
LIST_RECORDS = statement("list_records")
LIST_ALL_RECORDS = statement("list_all_records")
LIST_UNSETTLED = statement("list_unsettled")
LIST_ALL_UNSETTLED = statement("list_all_unsettled")
FIND_ADDRESS = statement("find_address")
FIND_RECORD = statement("find_record")
COUNT_RECORDS = statement("count_records")
COUNT_UNSETTLED = statement("count_unsettled")

LOOK_AT_DOCUMENTS = statement("look_at_documents")
FETCH_DOCUMENTS = statement("fetch_documents")
PUT_DOCUMENT = statement("put_document")
DROP_DOCUMENT = statement("drop_document")
ADD_ENTRY = statement("add_place")
REMOVE_ENTRY = statement("remove_place")
COUNT_INDEX = statement("count_index")
SCAN_OLDEST = statement("scan_oldest")
SCAN_NEWEST = statement("scan_newest")
TENANTS = statement("tenants")
WEIGH_DOCUMENTS = statement("weigh_documents")

TABLES = statement("tables")
READ_META = statement("read_meta")
WRITE_META = statement("write_meta")
WRITE_VERSION = statement("write_version")
