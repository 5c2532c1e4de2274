"""A first-time user's hour: five programs that do something twice when they are retried, and their mending.

`before.py` is what the user has, `after.py` what they have three lines later. Both run as real processes, are
killed with -9 at the moment that hurts, and started again by whoever would do so: cron, a queue, a client.
"""

from __future__ import annotations

import difflib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

import semel
from tests.first_hour.world import World, served
from tests.patience import PATIENCE_S

FOLDER = Path(__file__).parent
PROGRAMS = ("charge_api", "agent_loop", "cron_mail", "queue_worker", "booking")

TWICE = [("before", 2), ("after", 1)]
twice_before_once_after = pytest.mark.parametrize(("version", "times"), TWICE)


def changed_lines(before: str, after: str) -> int:
    """Lines that somebody types or takes out, empty ones aside."""
    old, new = ([line for line in text.splitlines() if line.strip()] for text in (before, after))
    changes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return sum(max(b - a, d - c) for kind, a, b, c, d in changes if kind != "equal")


class Started:
    """One of the programs, in the user's folder and world."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment

    def command(self, name: str, version: str, *words: str) -> list[str]:
        return [sys.executable, str(FOLDER / name / f"{version}.py"), *words]

    @contextmanager
    def process(self, command: list[str], **how: object) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **how,  # type: ignore[call-overload]
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, name: str, version: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(name, version, *words),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def doubts(self) -> list[str]:
        """The tools whose calls a person has to settle."""
        with semel.open(self.environment.get("SEMEL_URL", f"sqlite:///{self.folder}/semel.db")) as ledger:
            return [record.request.tool for record in ledger.records.list(state="in_doubt")]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def started(world: World, tmp_path: Path) -> Iterator[Started]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
    with served(world) as addresses:
        yield Started(tmp_path, ours | addresses)


def killed(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    assert process.wait(PATIENCE_S) == -signal.SIGKILL


@pytest.mark.parametrize("name", PROGRAMS)
def test_three_lines_are_enough(name: str) -> None:
    before, after = ((FOLDER / name / f"{version}.py").read_text() for version in ("before", "after"))
    assert "semel" not in before
    assert 1 <= changed_lines(before, after) <= 3


def test_the_counting_sees_every_line() -> None:
    assert changed_lines("a\nb\nc", "a\nx\ny\n\nc") == 2
    assert changed_lines("a\nb\nc", "a\nc") == 1
    assert changed_lines("a\nb", "import s\na\n@t\nb!") == 3


# --- an HTTP charge behind FastAPI ------------------------------------------------------------------


@contextmanager
def shop(started: Started, version: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The API, served by uvicorn on a socket that listens already: whoever asks is answered in time."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        words = ["-m", "uvicorn", f"{version}:app", "--fd", str(listener.fileno()), "--log-level", "critical"]
        place = ["--app-dir", str(FOLDER / "charge_api")]
        command = [sys.executable, *words, *place]
        with started.process(command, pass_fds=(listener.fileno(),)) as process:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", process


CHARGE = "/charges/order-1?amount_minor=500"


@twice_before_once_after
def test_a_client_that_lost_patience_asks_again(
    started: Started, world: World, version: str, times: int
) -> None:
    answers: list[httpx.Response] = []

    def ask(url: str) -> None:
        answers.append(httpx.post(url, timeout=PATIENCE_S))

    with shop(started, version) as (url, _), world.holding("/charges") as held:
        first, again = (threading.Thread(target=ask, args=(url + CHARGE,)) for _ in range(2))
        first.start()
        held.reached()
        again.start()
        if version == "before":
            again.join()  # nothing stops it
        held.let_go()
        first.join()
        again.join()
    assert world.times("charges") == times
    assert [answer.status_code for answer in answers] == [200, 200]
    assert len({answer.text for answer in answers}) == times


@twice_before_once_after
def test_a_server_that_dies_in_the_middle_of_a_charge(
    started: Started, world: World, version: str, times: int
) -> None:
    with shop(started, version) as (url, process), world.holding("/charges") as held:
        client = threading.Thread(target=_ask_a_dying_server, args=(url + CHARGE,))
        client.start()
        held.reached()
        killed(process)
        client.join()
    with shop(started, version) as (url, _):
        answer = httpx.post(url + CHARGE, timeout=PATIENCE_S)
    assert world.times("charges") == times
    assert answer.status_code == (200 if version == "before" else 500)
    if version == "after":
        assert started.doubts() == ["charge_card"]


def _ask_a_dying_server(url: str) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.post(url, timeout=PATIENCE_S)


# --- an agent's loop by hand ------------------------------------------------------------------------


@twice_before_once_after
def test_an_agent_that_dies_after_its_tool_and_takes_the_turn_again(
    started: Started, world: World, version: str, times: int
) -> None:
    turn = ("customer-7", "My parcel arrived broken.")
    with (
        started.process(started.command("agent_loop", version, *turn)) as process,
        _second_held(world, "/model"),
    ):
        killed(process)
    done = started.run("agent_loop", version, *turn)
    assert (done.returncode, done.stdout) == (0, f"You have your money: refunds-{times}\n"), done.stderr
    assert world.times("refunds") == times

    # The next turn of the same conversation means it anew.
    assert started.run("agent_loop", version, "customer-7", "And so did the other one.").returncode == 0
    assert world.times("refunds") == times + 1


@contextmanager
def _second_held(world: World, path: str) -> Iterator[None]:
    """The first answer leaves, and the second is held back for as long as the block lasts."""
    with world.holding(path) as first:
        first.reached()
        with world.holding(path) as second:
            first.let_go()
            second.reached()
            yield


# --- cron and e-mail --------------------------------------------------------------------------------


@twice_before_once_after
def test_a_cron_job_that_is_killed_at_its_first_mail_and_starts_again(
    started: Started, world: World, version: str, times: int
) -> None:
    with (
        world.holding("/mails") as held,
        started.process(started.command("cron_mail", version, "2026-11")) as process,
    ):
        held.reached()
        killed(process)
    for _ in range(2):
        done = started.run("cron_mail", version, "2026-11")
        assert done.returncode == 0, done.stderr
    mails = world.happened["mails"]
    if version == "before":
        assert (mails.count("ann@example.org"), mails.count("bob@example.org")) == (3, 2)
        return
    assert sorted(mails) == ["ann@example.org", "bob@example.org"]
    assert started.doubts() == ["send"]
    assert times == 1

    # Another month is another statement.
    assert started.run("cron_mail", version, "2026-12").returncode == 0
    assert len(mails) == 4


# --- a worker of a queue ----------------------------------------------------------------------------


@twice_before_once_after
def test_a_worker_that_dies_before_it_acknowledges(
    started: Started, world: World, version: str, times: int
) -> None:
    world.queue = [
        {"id": f"m-{number}", "body": {"order": f"order-{number}", "address": "1 Main Street"}}
        for number in (1, 2)
    ]
    with (
        world.holding("/ack") as held,
        started.process(started.command("queue_worker", version)) as process,
    ):
        held.reached()
        killed(process)
        done = started.run("queue_worker", version)
    assert done.returncode == 0, done.stderr
    orders = [parcel["order"] for parcel in world.happened["parcels"]]
    assert (orders.count("order-1"), orders.count("order-2")) == (times, 1)
    assert world.queue == []


# --- a write of its own database --------------------------------------------------------------------


@twice_before_once_after
def test_a_booking_whose_answer_is_lost_is_asked_for_again(
    started: Started, world: World, version: str, times: int
) -> None:
    file = started.folder / "theatre.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE bookings (seat TEXT, guest TEXT)")
    if version == "after":
        # Beside the three lines: a same-transaction tool needs the ledger in the application's own database.
        started.environment["SEMEL_URL"] = "sqlite:///theatre.db?shared=yes"
    asked = ("request-1", "12A", "ann")
    with (
        world.holding("/booked") as held,
        started.process(started.command("booking", version, *asked)) as process,
    ):
        held.reached()
        killed(process)
    done = started.run("booking", version, *asked)
    assert done.returncode == 0, done.stderr
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("SELECT count(*) FROM bookings").fetchone() == (times,)
    assert [told["booked"] for told in world.happened["booked"]] == ["booking 1", f"booking {times}"]
