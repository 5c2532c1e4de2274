"""The rewards example on a real Temporal server: each event counts once, each notice lands once."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from examples.rewards import notices
from examples.rewards.account import Account, Event, Settings
from examples.rewards.entity import Rewards
from semel.integrations.temporal import Guard
from semel.ledger.ledger import Ledger
from semel.stores.memory import MemoryStore
from semel.windows.entity import DedupWindow
from tests.temporal.conftest import PATIENCE_S, Shop, carried_bytes, events, runs_of

ROOT = Path(__file__).resolve().parents[2]
HISTORIES = sorted((Path(__file__).parent / "histories").glob("*.json"))


def attempts() -> int:
    return len(Path(notices.mailbox().parent, "attempts").read_text(encoding="utf-8").splitlines())


def test_the_same_signal_fifty_times_counts_once(shop: Shop) -> None:
    async def story() -> None:
        handle = await shop.enrol()
        async with shop.worker():
            await asyncio.gather(*(handle.signal(Rewards.earn, events(1, points=7)) for _ in range(50)))
            account = await shop.part(handle)
        assert (account.points, account.events, account.duplicates) == (7, 1, 49)

    shop.run(story)


def test_an_event_without_a_key_counts_each_time(shop: Shop) -> None:
    async def story() -> None:
        handle = await shop.enrol()
        async with shop.worker():
            for _ in range(3):
                await handle.signal(Rewards.earn, [Event(None, 5)])
            account = await shop.part(handle)
        assert (account.points, account.duplicates) == (15, 0)

    shop.run(story)


def test_a_duplicate_is_known_across_continue_as_new(shop: Shop) -> None:
    async def story() -> None:
        handle = await shop.enrol(events_per_run=1)
        async with shop.worker():
            for number in (1, 2, 1, 2, 1):
                await handle.signal(Rewards.earn, events(number))
                await handle.query(Rewards.status)
            account = await shop.part(handle)
        assert (account.events, account.duplicates) == (2, 3)
        assert len(await runs_of(handle, shop.client)) == account.runs > 3

    shop.run(story)


def test_a_repeat_inside_the_window_is_dropped_and_one_after_it_counts(shop: Shop) -> None:
    """Three days are real here: the state that the workflow starts with is that old."""
    now = datetime.now(UTC)
    window = DedupWindow("3d")
    window.push("long-ago", now - timedelta(days=3, minutes=10))
    window.push("lately", now - timedelta(days=3) + timedelta(minutes=10))

    async def story() -> None:
        handle = await shop.enrol(Account("ann", window=window.to_state()))
        async with shop.worker():
            await handle.signal(Rewards.earn, [Event("lately", 1), Event("long-ago", 10)])
            account = await shop.part(handle)
        assert (account.points, account.duplicates) == (10, 1)

    shop.run(story)


@pytest.mark.parametrize("place", [notices.UNRECORDED, notices.UNREPORTED])
def test_a_notice_lands_once_although_its_worker_is_killed_after_the_delivery(shop: Shop, place: str) -> None:
    async def story() -> None:
        handle = await shop.enrol()
        with shop.worker_process(**{notices.DIES: place}) as first:
            await handle.signal(Rewards.earn, events(1, points=1_000))
            assert await asyncio.to_thread(first.wait, PATIENCE_S) == -9
        assert len(notices.delivered("silver")) == 1
        with shop.worker_process():
            account = await shop.part(handle)
        assert len(notices.delivered("silver")) == 1
        assert len(notices.delivered()) == account.notices == 2
        assert account.undelivered == []
        # Two for the one that was interrupted, one for the farewell.
        assert attempts() == 3

    shop.run(story)


def test_a_notice_that_cannot_be_delivered_does_not_stop_the_account(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # A folder takes no line.
    monkeypatch.setenv(notices.MAILBOX, str(tmp_path))

    async def story() -> None:
        handle = await shop.enrol()
        async with shop.worker():
            await handle.signal(Rewards.earn, events(1, points=1_000))
            account = await shop.part(handle)
        assert [notice.text for notice in account.undelivered] == ["You are silver now.", "Farewell."]
        assert account.points == 1_000

    shop.run(story)


def test_nothing_that_arrives_around_continue_as_new_is_lost(shop: Shop) -> None:
    async def story() -> None:
        handle = await shop.enrol(events_per_run=5)
        async with shop.worker():
            for start in range(0, 200, 40):
                flood = [handle.signal(Rewards.earn, events(start + number)) for number in range(40)]
                await asyncio.gather(*flood, handle.query(Rewards.status))
            account = await shop.part(handle)
        assert (account.events, account.duplicates) == (200, 0)
        assert account.runs > 2

    shop.run(story)


def test_ten_thousand_events_leave_a_state_that_is_no_larger_than_its_bound(shop: Shop) -> None:
    total, batch, keys_max = 10_000, 250, 1_000

    async def story() -> None:
        handle = await shop.enrol(events_per_run=1_500, keys_max=keys_max)
        async with shop.worker():
            for start in range(0, total, batch):
                # Every batch comes with half of the one before, sent again.
                await handle.signal(Rewards.earn, events(*range(max(0, start - batch // 2), start + batch)))
                await handle.query(Rewards.status)
            account = await shop.part(handle)
        assert account.points == account.events == total
        assert account.duplicates == (total // batch - 1) * (batch // 2)
        runs = await runs_of(handle, shop.client)
        assert len(runs) == account.runs > 5
        # A key of ten characters and its time; the rest of the account takes less than a kilobyte.
        assert max(carried_bytes(run) for run in runs) < keys_max * 30 + 1_000
        assert min(carried_bytes(run) for run in runs[2:]) > keys_max * 10
        assert max(len(run.events) for run in runs) < 200

    shop.run(story)


def test_a_year_of_silence_is_counted_across_continue_as_new(shop: Shop) -> None:
    async def story() -> None:
        handle = await shop.enrol(events_per_run=1)
        async with shop.worker():
            for number in (1, 1, 1):
                await handle.signal(Rewards.earn, events(number))
                await handle.query(Rewards.status)
            account = await handle.query(Rewards.status)
            runs = await runs_of(handle, shop.client)
            await handle.terminate()
        assert len(runs) == account.runs == 4
        carried = [
            json.loads(run.events[0].workflow_execution_started_event_attributes.input.payloads[0].data)
            for run in runs
        ]
        # The date was set by the one event that counted; neither duplicates nor new runs have moved it.
        assert carried[0]["lapses_at"] is None
        assert len({one["lapses_at"] for one in carried[1:]}) == 1
        left = datetime.fromisoformat(carried[1]["lapses_at"]) - datetime.now(UTC)
        assert timedelta(days=364) < left <= timedelta(days=365)

    shop.run(story)


def test_an_account_lapses_when_its_date_comes_whichever_run_it_is_in(shop: Shop) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=1)

    async def story() -> None:
        # The settings say a year; what was carried says in a second.
        handle = await shop.enrol(Account("ann", lapses_at=soon.isoformat(), points=9))
        async with shop.worker():
            account = await handle.result()
        assert account.points == 9
        assert len(notices.delivered("lapsed")) == 1

    shop.run(story)


def test_who_enrols_again_is_told_farewell_again(shop: Shop) -> None:
    async def story() -> None:
        async with shop.worker():
            for _ in range(2):
                await shop.part(await shop.enrol())
        assert len(notices.delivered("Farewell")) == 2

    shop.run(story)


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_history_of_the_first_version_is_replayed(path: Path) -> None:
    """Recorded when the window's state had format 1 and nobody was told farewell."""
    history = WorkflowHistory.from_json("recorded", path.read_text(encoding="utf-8"))
    replayer = Replayer(workflows=[Rewards], interceptors=[Guard(Ledger(MemoryStore()))])
    asyncio.run(replayer.replay_workflow(history))


def test_the_recorded_histories_are_those_of_the_first_version() -> None:
    texts = {path.stem: path.read_text(encoding="utf-8") for path in HISTORIES}
    assert set(texts) == {"first-version-begins", "first-version-goes-on", "first-version-parts"}
    assert all("farewell" not in text.lower() for text in texts.values())


def test_a_present_history_is_replayed(shop: Shop) -> None:
    async def story() -> None:
        handle = await shop.enrol(events_per_run=2)
        async with shop.worker():
            for number in (1, 1, 2, 3, 3):
                await handle.signal(Rewards.earn, events(number, points=900))
                await handle.query(Rewards.status)
            await shop.part(handle)
        replayer = Replayer(workflows=[Rewards], interceptors=[Guard(Ledger(MemoryStore()))])
        runs = await runs_of(handle, shop.client)
        assert len(runs) > 1
        for run in runs:
            await replayer.replay_workflow(run)

    shop.run(story)


def test_the_example_runs_with_one_command(address: str) -> None:
    """The address is not used: the example starts its own server. It is here to skip where there is none."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.rewards"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "Every event counted once, every notice landed once."


def test_the_settings_of_the_example_are_those_of_a_product() -> None:
    settings = Settings()
    assert settings.window_s == timedelta(days=3).total_seconds()
    assert settings.inactivity_s == timedelta(days=365).total_seconds()
