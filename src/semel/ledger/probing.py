"""Probes in the background: what is in doubt is asked about without waiting for somebody to call again.

    prober = Prober(ledger, contracts_in(shop))
    await prober.run_once()  # every record in doubt was asked about whose contract has a probe, if it was due
    await prober.run()       # the same, again and again, until it is cancelled, or `prober.stop()`

Any number of probers may run, in any number of processes, beside callers who ask the same probe: a resolution
counts only for the attempt that was seen in doubt, so the first one stands. Nothing depends on it for safety.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

import orjson

from semel.call.doubt import resolution
from semel.contract.contract import Contract
from semel.contract.result import CannotTell
from semel.errors import ContractError, SemelError, StoreUnavailable
from semel.kernel.keys import Key
from semel.kernel.record import OF_TOOL, Record, State, effective_state
from semel.ledger.ledger import Ledger
from semel.stores.base import FindRecord, ListRecords

log = logging.getLogger("semel")

# A caller that was told to come again does so within seconds, and should find the answer.
_EVERY_S = 2.0

# Between two questions about one record: a downstream that cannot tell now is not asked more often for it.
_AGAIN_S, _AGAIN_MAX_S = 5.0, 600.0

# Records that are known to be undecided. More of them wait until some are decided: some ten megabytes.
_UNDECIDED_MAX = 50_000

# A downstream that leaves calls in doubt is in trouble already.
_CONCURRENCY = 4

# Longer than the time-outs of the usual clients, so that a probe can say itself why it has no answer.
_LIMIT_S = 60.0

_PAGE = 200

Tell = Callable[..., None]
Tenants = Callable[[], Awaitable[Sequence[str]]]

SETTLED, CLEARED, UNDECIDED, OVERTAKEN = "settled", "cleared", "undecided", "overtaken"


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What became of those that were asked about. What somebody else resolved first is in none."""

    settled: int  # it happened
    cleared: int  # it did not
    undecided: int  # the probe cannot tell, or failed


class _ProbeAnswer(NamedTuple):
    """What a probe said, or what it raised instead."""

    value: Any
    error: BaseException | None = None


_TOO_LATE = _ProbeAnswer(CannotTell, TimeoutError())


class _Again(NamedTuple):
    tries: int
    due: float  # by the monotonic clock


class Prober:
    """`tell` is called with every answer; by default it is logged. Never with arguments, results or messages.

    Records of the ledger's own tenant are asked about, or of those that `tenants` names before each round.
    ContractError if two contracts have one name and major version.
    """

    def __init__(
        self,
        ledger: Ledger,
        contracts: Iterable[Contract],
        *,
        tenants: Tenants | None = None,
        concurrency: int = _CONCURRENCY,
        limit_s: float = _LIMIT_S,
        tell: Tell | None = None,
    ) -> None:
        self._ledger = ledger
        self._store, self._clock = ledger.store, ledger.clock
        self._tenants = tenants or self._own_tenant
        self._tell = _log if tell is None else tell
        self._contracts, self._left_alone = _sorted_out(contracts)
        self._slots = asyncio.Semaphore(concurrency)
        self._limit_s = limit_s
        self._hanging_max = 2 * concurrency
        self._on_threads: set[tuple[str, bytes]] = set()
        self._undecided: dict[bytes, _Again] = {}
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
        self._asked_to_stop = False

    @property
    def needed(self) -> bool:
        """Whether any of the contracts has a probe."""
        return bool(self._contracts or self._left_alone)

    async def _own_tenant(self) -> Sequence[str]:
        return (self._ledger.tenant,)

    # --- asked for --------------------------------------------------------------------------------

    def knows(self, tool: str, version: str) -> bool:
        """Whether the probe of this tool can be asked here."""
        return (tool, _major(version)) in self._contracts

    async def ask_about(self, tenant: str, id_: str) -> str | None:
        """How the question about this record ended: settled, cleared, undecided, overtaken.

        None if it is not in doubt, or no probe of its tool is known here: then nobody was asked.
        """
        record = await self._store.aask(FindRecord(tenant, id_))
        if record is None or self._contract_of(record) is None:
            return None
        if effective_state(record, self._clock.now_us()) is not State.IN_DOUBT:
            return None
        return await self._probe(record)

    # --- rounds -----------------------------------------------------------------------------------

    async def run(self, every_s: float = _EVERY_S) -> None:
        """A round now, and again and again, until it is cancelled or told to stop."""
        task = asyncio.current_task()
        assert task is not None
        self._running = asyncio.get_running_loop(), task
        while not self._asked_to_stop:
            try:
                await self.run_once()
            except SemelError:
                pass  # the store is away: what is in doubt stays so
            except Exception as error:
                self._tell("probe.broken", kind=type(error).__name__)
            # Spread, so that a fleet does not ask in step.
            await self._clock.asleep(every_s * (0.75 + self._clock.random() / 2))

    def stop(self) -> None:
        """From any thread: `run` ends or is cancelled; what it was asking is asked again by somebody."""
        self._asked_to_stop = True
        if self._running is not None:
            loop, task = self._running
            try:
                loop.call_soon_threadsafe(task.cancel)
            except RuntimeError:
                pass  # its loop has ended, and so has it

    async def run_once(self) -> ProbeReport:
        """Every record in doubt that is due was asked about, and is resolved if its probe can tell."""
        while self._left_alone:
            tool = self._left_alone.pop()
            self._tell("probe.left_alone", tool=tool, why="it asks for secrets, which are kept nowhere")
        ends: Counter[str] = Counter()
        met: set[bytes] = set()
        for tenant in await self._tenants() if self._contracts else ():
            async for page in self._pages(tenant):
                ends.update(await asyncio.gather(*map(self._probe, filter(self._is_due, page))))
                met.update(record.token for record in page if record.token in self._undecided)
        # What was not met is no longer in doubt.
        self._undecided = {token: self._undecided[token] for token in met}
        return ProbeReport(ends[SETTLED], ends[CLEARED], ends[UNDECIDED])

    async def _pages(self, tenant: str) -> AsyncIterator[Sequence[Record]]:
        """The tenant's records in doubt, newest first."""
        before: tuple[int, str] | None = None
        while True:
            query = ListRecords(tenant, OF_TOOL, frozenset((State.IN_DOUBT,)), before=before, limit=_PAGE)
            try:
                page = await self._store.aask(query)
            except StoreUnavailable:
                raise
            except SemelError as error:
                # One tenant's damage is not the others'.
                self._tell("probe.put_off", tenant=tenant, code=error.code)
                return
            if page:
                yield page
            if len(page) < _PAGE:
                return
            before = page[-1].created_at, page[-1].request.id

    def _contract_of(self, record: Record) -> Contract | None:
        return self._contracts.get((record.request.tool, _major(record.request.version)))

    def _is_due(self, record: Record) -> bool:
        if self._contract_of(record) is None:
            return False
        again = self._undecided.get(record.token)
        if again is None:
            return len(self._undecided) < _UNDECIDED_MAX
        return again.due <= self._clock.monotonic()

    # --- one record -------------------------------------------------------------------------------

    async def _probe(self, record: Record) -> str:
        """How it ended. An error puts off this record only: the others are probed too."""
        contract = self._contract_of(record)
        assert contract is not None
        try:
            answer = await self._ask(contract, record)
            resolve = resolution(contract, record, answer.value, self._clock.token())
            if resolve is None:
                return self._put_off(record, answer.error)
            reply = await self._store.aperform(resolve)
        except Exception as error:
            return self._put_off(record, error)
        self._undecided.pop(record.token, None)
        if not reply.applied:
            return OVERTAKEN
        return self._report(SETTLED if resolve.happened else CLEARED, record)

    def _put_off(self, record: Record, error: BaseException | None) -> str:
        """Asked again later, and later each time."""
        again = self._undecided.get(record.token)
        tries = again.tries + 1 if again else 1
        pause_s = min(_AGAIN_MAX_S, _AGAIN_S * 2.0 ** min(tries - 1, 10)) * (0.5 + self._clock.random() / 2)
        self._undecided[record.token] = _Again(tries, self._clock.monotonic() + pause_s)
        return self._report(UNDECIDED, record, tries=tries, raised=error and type(error).__name__)

    def _report(self, end: str, record: Record, **more: Any) -> str:
        request = record.request
        self._tell(f"probe.{end}", tenant=request.at.tenant, tool=request.tool, record_id=request.id, **more)
        return end

    async def _ask(self, contract: Contract, record: Record) -> _ProbeAnswer:
        """What the probe says within the limit."""
        arguments = contract.arguments.restore(record.request.arguments, {})
        async with self._slots:
            if self._hangs(contract):
                return _TOO_LATE
            asking = self._begun(contract, record, arguments)
            try:
                done, _ = await asyncio.wait((asking,), timeout=self._limit_s)
            finally:
                asking.cancel()  # no effect once it is done; a thread goes on, and its answer is dropped
            return asking.result() if done else _TOO_LATE

    def _begun(
        self, contract: Contract, record: Record, arguments: Mapping[str, Any]
    ) -> asyncio.Future[_ProbeAnswer]:
        probe, key = contract.declared.probe, Key(record.request.at.key)
        assert probe is not None
        if inspect.iscoroutinefunction(probe):
            return asyncio.ensure_future(_awaited(probe(key, **arguments)))
        question = contract.name, record.token

        def ask() -> _ProbeAnswer:
            try:
                return _called(lambda: probe(key, **arguments))
            finally:
                self._on_threads.discard(question)

        self._on_threads.add(question)
        return _on_a_thread(ask)

    def _hangs(self, contract: Contract) -> bool:
        """Whether so many questions to this probe do not end that no more threads are given to it."""
        running = sum(tool == contract.name for tool, _ in tuple(self._on_threads))
        return running >= self._hanging_max


async def _awaited(awaitable: Awaitable[Any]) -> _ProbeAnswer:
    try:
        return _ProbeAnswer(await awaitable)
    except BaseException as error:  # also SystemExit, which would end the loop
        return _ProbeAnswer(CannotTell, error)


def _called(ask: Callable[[], Any]) -> _ProbeAnswer:
    try:
        value = ask()
    except BaseException as error:
        return _ProbeAnswer(CannotTell, error)
    return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else _ProbeAnswer(value)


def _on_a_thread(ask: Callable[[], _ProbeAnswer]) -> asyncio.Future[_ProbeAnswer]:
    """On a daemon of its own: a probe that does not end cannot keep the process from ending."""
    answer: Future[_ProbeAnswer] = Future()
    answer.set_running_or_notify_cancel()
    threading.Thread(target=lambda: answer.set_result(ask()), name="semel-probe", daemon=True).start()
    return asyncio.wrap_future(answer)


def _log(event: str, **facts: Any) -> None:
    level = logging.INFO if event in ("probe.settled", "probe.cleared") else logging.WARNING
    log.log(level, orjson.dumps({"event": event, **facts}).decode())


# --- which contracts --------------------------------------------------------------------------------


def contracts_in(module: ModuleType) -> list[Contract]:
    """The contracts of the tools that a module or one of its classes has, imported ones included."""
    named = list(vars(module).values())
    members = [member for each in named if isinstance(each, type) for member in vars(each).values()]
    attributes = [getattr(getattr(each, "__func__", each), "contract", None) for each in (*named, *members)]
    return [contract for contract in dict.fromkeys(attributes) if isinstance(contract, Contract)]


def _sorted_out(
    contracts: Iterable[Contract],
) -> tuple[Mapping[tuple[str, str], Contract], list[str]]:
    """Those whose probe can be asked by tool and major version, and the tools of the others that have one."""
    probed: dict[tuple[str, str], Contract] = {}
    for contract in contracts:
        name = contract.name, _major(contract.version)
        if contract.declared.probe is None or probed.get(name) is contract:
            continue
        if name in probed:
            raise ContractError(
                f"Two contracts with a probe are called {contract.name!r}, version {name[1]}.",
                corrective_action="Give one of the two another name.",
            )
        if not contract.ready:
            contract.check_late_names()
        probed[name] = contract
    secretive = {name for name, contract in probed.items() if _asks_for_secrets(contract)}
    askable = {name: contract for name, contract in probed.items() if name not in secretive}
    return askable, sorted(tool for tool, _ in secretive)


def _asks_for_secrets(contract: Contract) -> bool:
    """Whether the probe names a secret argument, or arguments cannot be read back without their secrets."""
    assert contract.declared.probe is not None
    guarded = {name for name in contract.argument_names if contract.arguments.holds_secret(name)}
    named = inspect.signature(contract.declared.probe).parameters.keys()
    return bool(guarded & named) or not guarded <= set(contract.secret)


def _major(version: str) -> str:
    return version.partition(".")[0]
