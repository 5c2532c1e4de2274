"""Commands of one kind go into one statement, and a few statements are under way at a time.

`stores/batching.py` says who sends a statement; here is which commands go into it, and what becomes of them.

Commands for one record never run side by side, so they keep the order in which they came; that holds for a
claim whose task was cancelled and the release that follows it. Nor do commits of one tenant's documents: they
would wait for each other on the server; here they gather for the next transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from semel.errors import SemelError
from semel.kernel.clock import SYSTEM
from semel.stores.base import Waiters
from semel.stores.batching import BATCH_MAX, Batcher
from semel.stores.claimed_records import ClaimedRecords
from semel.stores.documents import Commit
from semel.stores.postgres import trouble
from semel.stores.postgres.commands import Commands, CommandToSend
from semel.stores.postgres.documents import Commits
from semel.stores.postgres.pool import Pool, PoolSlot
from semel.stores.postgres.trouble import Failure

# Bodies of documents in one transaction: it is over soon, and whoever waits for the tenant's next is let in.
BATCH_BYTES_MAX = 1 << 20

# How often a command is repeated that met a deadlock, or lost its connection to a server that restarted.
_TRIES = 5

# A deadlock's other side is through by then.
_PAUSE_S = 0.01

_CLOSE_S = 10.0


class StatementBatcher(Batcher[CommandToSend]):
    """Commands in, replies out, over a bounded number of connections."""

    thread_name = "semel-postgres"
    unit = "statement"

    def __init__(
        self,
        pool: Pool,
        common: Callable[[], tuple[bytes | None, ...]],
        waiters: Waiters,
        abreast: int,
        patience_s: float,
    ) -> None:
        self._pool = pool
        self._common = common
        self._patience_s = patience_s
        self._claimed = ClaimedRecords()
        self.newest_event = 0
        self.newest_commit = 0
        self.statements = 0
        super().__init__(waiters, abreast)

    def renew(self, waiters: Waiters) -> None:
        super().renew(waiters)
        self._under_way: dict[bytes, list[CommandToSend]] = {}  # the batch of each digest

    # --- which batch -----------------------------------------------------------------------------

    def _take_alone(self, queued: CommandToSend) -> bool:
        if queued.digest in self._under_way:
            return False
        # Its own first: an interrupt after this finds what has to be set free.
        queued.batch = self._under_way[queued.digest] = [queued]
        return True

    def _take(self) -> list[CommandToSend]:
        """The next commands of one kind, at addresses where nothing is under way.

        Of one record there is one in a batch; commits of a tenant go together, in their order.
        """
        batch: list[CommandToSend] = []
        left: list[CommandToSend] = []
        busy: set[bytes] = set()
        kind, size = None, 0
        while self._queue and len(batch) < BATCH_MAX and size < BATCH_BYTES_MAX:
            queued = self._queue.popleft()
            taken = queued.digest in busy or queued.digest in self._under_way
            if taken or (kind is not None and type(queued.command) is not kind):
                left.append(queued)
            else:
                kind = type(queued.command)
                batch.append(queued)
                size += queued.size
                if kind is Commit:
                    continue
            busy.add(queued.digest)
        self._queue.extendleft(reversed(left))
        for queued in batch:
            self._under_way[queued.digest] = batch
        return batch

    def _set_free(self, batch: list[CommandToSend]) -> None:
        for queued in batch:
            if self._under_way.get(queued.digest) is batch:
                del self._under_way[queued.digest]

    # --- the statements --------------------------------------------------------------------------

    def _carry_out(self, batch: list[CommandToSend]) -> None:
        if type(batch[0].command) is Commit:
            self._commit(batch)
            return
        request = Commands(batch, self._claimed)
        try:
            self._ask(request)
        finally:
            # Also of those that were done before the others failed.
            self.newest_event = max(self.newest_event, request.newest_event)
            if self._waiters:
                self._wake(batch)

    def _wake(self, batch: list[CommandToSend]) -> None:
        for queued in batch:
            if queued.at is not None and queued.answer is not None and queued.answer.applied:
                self._waiters.wake(queued.at)

    def _commit(self, batch: list[CommandToSend]) -> None:
        request = Commits([queued.command for queued in batch])
        self._ask(request)
        self.newest_commit = max(self.newest_commit, request.newest_commit)
        for queued, reply in zip(batch, request.replies, strict=True):
            if isinstance(reply, Exception):
                queued.error = trouble.translated(reply, queued.command)
            else:
                queued.answer = reply
            queued.done = True

    def _one_is_to_blame(self, error: Exception) -> bool:
        return isinstance(error, Failure) and not trouble.gone(error)

    def _error_of(self, error: Exception, command: Any) -> SemelError:
        return trouble.translated(error, command)

    def _ask(self, request: Commands | Commits) -> None:
        """Statements until every command has its reply. Each may be repeated (promise 15), or says so."""
        give_up_at, failures = SYSTEM.monotonic() + self._patience_s, 0
        while request.open:
            fresh = True
            slot = PoolSlot()
            try:
                link = self._pool.enter(slot)
                fresh = not link.used
                request.run(link, self._common())
                self._pool.leave(slot)
                self.statements += 1
            except Failure as failure:
                self._pool.leave_after(slot, failure)
                failures += 1
                # A connection that worked before and is lost now met a restart; a new one may do.
                cut = trouble.gone(failure) and not fresh and request.repeatable
                again = trouble.worth_repeating(failure) or cut
                if failure.late or not again or failures == _TRIES or SYSTEM.monotonic() > give_up_at:
                    raise
                if trouble.worth_repeating(failure):
                    SYSTEM.sleep(SYSTEM.random() * _PAUSE_S)
            except BaseException as error:
                self._pool.leave_after(slot, error)
                raise
            else:
                if request.open and SYSTEM.monotonic() > give_up_at:
                    raise Failure("the record changed again and again meanwhile", late=True)

    # --- the end ---------------------------------------------------------------------------------

    def flush(self) -> None:
        """What was submitted before is carried out, or patience is over."""
        self._changed.wait(lambda: not self.owed, self._patience_s)

    def close(self) -> None:
        """What is queued is carried out, as far as the store answers, and nothing is taken any more."""
        self._end(_CLOSE_S)
