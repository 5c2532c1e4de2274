"""Whether the process behind a token is gone: certain, or not said."""

import os
import signal
import subprocess
import sys

import pytest

from semel.kernel import owner
from semel.kernel.clock import SYSTEM
from semel.ledger.ledger import Ledger
from semel.testing import FakeClock
from tests.tools import a_step, declared, the_record

TOLD_BY_A_CHILD = "import sys; from semel.kernel import owner; from semel.kernel.clock import SYSTEM; " + (
    "print(owner.token(SYSTEM).hex(), flush=True); sys.stdin.read()"
)


class Neighbour:
    """Another process of this machine, and a token of its own."""

    def __init__(self) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-c", TOLD_BY_A_CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.pipes = self.popen.stdin, self.popen.stdout
        self.token = bytes.fromhex(self.popen.stdout.readline())

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()


@pytest.fixture
def neighbour():
    there = Neighbour()
    yield there
    there.kill()
    for pipe in there.pipes:
        pipe.close()


def changed(token: bytes, *, place: bytes | None = None, pid: int | None = None, later: int = 0) -> bytes:
    here, number, started = owner._IDENTITY.unpack(token[16:])
    number = number if pid is None else pid
    return token[:16] + owner._IDENTITY.pack(here if place is None else place, number, started + later)


def test_two_tokens_of_a_process_differ_and_say_the_same_of_it():
    first, second = owner.token(SYSTEM), owner.token(SYSTEM)
    assert first[:16] != second[:16]
    assert first[16:] == second[16:] != b""


def test_a_live_process_is_not_gone_and_a_killed_one_is(neighbour):
    assert not owner.is_gone(neighbour.token)
    assert owner.is_neighbour(neighbour.token)
    neighbour.kill()
    assert owner.is_gone(neighbour.token)


def test_a_killed_process_that_nobody_waited_for_is_gone(neighbour):
    neighbour.popen.kill()
    os.waitid(os.P_PID, neighbour.popen.pid, os.WEXITED | os.WNOWAIT)  # dead, and left where it is
    assert owner.is_gone(neighbour.token)


def test_a_frozen_process_is_not_gone(neighbour):
    neighbour.popen.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, neighbour.popen.pid, os.WSTOPPED | os.WNOWAIT)
    assert not owner.is_gone(neighbour.token)


def test_a_process_whose_number_has_been_given_to_another_is_gone(neighbour):
    assert owner.is_gone(changed(neighbour.token, later=-1))
    assert owner.is_gone(changed(owner.token(SYSTEM), later=-1))


def test_nothing_is_said_of_processes_of_another_place(neighbour):
    neighbour.kill()
    abroad = changed(neighbour.token, place=b"elsewher")
    assert not owner.is_gone(abroad)
    assert not owner.is_neighbour(abroad)


@pytest.mark.parametrize("token", [b"", b"x" * 16, b"x" * 17, b"x" * 31, b"x" * 33], ids=len)
def test_nothing_is_said_of_tokens_without_an_identity(token):
    assert not owner.is_gone(token)


def test_this_process_is_never_gone():
    assert not owner.is_gone(owner.token(SYSTEM))
    assert not owner.is_neighbour(owner.token(SYSTEM))


def test_a_process_that_may_not_be_looked_at_is_not_gone(neighbour, monkeypatch):
    """As under `hidepid`: it is not in /proc, and may not be signalled."""
    monkeypatch.setattr(owner, "_stat", lambda pid: None)
    assert not owner.is_gone(neighbour.token)


def test_a_process_whose_main_thread_ended_before_the_others_is_not_gone(neighbour, monkeypatch):
    stat = owner._stat(neighbour.popen.pid)
    assert stat is not None
    waiting_for_others = stat._replace(state="Z", threads=2)
    monkeypatch.setattr(owner, "_stat", lambda pid: waiting_for_others)
    assert not owner.is_gone(neighbour.token)


@pytest.mark.parametrize(
    ("name", "shown"), [("_numbers", [5000, 2]), ("_numbers", []), ("_namespace", b""), ("_read", b"")]
)
def test_where_the_place_cannot_be_told_tokens_have_no_identity(monkeypatch, name, shown):
    monkeypatch.setattr(owner, name, lambda *_: shown)
    owner._identity.cache_clear()
    try:
        assert len(owner.token(SYSTEM)) == 16
        assert not owner.is_gone(b"x" * 32)
    finally:
        monkeypatch.undo()
        owner._identity.cache_clear()


def test_a_forked_child_has_an_identity_of_its_own():
    before = owner.token(SYSTEM)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, owner.token(SYSTEM) + bytes((owner.is_gone(before),)))
        os._exit(0)
    os.waitpid(child, 0)
    told = os.read(reading, 100)
    assert told[16:-1] != before[16:]
    assert not told[-1], "the parent lives"
    assert owner.is_gone(told[:-1]), "the child does not"


def test_claims_and_retakes_carry_it(ledger: Ledger, clock: FakeClock):
    seen = []

    @declared(on_unknown="rerun", lease="10s")
    def note() -> str:
        seen.append(the_record(ledger).token)
        if len(seen) == 1:
            raise TimeoutError
        return "noted"

    with a_step(ledger), pytest.raises(TimeoutError):
        note()
    with a_step(ledger):
        note()
    assert {token[16:] for token in seen} == {owner.token(clock)[16:]}
    assert len(set(seen)) == 2
