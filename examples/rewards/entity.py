"""The workflow: one for each customer, from enrolment to the end, however many runs that takes."""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from examples.rewards.account import Account, Event, Notice
    from examples.rewards.notices import send_notice
    from semel.integrations.temporal import EntityWindow


@workflow.defn
class Rewards:
    @workflow.init
    def __init__(self, account: Account) -> None:
        self.account = account
        self.window = _window(account)
        self.inbox: deque[Event] = deque()
        self.leaves = False
        self.handled = 0

    @workflow.signal
    def earn(self, events: list[Event]) -> None:
        self.inbox.extend(events)

    @workflow.signal
    def unenrol(self) -> None:
        self.leaves = True

    @workflow.query
    def status(self) -> Account:
        return self.account

    @workflow.run
    async def run(self, _: Account) -> Account:
        while True:
            # Drained without an await in between, so nothing can arrive before what follows is decided.
            self._drain()
            if self._run_is_long():
                workflow.continue_as_new(self._carried())
            if self.account.unsent:
                await self._send(self.account.unsent[0])
            elif self.leaves or not await self._next():
                break
        await self._part()
        return self.account

    def _drain(self) -> None:
        """Every event that has arrived is counted, or dropped as a duplicate."""
        while self.inbox:
            event = self.inbox.popleft()
            self.handled += 1
            if self.window.push(event.key):
                self.account.credit(event)
                self._live_on()
            else:
                self.account.duplicates += 1

    def _live_on(self) -> str:
        # A date, not a duration: it is carried, so the timer goes on in the next run where it was.
        lapses = workflow.now() + timedelta(seconds=self.account.settings.inactivity_s)
        self.account.lapses_at = lapses.isoformat()
        return self.account.lapses_at

    def _run_is_long(self) -> bool:
        long = self.handled >= self.account.settings.events_per_run
        return not self.leaves and (long or workflow.info().is_continue_as_new_suggested())

    def _carried(self) -> Account:
        self.account.window = self.window.to_state()
        self.account.runs += 1
        return self.account

    async def _next(self) -> bool:
        """Whether something arrived before the account lapsed."""
        left = datetime.fromisoformat(self.account.lapses_at or self._live_on()) - workflow.now()
        try:
            await workflow.wait_condition(
                lambda: bool(self.inbox) or self.leaves, timeout=max(left, timedelta(0))
            )
        except TimeoutError:
            return False
        return True

    async def _send(self, notice: Notice) -> None:
        """The notice is delivered, or kept for a person to look at; either way life goes on."""
        timeout = timedelta(seconds=self.account.settings.notice_timeout_s)
        try:
            await workflow.execute_activity(
                send_notice,
                args=[self.account.customer, notice.text],
                # The action's own name, the same in every attempt, run and reset; never the attempt's.
                activity_id=f"notice-{notice.number}",
                start_to_close_timeout=timeout,
                retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=200)),
            )
        except ActivityError:
            self.account.undelivered.append(notice)
        self.account.unsent.pop(0)

    async def _part(self) -> None:
        # Customers of the first version left without a word; their histories are still replayed.
        if workflow.patched("farewell"):
            self.account.announce("Farewell." if self.leaves else "Your points have lapsed.")
            await self._send(self.account.unsent[0])
        self.account.window = None


def _window(account: Account) -> EntityWindow:
    settings = account.settings
    age = timedelta(seconds=settings.window_s)
    if account.window is None:
        return EntityWindow(age, settings.keys_max)
    # The settings may have changed since: the window follows them.
    return EntityWindow.from_state(account.window, age, settings.keys_max)
