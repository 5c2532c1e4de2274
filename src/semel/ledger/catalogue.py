"""The catalogue: every contract that a ledger of this store has run, as its `describe()` says, and when last.

Kept per tenant, so that people, and whatever has only the store, know a tool without its code: what its
result looks like, how long it is honoured. Several processes write into it. Nothing of it is on a call's way:
a call looks into a dictionary, and the keeper writes. Until it has, records say what their tool returns.

document     id            indexes, and what the score is
tool         tool/<name>   tools: when it was first seen; expiry: when it is forgotten

Of each major version the newest is kept: the highest, or a lower one once the higher has not been seen for a
while (somebody went back). What is secret, default values included, is not in it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from pydantic_core import from_json, to_json

from semel.contract.contract import Contract
from semel.contract.http_answer import answer_schema
from semel.errors import StoreUnavailable
from semel.kernel.answers import ContractJson, SightJson, ToolJson
from semel.kernel.clock import rfc3339
from semel.kernel.record import OF_HTTP, Record
from semel.stores.base import Store
from semel.stores.documents import Capacity, Commit, Document, Draft, Entry, Fetch
from semel.stores.index_names import EXPIRY

log = logging.getLogger("semel")

INDEX = "tools"

# Tools of one tenant. Beyond this a new one is not catalogued: some program makes up names.
TOOLS_MAX = 1_000

# Major versions of one tool; the one that was seen longest ago goes first.
_MAJORS_MAX = 8

# A contract whose schemas are larger than this is kept without them.
_BYTES_MAX = 64 << 10

# In a record's terms: what the tool returns, where the catalogue may not have known it yet.
RETURNS = "returns"

# A record with a schema larger than this does without it.
_TERMS_BYTES_MAX = 8 << 10

# "Last seen" is for people: an hour is near enough, and a fleet of a hundred writes hardly ever.
SEEN_EVERY_US = 3_600_000_000

# A higher version that nobody has run for so long has been taken back.
_GONE_US = 2 * SEEN_EVERY_US

# As long as the audit log: whoever looks into that still finds what its tools were.
_KEPT_US = 400 * 86_400_000_000

# Each try fails only if another process was quicker.
_TRIES = 20

_VERSION = 1

_PARTS = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class Sight:
    """One major version of a tool."""

    contract: ContractJson
    first_us: int
    last_us: int


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A tool by its name, in all its major versions."""

    name: str
    majors: dict[int, Sight] = field(default_factory=dict)

    @property
    def newest(self) -> Sight:
        return self.majors[max(self.majors)]

    @property
    def first_us(self) -> int:
        return min(sight.first_us for sight in self.majors.values())

    @property
    def last_us(self) -> int:
        return max(sight.last_us for sight in self.majors.values())

    def of(self, version: str) -> Sight | None:
        """The major version that this version belongs to."""
        return self.majors.get(major(version))


# --- written by whoever runs tools ----------------------------------------------------------------


class Sightings:
    """The contracts that a ledger runs, on their way into the catalogue. Used by any thread."""

    def __init__(self, store: Store, tenant: str, wake: Callable[[], None]) -> None:
        self._store = store
        self._tenant = tenant
        self._wake = wake
        self._due: dict[Contract, int] = {}
        self._waiting: dict[Contract, int] = {}
        self._terms: dict[Contract, str] = {}

    def saw(self, contract: Contract, now_us: int) -> None:
        """It is being run. On the way of every call, so this looks into a dictionary and nothing else."""
        due = self._due.get(contract)
        if due is None or due <= now_us:
            self._note(contract, now_us)

    def _note(self, contract: Contract, now_us: int) -> None:
        if len(self._due) >= TOOLS_MAX:
            self._due.clear()  # made anew for each call, as it seems: they are not worth the memory
        self._due[contract] = now_us + SEEN_EVERY_US
        if len(self._waiting) < TOOLS_MAX:
            self._waiting[contract] = now_us
        self._wake()

    def terms(self, contract: Contract) -> str:
        """What a record says of its contract: also what it returns, while the catalogue may not know it.

        A process that dies in its first call leaves a record in doubt and no catalogue, and whoever resolves
        it is held to what the tool returns all the same.
        """
        if contract not in self._waiting:
            return contract.terms
        terms = self._terms.get(contract)
        if terms is None:
            terms = self._terms[contract] = _with_returns(contract)
        return terms

    def contract_of(self, name: str, version: str) -> Contract | None:
        """The contract itself, if this ledger has run it."""
        number = major(version)
        return next((each for each in list(self._due) if each.name == name and each.major == number), None)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def merge(self, at_most: int | None = None) -> None:
        """They are in the store. Raises what the store raises; what it did not take stays here."""
        for contract, seen_us in list(self._waiting.items())[:at_most]:
            try:
                _merge(self._store, self._tenant, contract, seen_us)
            except StoreUnavailable:
                raise
            except Exception:
                # A contract that cannot be described is not worth more than a line.
                log.exception("semel: the contract of %s is not in the catalogue", contract.name)
            self._waiting.pop(contract, None)
            self._terms.pop(contract, None)


def _with_returns(contract: Contract) -> str:
    try:
        described = _without_secrets(contract)
    except Exception:  # one that cannot be described can be called; the keeper logs it
        return contract.terms
    returns = {"schema": described["result_schema"], "secret": described["secret"]}
    written = to_json(from_json(contract.terms) | {RETURNS: returns})
    return contract.terms if len(written) > _TERMS_BYTES_MAX else written.decode()


def _merge(store: Store, tenant: str, contract: Contract, seen_us: int) -> None:
    described = _without_secrets(contract)
    id_ = document_id(contract.name)
    for _ in range(_TRIES):
        document = store.ask(Fetch(tenant, (id_,))).documents.get(id_)
        entry = CatalogueEntry(contract.name) if document is None else entry_of(document)
        if entry is None:
            return  # a later version of Semel wrote it, and knows better
        merged = _with(entry, described, contract.major, seen_us)
        if merged is None:
            return
        expect: Mapping[str, str | None] = {id_: document.tag if document else None}
        capacity = () if document else (Capacity(INDEX, TOOLS_MAX),)
        commit = Commit(tenant, store.clock.token().hex(), expect, (_draft(merged),), capacity=capacity)
        committed = store.ask(commit)
        if committed.full is not None:
            log.warning("semel: the catalogue of %s is full: %s is not in it", tenant, contract.name)
        if committed.done or committed.full is not None:
            return


def _with(entry: CatalogueEntry, described: ContractJson, number: int, seen_us: int) -> CatalogueEntry | None:
    """The entry with this sight in it; None if that would change nothing that matters."""
    before = entry.majors.get(number)
    if before is None:
        majors = entry.majors | {number: Sight(described, seen_us, seen_us)}
        while len(majors) > _MAJORS_MAX:
            majors.pop(min(majors, key=lambda each: majors[each].last_us))
        return CatalogueEntry(entry.name, majors)
    fresh = seen_us - before.last_us < SEEN_EVERY_US
    if before.contract == described:
        return None if fresh else _replaced(entry, number, before.contract, seen_us)
    lower = _order(described["version"]) < _order(before.contract["version"])
    if lower and seen_us - before.last_us < _GONE_US:
        return None
    return _replaced(entry, number, described, seen_us)


def _replaced(entry: CatalogueEntry, number: int, described: ContractJson, seen_us: int) -> CatalogueEntry:
    before = entry.majors[number]
    sight = Sight(described, before.first_us, max(seen_us, before.last_us))
    return CatalogueEntry(entry.name, entry.majors | {number: sight})


def _without_secrets(contract: Contract) -> ContractJson:
    """The contract as data that came from JSON, so that it compares equal with what is kept."""
    described = from_json(to_json(contract.describe(), fallback=str))
    names = {part for path in contract.secret for part in path.split(".")}
    for word in ("schema", "result_schema"):
        described[word] = _stripped(described[word], names)
    if len(to_json(described)) > _BYTES_MAX:
        described |= {"schema": None, "result_schema": None, "purpose": described["purpose"][:1_000]}
    return cast(ContractJson, described)


def _stripped(schema: Any, names: set[str]) -> Any:
    """The schema without the default values and examples of members with these names, wherever they are."""
    if isinstance(schema, list):
        return [_stripped(part, names) for part in schema]
    if not isinstance(schema, dict):
        return schema
    stripped = {word: _stripped(part, names) for word, part in schema.items()}
    members = stripped.get("properties")
    if isinstance(members, dict):
        stripped["properties"] = {
            name: _silent(part) if name in names or _is_secret(part) else part
            for name, part in members.items()
        }
    return stripped


def _silent(part: Any) -> Any:
    return {word: rest for word, rest in part.items() if word not in ("default", "examples")}


def _is_secret(part: Any) -> bool:
    return isinstance(part, dict) and bool(part.get("writeOnly"))


def major(version: str) -> int:
    match = _PARTS.match(version)
    return int(match[0]) if match else 0


def _order(version: str) -> tuple[int, ...]:
    """Numbers only: what follows a dash or a plus tells two builds of one version apart."""
    return tuple(int(part) for part in _PARTS.findall(re.split("[-+]", version)[0]))


# --- read by people, and by what checks their answers ---------------------------------------------


def find(store: Store, tenant: str, name: str) -> CatalogueEntry | None:
    """What is known of the tool; None if no ledger of the tenant has run it."""
    id_ = document_id(name)
    document = store.ask(Fetch(tenant, (id_,))).documents.get(id_)
    return None if document is None else entry_of(document)


class ResultForm(NamedTuple):
    """What the catalogue knows of a tool's results."""

    schema: dict[str, Any]
    secret: tuple[str, ...]


def results_of(store: Store, record: Record) -> ResultForm | None:
    """What a result of the record's tool looks like; None if neither the catalogue nor the record knows."""
    request = record.request
    if request.at.scope == OF_HTTP:
        return ResultForm(answer_schema(), ())  # whatever the application is, an answer has one form
    entry = find(store, request.at.tenant, request.tool)
    sight = None if entry is None else entry.of(request.version)
    if sight is not None:
        return _form(sight.contract.get("result_schema"), sight.contract["secret"])
    returns = from_json(request.terms).get(RETURNS, {})
    return _form(returns.get("schema"), returns.get("secret", ()))


def _form(schema: Any, secret: Iterable[str]) -> ResultForm | None:
    return ResultForm(schema, tuple(secret)) if isinstance(schema, dict) else None


def shown(entry: CatalogueEntry, sight: Sight | None = None) -> ToolJson:
    """The tool as JSON data: in this major version, or the newest."""
    sight = sight or entry.newest
    versions = [_seen(each) for _, each in sorted(entry.majors.items(), reverse=True)]
    return {**sight.contract, **_seen(sight), "versions": versions}


def shown_as(entry: CatalogueEntry | None, version: str | None) -> ToolJson | None:
    """The same, in the major version that is asked for; None if there is none."""
    if entry is None or version is None:
        return None if entry is None else shown(entry)
    sight = entry.of(version)
    return None if sight is None else shown(entry, sight)


def _seen(sight: Sight) -> SightJson:
    return {
        "version": sight.contract["version"],
        "first_seen_at": rfc3339(sight.first_us),
        "last_seen_at": rfc3339(sight.last_us),
    }


# --- as a document --------------------------------------------------------------------------------


def document_id(name: str) -> str:
    return f"tool/{name}"


def _draft(entry: CatalogueEntry) -> Draft:
    majors = {
        str(number): {"contract": each.contract, "first_us": each.first_us, "last_us": each.last_us}
        for number, each in entry.majors.items()
    }
    body = to_json({"version": _VERSION, "name": entry.name, "majors": majors})
    entries = (Entry(INDEX, entry.first_us), Entry(EXPIRY, entry.last_us + _KEPT_US))
    return Draft(document_id(entry.name), body, entries)


def entry_of(document: Document) -> CatalogueEntry | None:
    """None for what a later version of Semel wrote, or nobody."""
    try:
        data = from_json(document.body)
        if data["version"] != _VERSION or not data["majors"]:
            raise ValueError(f"a tool of version {data['version']}")
        majors = {int(number): Sight(**each) for number, each in data["majors"].items()}
        return CatalogueEntry(data["name"], majors)
    except (ValueError, KeyError, TypeError, AttributeError):
        log.warning("semel: what is kept in %s cannot be read and is left alone", document.id)
        return None
