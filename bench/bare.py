"""A guarded call without layers: what Semel does for one tool, written out in plain Python for that tool.

This is what a call costs at least. Read `refund` from top to bottom: each line pays for a promise.

| step | pays for |
|---|---|
| types checked, size bounded | nothing unfit reaches the tool (14) |
| canonical bytes, key | the same action has the same key, in every process |
| look at the record | a replay is the original, for the whole window (4) |
| fingerprint | the same key with another payload is refused (8) |
| id, token of this process | one owner (1, 5), whose death can be seen (19) |
| stored arguments | a re-entry carries the first call's arguments (3) |
| claim and its event, under one lock | begun never reads absent (6); audit equals history (9) |
| heartbeat | a long call keeps its lease; a dead one loses it (17) |
| context | the tool can ask for its key and fence |
| result as bytes | every replay is a fresh, equal value (4) |
| settle and its event, if the token is still ours | only the newest owner may settle (5) |

It is no library: one tenant, exact types only, no other store, no contract, no policies. The store is a
dictionary, so there is no cache beside it. A test compares what it leaves with what Semel leaves, field by
field.
"""

from __future__ import annotations

import threading
from collections import deque
from contextvars import ContextVar
from hashlib import sha256
from os import urandom
from time import monotonic, time_ns
from typing import Any

import orjson

from bench import workload
from bench.workload import Receipt
from semel.errors import (
    InFlight,
    InvalidArguments,
    KeyReused,
    NoStep,
    OutcomeUnknown,
    OwnershipLost,
    ResultUnavailable,
)
from semel.kernel import owner
from semel.kernel.clock import SYSTEM
from semel.kernel.keys import frame

TENANT, SCOPE = "default", "tool"
LEASE_US = workload.refund.contract.lease_us
REFUND_WINDOW_US, PAY_WINDOW_US = workload.refund.contract.window_us, workload.pay.contract.window_us
BYTES_MAX = 1 << 20
BEAT_S = LEASE_US / 3e6  # two renewals may fail before the record is in doubt
REPLAYS_MAX = 50_000  # counted, and not written yet

# The end of each token: the process that holds the key.
PROCESS = owner.token(SYSTEM)[16:]

# What is the same for each call of a tool, made once.
REFUND_FRAME, PAY_FRAME = frame("refund", "2"), frame("pay", "1")
REFUND_PRINT = frame("semel.fingerprint", "1", "refund")
PAY_PRINT = frame("semel.fingerprint", "1", "pay")
REFUND_TERMS, PAY_TERMS = workload.refund.contract.terms, workload.pay.contract.terms

# The tools themselves, as both sides call them.
perform_refund, perform_pay = workload.refund.contract.function, workload.pay.contract.function

Record = dict[str, Any]
dumps, loads = orjson.dumps, orjson.loads


class BareStep:
    """Where keys are made: opened once, before the calls, and left after them."""

    __slots__ = ("_outer", "conversation", "left", "path", "principal", "seed")

    def __init__(self, conversation: str, step: str, principal: str = "") -> None:
        self.conversation, self.path, self.principal = conversation, dumps([step]).decode(), principal
        self.seed = sha256(frame("semel.key", "1", TENANT, conversation, frame(step)))
        self.left = False

    def __enter__(self) -> BareStep:
        self._outer = current_step.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.left = True  # also for a thread or task that copied the context
        current_step.reset(self._outer)


current_step: ContextVar[BareStep] = ContextVar("bare_step")
running: ContextVar[tuple[str, int] | None] = ContextVar("bare_running", default=None)
"""Key and fence of the tool that runs here."""


class Bare:
    """Records and events of one process, and a thread that renews the leases of running calls."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.events: list[tuple[Any, ...]] = []
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting = 0
        self._beats: dict[bytes, list[Any]] = {}  # by token the record, and when its lease is renewed
        self._replays: deque[tuple[Record, int]] = deque()
        self._closed = threading.Event()
        threading.Thread(target=self._beat, daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    # --- the whole call -----------------------------------------------------------------------------

    def refund(self, payment_id: str, amount_minor: int, reason: str) -> dict[str, str]:
        """The refund's result: of the tool, or of the call that made it before."""
        if not (type(payment_id) is str and type(amount_minor) is int and type(reason) is str):
            raise InvalidArguments
        step = current_step.get()
        if step.left:
            raise NoStep

        # `reason` does not tell actions apart, so it is stored and no part of the key.
        canonical = dumps({"amount_minor": amount_minor, "payment_id": payment_id})
        state = step.seed.copy()
        state.update(REFUND_FRAME + canonical)
        key = state.hexdigest()

        now_us = time_ns() // 1000
        record = self.records.get(key)
        if record is not None and record["state"] == "done" and record["expires_at"] > now_us:
            self._replays.append((record, now_us))
            if len(self._replays) > REPLAYS_MAX:
                self.write_replays()
            return _read(record)

        fingerprint = sha256(REFUND_PRINT + canonical).digest()
        arguments = dumps({"amount_minor": amount_minor, "payment_id": payment_id, "reason": reason})
        if len(arguments) > BYTES_MAX or b"\\u0000" in arguments:
            raise InvalidArguments
        chance = urandom(32)
        token = chance[:16] + PROCESS
        record = self._claim(
            key,
            "rec_" + chance[16:].hex(),
            "refund",
            "2.1.0",
            fingerprint,
            arguments,
            REFUND_TERMS,
            step,
            token,
        )
        if record["token"] != token:
            return _read(record)

        self._beats[token] = [record, monotonic() + BEAT_S]
        outer = running.get()
        running.set((key, record["fence"]))
        try:
            value: dict[str, str] = perform_refund(payment_id, amount_minor, reason, key)
        except BaseException as error:
            self._park(record, token, error)
            raise
        finally:
            running.set(outer)
            del self._beats[token]

        # Happened, and not kept: a result that would not read back as it was.
        outcome = dumps(value) if _is_texts(value) else None
        if outcome is not None and len(outcome) > BYTES_MAX:
            outcome = None
        self._settle(record, token, outcome, REFUND_WINDOW_US)
        return value

    def pay(self, payment_id: str) -> Receipt:
        """The same for a tool whose result is a model, which pydantic writes and reads."""
        if type(payment_id) is not str:
            raise InvalidArguments
        step = current_step.get()
        if step.left:
            raise NoStep

        canonical = dumps({"payment_id": payment_id})
        state = step.seed.copy()
        state.update(PAY_FRAME + canonical)
        key = state.hexdigest()

        now_us = time_ns() // 1000
        record = self.records.get(key)
        if record is not None and record["state"] == "done" and record["expires_at"] > now_us:
            self._replays.append((record, now_us))
            if len(self._replays) > REPLAYS_MAX:
                self.write_replays()
            return Receipt.model_validate_json(record["outcome"])

        # From here on as above; only its replay is measured.
        fingerprint = sha256(PAY_PRINT + canonical).digest()
        chance = urandom(32)
        token = chance[:16] + PROCESS
        id_ = "rec_" + chance[16:].hex()
        record = self._claim(key, id_, "pay", "1.0.0", fingerprint, canonical, PAY_TERMS, step, token)
        value: Receipt = perform_pay(payment_id)
        self._settle(record, token, b" " + value.model_dump_json().encode(), PAY_WINDOW_US)
        return value

    # --- the store: each step under the lock, with its event ----------------------------------------

    def _claim(
        self,
        key: str,
        id_: str,
        tool: str,
        version: str,
        fingerprint: bytes,
        arguments: bytes,
        terms: str,
        step: BareStep,
        token: bytes,
    ) -> Record:
        """The key's record: ours if it has our token, else the settled one of whoever was first."""
        with self._lock:
            now_us = time_ns() // 1000
            before = self.records.get(key)
            while before is not None and (before["expires_at"] or now_us + 1) > now_us:
                if before["fingerprint"] != fingerprint:
                    raise KeyReused
                if before["state"] == "done":
                    self._replays.append((before, now_us))
                    return before
                self._wait_for(before, now_us)
                now_us = time_ns() // 1000
            fence = now_us if before is None else max(before["fence"] + 1, now_us)
            record = self.records[key] = {
                "key": key,
                "id": id_,
                "tool": tool,
                "version": version,
                "fingerprint": fingerprint,
                "arguments": arguments,
                "terms": terms,
                "conversation": step.conversation,
                "step": step.path,
                "principal": step.principal,
                "state": "pending",
                "token": token,
                "fence": fence,
                "attempts": 1,
                "entries": 1,
                "created_at": now_us,
                "entered_at": now_us,
                "lease_until": now_us + LEASE_US,
                "settled_at": None,
                "expires_at": None,
                "outcome": None,
                "note": "",
            }
            self._write_event("claimed", record, now_us, fingerprint)
            return record

    def _settle(self, record: Record, token: bytes, outcome: bytes | None, window_us: int) -> None:
        with self._lock:
            if record["token"] != token or record["state"] != "pending":
                raise OwnershipLost
            now_us = time_ns() // 1000
            record["lease_until"], record["settled_at"] = None, now_us
            record["expires_at"], record["outcome"] = now_us + window_us, outcome
            record["state"] = "done"  # last: whoever looks without the lock looks at this first
            digest = record["fingerprint"] if outcome is None else sha256(outcome).digest()
            self._write_event("settled", record, now_us, digest)
            if self._waiting:
                self._changed.notify_all()

    def _park(self, record: Record, token: bytes, error: BaseException) -> None:
        """Nobody knows whether it happened."""
        with self._lock:
            if record["token"] != token or record["state"] != "pending":
                raise OwnershipLost
            record["state"], record["lease_until"] = "in_doubt", None
            record["note"] = f"the tool ended with {type(error).__name__}"
            self._write_event("parked", record, time_ns() // 1000, record["fingerprint"])
            if self._waiting:
                self._changed.notify_all()

    def _wait_for(self, before: Record, now_us: int) -> None:
        if before["state"] != "pending" or before["lease_until"] <= now_us:
            raise OutcomeUnknown
        self._waiting += 1
        try:
            if not self._changed.wait((before["lease_until"] - now_us) / 1e6):
                raise InFlight
        finally:
            self._waiting -= 1

    def _write_event(self, kind: str, record: Record, at_us: int, digest: bytes, times: int = 1) -> None:
        self.events.append((
            len(self.events) + 1, at_us, TENANT, SCOPE, record["key"], record["id"], kind, record["state"],
            record["fence"], record["tool"], record["version"], digest, record["expires_at"],
            record["conversation"], record["step"], record["principal"], record["note"], times,
        ))  # fmt: skip

    # --- in the background --------------------------------------------------------------------------

    def _beat(self) -> None:
        while not self._closed.wait(1.0):
            self.renew(monotonic())
            self.write_replays()

    def renew(self, now_s: float) -> None:
        """A sign of life for each call that runs for a third of its lease, and for another."""
        for token, beat in list(self._beats.items()):
            record, due = beat
            with self._lock:
                if due <= now_s and record["token"] == token and record["state"] == "pending":
                    record["lease_until"] = time_ns() // 1000 + LEASE_US
                    beat[1] = now_s + BEAT_S

    def write_replays(self) -> None:
        """One event for the replays of a record since the last time."""
        counted: dict[str, tuple[Record, int, int]] = {}
        for _ in range(len(self._replays)):
            record, at_us = self._replays.popleft()
            _, times, _ = counted.get(record["key"], (record, 0, 0))
            counted[record["key"]] = record, times + 1, at_us
        with self._lock:
            for record, times, at_us in counted.values():
                line = record | {"fence": 0, "expires_at": None}
                self._write_event("dedup_hit", line, at_us, b"", times)


def _read(record: Record) -> dict[str, str]:
    """The settled result, a fresh object each time."""
    if record["outcome"] is None:
        raise ResultUnavailable
    value: dict[str, str] = loads(record["outcome"])
    return value


def _is_texts(value: Any) -> bool:
    """Whether JSON gives it back as it is: what the tool's return type promises, checked."""
    if type(value) is not dict:
        return False
    return all(type(name) is str and type(text) is str for name, text in value.items())
