"""What a command does, on every store: what `record.apply` says, and one event in the same commit."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from semel.audit.events import CLOSED, LAPSED, Event, fold, new_event, of, told_by
from semel.kernel.record import Address, Claim, Command, Record, Reply, State, apply, closed, sweep
from semel.stores.base import AppendEvents, ReadEvents, Sweep
from tests.commands import (
    SECOND,
    WINDOW,
    A,
    B,
    C,
    amend,
    claim,
    look,
    park,
    release,
    renew,
    resolve,
    retake,
    settle,
)
from tests.fake_clock import FakeClock
from tests.handles import StoreHandle
from tests.situations import COMMANDS, COMMANDS_OF_OTHERS, SITUATIONS, Step


def moved(command: Command, at: Address) -> Command:
    """The same command for a record that lives elsewhere."""
    if isinstance(command, Claim):
        asked = command.request
        return command._replace(request=asked._replace(at=at, id=f"{asked.id}_{at.key}"))
    return command._replace(at=at)


class Expected:
    """What the specification says about one record and its events."""

    def __init__(self) -> None:
        self.record: Record | None = None
        self.events: list[Event] = []

    def perform(self, command: Command, now_us: int) -> Reply:
        after = apply(self.record, command, now_us)
        if after is None:
            return Reply(self.record, now_us, False)
        event = of(self.record, after, command, now_us)
        self.events += [] if event is None else [event]
        self.record = after
        return Reply(after, now_us, True)

    def sweep(self, now_us: int) -> None:
        if self.record is None:
            return
        if (marked := sweep(self.record, now_us)) is not None:
            self.record = marked
            self.events.append(new_event(LAPSED, marked, now_us))
        elif closed(self.record, now_us):
            self.events.append(new_event(CLOSED, self.record, now_us))
            self.record = None


class Pair:
    """A store and the specification, taken through the same steps at several addresses at once."""

    def __init__(self, handle: StoreHandle, clock: FakeClock, addresses: Iterable[Address]) -> None:
        self.handle = handle
        self.clock = clock
        self.expected = {at: Expected() for at in addresses}

    def take(self, step: Step) -> None:
        if isinstance(step, int):
            self.clock.advance(step / SECOND)
        elif isinstance(step, str):
            self._sweep()
        else:
            for at in self.expected:
                self.compare(at, moved(step, at))

    def _sweep(self) -> None:
        for expected in self.expected.values():
            expected.sweep(self.clock.now_us())
        while self.handle.ask(Sweep()).more:
            pass

    def compare(self, at: Address, command: Command) -> None:
        assert self.handle.perform(command) == self.expected[at].perform(command, self.clock.now_us())

    def compare_events(self) -> None:
        events = self.handle.ask(ReadEvents())
        assert [event.seq for event in events] == sorted({event.seq for event in events})
        for at, expected in self.expected.items():
            assert [event._replace(seq=0) for event in events if event.at == at] == expected.events


@pytest.mark.parametrize("steps", SITUATIONS.values(), ids=SITUATIONS)
def test_every_command_in_every_situation_does_what_the_specification_says(handle, clock, steps):
    commands = {f"by the owner: {name}": command for name, command in COMMANDS.items()}
    commands |= {f"by another: {name}": command for name, command in COMMANDS_OF_OTHERS.items()}
    places = {Address("acme", "tool", name): command for name, command in commands.items()}
    pair = Pair(handle, clock, places)
    for step in steps:
        pair.take(step)
    for at, command in places.items():
        pair.compare(at, moved(command, at))
        pair.compare(at, look(at))
    pair.compare_events()


def test_an_absent_record_is_none_and_looking_does_not_make_one(handle, clock):
    for _ in range(2):
        assert handle.perform(look()) == Reply(None, clock.now_us(), False)
    assert handle.ask(ReadEvents()) == []


def test_a_reply_tells_the_stores_own_time(handle, clock):
    clock.advance(5)
    reply = handle.perform(claim(A))
    assert reply.now_us == clock.now_us()
    assert reply.record.created_at == clock.now_us()


def test_a_second_caller_reads_what_the_first_one_settled(handle):
    handle.perform(claim(A))
    settled = handle.perform(settle(A)).record
    reply = handle.perform(claim(B))
    assert (reply.record, reply.applied) == (settled, False)


# --- asking again after a lost reply (the owner cannot know whether the first try arrived) -------------


REPEATED: dict[str, tuple[Command, ...]] = {
    "claim": (claim(A),),
    "question": (claim(A, waiting=True),),
    "retake": (claim(A), park(A), retake(A, B)),
    "renew": (claim(A), renew(A)),
    "settle": (claim(A), settle(A)),
    "settle from in doubt": (claim(A), park(A), settle(A)),
    "settle for ever": (claim(A), settle(A, window_us=None)),
    "fail": (claim(A), settle(A, state=State.FAILED)),
    "park": (claim(A), park(A)),
    "release": (claim(A), release(A)),
    "resolve: happened": (claim(A), park(A), resolve(A, B, True)),
    "resolve: did not": (claim(A), park(A), resolve(A, B, False)),
    "amend": (claim(A), park(A), resolve(A, B, True), amend(B, C)),
}


@pytest.mark.parametrize("commands", REPEATED.values(), ids=REPEATED)
def test_a_command_asked_again_gets_the_same_record_and_writes_no_second_event(handle, commands):
    first = [handle.perform(command) for command in commands][-1]
    events = handle.ask(ReadEvents())
    for _ in range(3):
        assert handle.perform(commands[-1]).record == first.record
    assert handle.ask(ReadEvents()) == events


def test_a_later_entry_released_again_writes_no_second_event(handle):
    for command in (claim(A), park(A), retake(A, B), release(B)):
        handle.perform(command)
    events = handle.ask(ReadEvents())
    handle.perform(release(B))
    assert handle.ask(ReadEvents()) == events


# --- fences --------------------------------------------------------------------------------------------


def test_fences_rise_through_releases_clearings_windows_and_a_clock_that_was_set_back(handle, clock):
    fences = []

    def entered(command: Command) -> None:
        reply = handle.perform(command)
        assert reply.applied
        assert reply.record is not None
        fences.append(reply.record.fence)

    entered(claim(A))
    handle.perform(release(A))
    entered(claim(B))
    clock.advance(-7 * 86_400)
    handle.perform(park(B))
    entered(retake(B, A))
    handle.perform(park(A))
    handle.perform(resolve(A, C, False, window_us=SECOND))
    entered(claim(B))
    handle.perform(settle(B, window_us=SECOND))
    clock.advance(1)
    entered(claim(C))
    assert fences == sorted(set(fences))


# --- events --------------------------------------------------------------------------------------------


def test_events_fold_to_the_record_at_every_moment(handle, clock):
    steps = (
        claim(A),
        renew(A),
        park(A),
        retake(A, B),
        release(B),
        resolve(B, C, False),
        claim(A),
        settle(A),
    )
    for step in steps:
        clock.advance(1)
        record = handle.perform(step).record
        assert record is not None
        assert fold(handle.ask(ReadEvents(record_id=record.request.id))) == told_by(record)


def test_without_audit_records_live_and_no_event_is_written(handles, clock):
    handle = handles.open(clock, audit_on=False)
    handle.perform(claim(A))
    handle.perform(settle(A))
    clock.advance(WINDOW / SECOND)
    assert handle.ask(Sweep()).closed == 1
    assert handle.ask(ReadEvents()) == []


def test_without_audit_counted_answers_are_not_written_either(handles, clock):
    audited, silent = handles.open(clock), handles.open(clock, audit_on=False)
    audited.perform(claim(A))
    (event,) = audited.ask(ReadEvents())
    silent.ask(AppendEvents([event._replace(kind="dedup_hit")]))
    assert "dedup_hit" not in [line.kind for line in silent.ask(ReadEvents())]


# --- what the fields can hold --------------------------------------------------------------------------


ODD_TEXTS = {
    "empty": "",
    "nul": "a\x00b",
    "only nul": "\x00",
    "unicode": "Ünïcødé 🦊 \u202e\u0301",
    "quotes": "'; DROP TABLE records; --\"\\%_",
    "newlines": "a\r\nb\tc",
    "last plane": "\U0010ffff",
    "long": "x" * 4_000,
    "number": "007",
}


@pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS)
def test_any_text_comes_back_as_it_was(handle, text):
    at = Address(f"t{text}", f"s{text}", f"k{text}")
    texts = dict.fromkeys(
        ("id", "tool", "version", "terms", "conversation", "step", "principal", "job_id"), text
    )
    first = handle.perform(claim(A, at, **texts))
    assert first.record.request._asdict() == {**claim(A, at).request._asdict(), **texts}
    assert handle.perform(look(at)).record == first.record
    assert handle.perform(park(A, at, note=text)).record.note == text
    resolved = handle.perform(resolve(A, B, True, at, by=text))
    assert resolved.record.by == text
    assert handle.perform(look(at)).record == resolved.record
    last = handle.ask(ReadEvents())[-1]
    assert (last.at, last.record_id, last.tool, last.conversation) == (at, text, text, text)


def test_texts_that_differ_only_after_a_nul_or_in_case_are_different_keys(handle):
    keys = ("k", "K", "k\x00", "k\x00a", "k\x00b", "k ", "k\u0301", "ḱ", "\ufb01", "fi")
    for number, key in enumerate(keys):
        assert handle.perform(claim(bytes([number]) * 16, Address("acme", "tool", key))).applied
    for number, key in enumerate(keys):
        assert handle.perform(look(Address("acme", "tool", key))).record.token == bytes([number]) * 16


ALL_BYTES = bytes(range(256))


def test_any_bytes_come_back_as_they_were(handle):
    reply = handle.perform(claim(ALL_BYTES[:16], fingerprint=ALL_BYTES, arguments=ALL_BYTES))
    assert (reply.record.request.fingerprint, reply.record.request.arguments) == (ALL_BYTES, ALL_BYTES)
    assert handle.perform(settle(ALL_BYTES[:16], outcome=ALL_BYTES)).applied
    assert handle.perform(look()).record.outcome == ALL_BYTES


def test_tokens_are_compared_byte_by_byte(handle):
    handle.perform(claim(b"\x00" * 16))
    for other in (b"", b"\x00" * 15, b"\x00" * 15 + b"\x01", b"\x00" * 17, b"0" * 16):
        assert not handle.perform(settle(other)).applied
    assert handle.perform(settle(b"\x00" * 16)).applied


@pytest.mark.parametrize("outcome", [None, b"", b"\x00", b"null"])
def test_no_outcome_and_an_empty_one_are_told_apart(handle, outcome):
    handle.perform(claim(A))
    handle.perform(settle(A, outcome=outcome))
    assert handle.perform(look()).record.outcome == outcome


def test_an_outcome_of_a_megabyte_comes_back(handle):
    outcome = ALL_BYTES * 4096
    handle.perform(claim(A, arguments=outcome))
    handle.perform(settle(A, outcome=outcome))
    record = handle.perform(claim(B)).record
    assert (record.outcome, record.request.arguments) == (outcome, outcome)


def test_times_beyond_32_bits_and_beyond_a_floats_digits_are_exact(handle, clock):
    century = 100 * 366 * 86_400 * SECOND + 1
    handle.perform(claim(A, lease_us=century))
    assert handle.perform(look()).record.lease_until == clock.now_us() + century
    handle.perform(settle(A, window_us=2**60 + 1))
    assert handle.perform(look()).record.expires_at == clock.now_us() + 2**60 + 1


def test_a_window_for_ever_never_closes(handle, clock):
    handle.perform(claim(A))
    handle.perform(settle(A, window_us=None))
    clock.advance(10_000 * 366 * 86_400)
    assert handle.ask(Sweep()).closed == 0
    reply = handle.perform(claim(B))
    assert (reply.record.token, reply.applied) == (A, False)


# --- tenants, scopes and keys --------------------------------------------------------------------------


NEIGHBOURS = [
    Address("acme", "tool", "k"),
    Address("acme", "tool", "k2"),
    Address("acme", "run", "k"),
    Address("globex", "tool", "k"),
    Address("acm", "etool", "k"),
    Address("acmetool", "", "k"),
    Address("", "acmetool", "k"),
    Address("acme", "toolk", ""),
]


def test_records_of_other_tenants_scopes_and_keys_never_meet(handle):
    for number, at in enumerate(NEIGHBOURS):
        assert handle.perform(claim(bytes([number]) * 16, at)).applied
    for number, at in enumerate(NEIGHBOURS):
        assert handle.perform(settle(bytes([number]) * 16, at, outcome=bytes([number]))).applied
    for number, at in enumerate(NEIGHBOURS):
        assert handle.perform(look(at)).record.outcome == bytes([number])


@pytest.mark.parametrize("at", NEIGHBOURS[1:])
def test_the_owner_of_a_key_does_not_own_its_neighbour(handle, at):
    handle.perform(claim(A, NEIGHBOURS[0]))
    handle.perform(claim(B, at))
    for command in (renew(A, at), settle(A, at), park(A, at), release(A, at), retake(A, C, at)):
        assert not handle.perform(command).applied
