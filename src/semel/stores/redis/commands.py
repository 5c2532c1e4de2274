"""Commands as script calls, and the scripts' answers as replies."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from semel.errors import StoreCorrupt
from semel.kernel.clock import SYSTEM
from semel.kernel.record import (
    Address,
    Amend,
    Claim,
    Command,
    Look,
    Park,
    Record,
    Release,
    Renew,
    Reply,
    Resolve,
    Retake,
    Settle,
    apply,
    new,
)
from semel.stores.base import Store
from semel.stores.claimed_records import ClaimedRecords
from semel.stores.redis import first_form, scripts
from semel.stores.redis.packed_records import body_of, record_of
from semel.stores.redis.packing import digest_of, time
from semel.stores.redis.scripts import CODES, Script

Arguments = tuple[bytes, ...]

# The form of a store that is begun now. In one of the first form records keep the names that they always had,
# whichever form they have themselves, so that processes of all releases meet at them.
FORM, FIRST_FORM = b"2", b"1"

# A field of the book that is nobody's page: no text has this byte.
NO_TENANT = b"\xff"

# How much of the 32 bytes of an address's digest names its record. Nobody meets somebody else's by chance or
# by trying; and up to here an index needs no more space for it than for a number.
SHORT_DIGEST, LONG_DIGEST = 14, 32


class Request(NamedTuple):
    """What to ask of the server that has the lane: a script with its keys and arguments, or a command."""

    lane: int
    script: Script | None
    arguments: Arguments
    repeatable: bool = True  # Asked again after a lost reply it gets the same answer.
    held: Record | None = None  # What is settled, as its claim was answered.
    number: bytes | None = None  # Of a step: its answer repeats it.

    def answered_by(self, answer: Any) -> bool:
        """Whether this is the answer to this very request, as far as can be told."""
        return self.number is None or (type(answer) is list and len(answer) > 3 and answer[3] == self.number)

    def words(self) -> Arguments:
        if self.script is None:
            return self.arguments
        return (b"FCALL", *self.script, *self.arguments)


class LaneKeys(NamedTuple):
    """The names of the keys of one lane. They share a hash tag, and so a server."""

    number: int
    digest_bytes: int  # of an address: so many stand in the name of its record, and in indexes
    prefix: bytes
    lane: bytes
    due: bytes
    list: bytes
    ids: bytes
    events: bytes
    seals: bytes
    heads: bytes
    book: bytes
    pages: bytes

    def record(self, digest: bytes) -> bytes:
        if self.digest_bytes == SHORT_DIGEST:
            return self.prefix + b"r:" + digest[:SHORT_DIGEST]
        return self.prefix + b"r:" + digest.hex().encode()

    def document(self, digest: bytes) -> bytes:
        return self.prefix + b"d:" + digest.hex().encode()

    def indexes(self, digest: bytes) -> bytes:
        """Of the tenant with this digest."""
        return self.prefix + b"s:" + digest.hex().encode()


def lane(number: int, prefix: str, form: bytes = FORM) -> LaneKeys:
    base = f"{prefix}:{{{prefix}.{number:02x}}}:".encode()
    names = (b"lane", b"due", b"list", b"ids", b"events", b"seals", b"heads", b"book", b"pages")
    if form != FORM:
        return LaneKeys(number, LONG_DIGEST, base, *(base + name for name in names))
    # No record has the first form here, and every key that a step names should be there: so `due` is another.
    keys = LaneKeys(number, SHORT_DIGEST, base, *(base + name for name in names))
    return keys._replace(due=keys.pages)


def _flag(yes: bool) -> bytes:
    return b"1" if yes else b"0"


def _outcome(outcome: bytes | None) -> Arguments:
    if outcome is None:
        return b"0", b"", b""
    return b"1", outcome, hashlib.sha256(outcome).digest()


def _look(_: Look) -> Arguments:
    return ()


def _claim(command: Claim) -> Arguments:
    request = command.request
    body, field = body_of(request)
    waiting = b"1" if command.waiting else b"0"
    return command.token, time(command.lease_us), waiting, body, request.at.tenant.encode(), field, b""


def _first_form_claim(command: Claim) -> Arguments:
    """The same for a store that other releases may have open, too."""
    request = command.request
    body = first_form.parts_of(request)
    return command.token, time(command.lease_us), _flag(command.waiting), b"", b"", b"", body


def _retake(command: Retake) -> Arguments:
    return command.seen, command.token, time(command.lease_us), time(command.within_us)


def _renew(command: Renew) -> Arguments:
    return command.token, time(command.lease_us)


def _settle(command: Settle, held: Record | None) -> Arguments:
    return (
        command.token,
        b"%d" % CODES[command.state],
        *_outcome(command.outcome),
        b"" if held is None else time(held.fence),
        time(command.window_us),
        command.by.encode(),
    )


def _park(command: Park) -> Arguments:
    return command.token, command.note.encode()


def _release(command: Release) -> Arguments:
    return command.token, time(command.window_us)


def _resolve(command: Resolve) -> Arguments:
    seen = command.seen, command.token, _flag(command.happened)
    return *seen, *_outcome(command.outcome), time(command.window_us), command.by.encode()


def _amend(command: Amend) -> Arguments:
    return command.seen, command.token, *_outcome(command.outcome), command.by.encode()


_Steps = dict[type, tuple[Script, Callable[[Any], Arguments]]]

_STEPS: _Steps = {
    Look: (scripts.LOOK, _look),
    Claim: (scripts.CLAIM, _claim),
    Retake: (scripts.RETAKE, _retake),
    Renew: (scripts.RENEW, _renew),
    Park: (scripts.PARK, _park),
    Release: (scripts.RELEASE, _release),
    Resolve: (scripts.RESOLVE, _resolve),
    Amend: (scripts.AMEND, _amend),
}


def address_of(command: Any) -> Address:
    at: Address = command.request.at if type(command) is Claim else command.at
    return at


class Translator:
    """Writes requests and reads answers. It knows the lanes, and how far each had come when last heard of."""

    def __init__(
        self,
        store: Store,
        prefix: str,
        lanes: int,
        store_id: bytes,
        form: bytes = FORM,
        writes: bytes = FORM,
    ) -> None:
        self._store = store
        self.lanes = [lane(number, prefix, form) for number in range(lanes)]
        self.digest_bytes = self.lanes[0].digest_bytes
        self._steps: _Steps = dict(_STEPS)
        if writes != FORM:
            self._steps[Claim] = scripts.CLAIM, _first_form_claim
        self.store_id = store_id
        self._audit = _flag(store.audit)
        # What every step on a record of a lane names, but for the record.
        self._names = [
            (keys.lane, keys.due, keys.list, keys.ids, keys.events, keys.book, keys.pages, store_id)
            for keys in self.lanes
        ]
        self._seen = [0] * lanes
        self._commits_seen = [0] * lanes
        self.claimed = ClaimedRecords()
        self._numbers = itertools.count(1)

    @property
    def audit(self) -> bool:
        return self._store.audit

    def audit_kept_us(self) -> int:
        return self._store.audit_kept_us

    def now(self) -> bytes:
        """The time that servers take for theirs; nothing, unless the store was given its own clock."""
        clock = self._store.clock
        return b"" if clock is SYSTEM else b"%d" % clock.now_us()

    def lane_of(self, digest: bytes) -> LaneKeys:
        lanes = self.lanes
        return lanes[digest[0] % len(lanes)]

    def request(self, command: Command) -> Request:
        if type(command) is Settle:
            held = self._held_for(command)
            return self.step(scripts.SETTLE, digest_of(command.at), _settle(command, held), held=held)
        script, arguments = self._steps[type(command)]
        return self.step(script, digest_of(address_of(command)), arguments(command))

    def _held_for(self, command: Settle) -> Record | None:
        held = self.claimed.get(command.token)
        return None if held is None or held.request.at != command.at else held

    def step(
        self,
        script: Script,
        digest: bytes,
        own: Arguments,
        *,
        repeatable: bool = True,
        held: Record | None = None,
    ) -> Request:
        """A step on the record with this digest."""
        home, number = self.lanes[digest[0] % len(self.lanes)], b"%d" % next(self._numbers)
        place, clock = home.number, self._store.clock
        words = (
            home.record(digest), *self._names[place], b"%d" % self._seen[place],
            b"" if clock is SYSTEM else b"%d" % clock.now_us(), self._audit, digest[: home.digest_bytes],
            *own, number,
        )  # fmt: skip
        return new(Request, (place, script, words, repeatable, held, number))

    def heard(self, number: int, seq: int) -> None:
        """The lane has come this far: an answer from before it tells of lost data."""
        if seq > self._seen[number]:
            self._seen[number] = seq

    def seen(self, number: int) -> bytes:
        """The newest seq of the lane that this process heard of."""
        return b"%d" % self._seen[number]

    def document_step(
        self, home: LaneKeys, name: bytes, keys: Arguments, own: Arguments, *, repeatable: bool = True
    ) -> Request:
        """A step on documents of a tenant that this lane has."""
        number = b"%d" % next(self._numbers)
        return Request(
            home.number,
            Script(name, b"%d" % (1 + len(keys))),
            (home.lane, *keys,
             self.store_id, b"%d" % self._commits_seen[home.number], self.now(), *own, number),
            repeatable,
            number=number,
        )  # fmt: skip

    def heard_commits(self, number: int, count: int) -> None:
        """The lane has had so many commits: an answer that knows of fewer tells of lost data."""
        if count > self._commits_seen[number]:
            self._commits_seen[number] = count

    def reply(self, command: Any, request: Request, answer: list[Any]) -> Reply:
        applied, now_us, seq = answer[0], answer[1], answer[2]
        if seq > self._seen[request.lane]:
            self._seen[request.lane] = seq
        if applied == 2:
            # What a settlement takes over from its claim changes only together with the fence, and the script
            # compared that: so nothing has to be read back.
            record = apply(request.held, command, now_us)
        else:
            record = _record_in(answer, address_of(command))
        if type(command) is Settle:
            self.claimed.pop(command.token, None)
        elif applied and type(command) is Claim and not command.waiting and record is not None:
            self.claimed.keep(record)
        return new(Reply, (record, now_us, bool(applied)))


def _record_in(answer: list[Any], at: Address) -> Record | None:
    if len(answer) < 5 or answer[4] is None:
        return None
    record = record_of(answer[4])
    if record.request.at != at:
        raise StoreCorrupt()
    return record
