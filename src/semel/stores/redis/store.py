"""Records and documents on a Redis server or cluster, for threads, event loops, processes and machines."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from typing import Any, TypeVar, cast

import hiredis

from semel.errors import SemelError, StoreCorrupt
from semel.kernel.clock import SYSTEM, Clock
from semel.kernel.record import Address, Command, Look, Reply
from semel.kernel.waiting import alone, entering, inside
from semel.stores.base import Finding, Query, Store
from semel.stores.redis import documents, event_log, opening, records, settings, sweep, trouble
from semel.stores.redis.commands import Request, Translator, address_of
from semel.stores.redis.connection_pool import ConnectionPool
from semel.stores.redis.deferred import DeferredCommands
from semel.stores.redis.loop_connections import LoopConnections
from semel.stores.redis.nodes import Nodes
from semel.stores.redis.options import RedisOptions
from semel.stores.redis.packing import digest_of
from semel.stores.redis.thread_connections import ThreadConnection
from semel.stores.redis.thread_requests import ThreadRequests
from semel.stores.redis.watcher import RedisWatcher

T = TypeVar("T")

_ANSWERS = {**records.ANSWERS, **event_log.ANSWERS, **sweep.ANSWERS, **documents.ANSWERS}


class RedisStore(Store):
    """Opens what is there under the prefix, or begins it.

    Raises OpenError if the server is not fit for it, StoreUnavailable if it does not answer, StoreCorrupt if
    a part of the data is missing.
    """

    name = "redis"

    def __init__(self, options: RedisOptions, *, clock: Clock = SYSTEM) -> None:
        super().__init__()
        self.clock = clock
        self.audit = options.audit
        self.options = options
        self._connections = ConnectionPool(options)
        self._nodes = Nodes(options, self._connections)
        try:
            facts = opening.begin(
                options, self._nodes, ThreadRequests(self._connections, self._nodes, options.lanes)
            )
        except BaseException:
            self._connections.close()
            raise
        self.lanes = facts.lanes
        self._secret_key = facts.secret
        self._settings = facts.settings
        self._calls = ThreadRequests(self._connections, self._nodes, facts.lanes)
        self._translator = Translator(self, options.prefix, facts.lanes, facts.id, facts.form, facts.writes)
        self._lost: SemelError | None = None
        self._closed = False
        self._by_loop: dict[asyncio.AbstractEventLoop, LoopConnections] = {}
        self._by_loop_lock = threading.Lock()
        self._deferred = DeferredCommands(self._perform_now)
        self._watcher = RedisWatcher(self._listening, self._channel_of, self._look, self.waiters)
        _all.add(self)

    @property
    def durability(self) -> str:
        return settings.durability(self._settings)

    @property
    def secret_key(self) -> bytes:
        return self._secret_key

    # --- commands ---------------------------------------------------------------------------------

    @entering
    def perform(self, command: Command) -> Reply:
        if self._deferred.waiting:
            self._after_deferred(command)
        return self._perform_now(command)

    def _perform_now(self, command: Command) -> Reply:
        if self._lost is not None:
            raise self._refusal()
        request = self._translator.request(command)
        return self._heard(command, request, self._calls.call(request, command))

    async def aperform(self, command: Command) -> Reply:
        alone()
        if self._lost is not None:
            raise self._refusal()
        if self._deferred.waiting:
            await asyncio.to_thread(self._after_deferred, command)
        request = self._translator.request(command)
        return self._heard(command, request, await self._of_this_loop().call(request, command))

    @entering
    def submit(self, command: Command) -> None:
        if self._closed:
            raise trouble.closed()
        if asyncio._get_running_loop() is None:
            self._deferred.add(command)
        else:
            # Behind what this loop asked before; if the loop ends too soon, a thread does it.
            self._of_this_loop().submit(self._translator.request(command), command, self._deferred.add)

    def _after_deferred(self, operation: Any) -> None:
        """What was submitted before is carried out; a store that does not take it is away."""
        if not self._deferred.flush(self.options.timeout_s):
            raise trouble.broken(TimeoutError(), self._nodes.home(0), operation)

    def _heard(self, command: Command, request: Request, answer: Any) -> Reply:
        if type(answer) is hiredis.ReplyError:
            raise self._refused(answer, command)
        reply = self._translator.reply(command, request, answer)
        if reply.applied:
            self.waiters.wake(address_of(command))
        return reply

    def _refused(self, answer: Any, operation: Any) -> SemelError:
        error = trouble.refused(answer, operation)
        if trouble.word_of(answer) in trouble.LOSSES:
            # For good: what was lost does not come back by somebody else's writing on.
            self._lost = error
        return error

    def _refusal(self) -> SemelError:
        assert self._lost is not None
        return StoreCorrupt(self._lost.message, corrective_action=self._lost.corrective_action)

    # --- queries ----------------------------------------------------------------------------------

    @entering
    def ask(self, query: Query[T]) -> T:
        if self._lost is not None:
            raise self._refusal()
        if self._deferred.waiting:
            self._after_deferred(query)
        asking = _ANSWERS[type(query)](self._translator, query)
        try:
            requests = next(asking)
            while True:
                requests = asking.send(self._sound(requests, self._calls.call_all(requests, query)))
        except StopIteration as stop:
            return cast(T, self._result_of(stop.value))

    async def aask(self, query: Query[T]) -> T:
        alone()
        if self._lost is not None:
            raise self._refusal()
        if self._deferred.waiting:
            await asyncio.to_thread(self._after_deferred, query)
        connections = self._of_this_loop()
        asking = _ANSWERS[type(query)](self._translator, query)
        try:
            requests = next(asking)
            while True:
                sent = [connections.call(request, query) for request in requests]
                # Most ask one thing at a time: to gather one future costs as much as to send it.
                answers = [await sent[0]] if len(sent) == 1 else await asyncio.gather(*sent)
                requests = asking.send(self._sound(requests, answers))
        except StopIteration as stop:
            return cast(T, self._result_of(stop.value))

    def _sound(self, requests: list[Request], answers: list[Any]) -> list[Any]:
        for request, answer in zip(requests, answers, strict=True):
            if type(answer) is hiredis.ReplyError and (
                request.script is None or trouble.word_of(answer) in trouble.LOSSES
            ):
                raise self._refused(answer, None)
        return answers

    def _result_of(self, value: Any) -> Any:
        """What the query returned; after a sweep, whoever waits for a record that lapsed is woken."""
        if type(value) is not tuple:
            return value
        swept, lapsed = value
        changed = set(lapsed)
        for at in self.waiters.addresses() if changed else ():
            if digest_of(at)[: self._translator.digest_bytes] in changed:
                self.waiters.wake(at)
        return swept

    # --- event loops ------------------------------------------------------------------------------

    def _of_this_loop(self) -> LoopConnections:
        loop = asyncio.get_running_loop()
        connections = self._by_loop.get(loop)
        return connections if connections is not None else self._new_of_loop(loop)

    def _new_of_loop(self, loop: asyncio.AbstractEventLoop) -> LoopConnections:
        with inside(), self._by_loop_lock:
            if self._closed:
                raise trouble.closed()
            self._close_those_of_ended_loops()
            connections = self._by_loop[loop] = LoopConnections(loop, self.options, self._nodes, self.lanes)
        return connections

    def _close_those_of_ended_loops(self) -> None:
        for loop in [loop for loop in self._by_loop if loop.is_closed()]:
            self._by_loop.pop(loop).close()

    # --- waiting ----------------------------------------------------------------------------------

    @entering
    def watch(self) -> None:
        self._watcher.start()

    def _listening(self) -> ThreadConnection:
        return self._connections.fresh(self._nodes.home(0))

    def _channel_of(self, at: Address) -> bytes:
        digest = digest_of(at)
        return self._translator.lane_of(digest).record(digest)

    def _look(self, at: Address) -> Reply:
        return self._perform_now(Look(at))

    # --- around -----------------------------------------------------------------------------------

    @entering
    def findings(self) -> list[Finding]:
        ask = self._calls.to_node
        servers = [settings.read(node, ask) for node in self._nodes.all()]
        seconds, us = ask(servers[0].node, b"TIME")
        drift_us = int(seconds) * 1_000_000 + int(us) - SYSTEM.now_us()
        return list(settings.findings(servers, drift_us))

    @entering
    def flush(self) -> None:
        """What was submitted before is carried out."""
        self._flush()

    def _flush(self) -> None:
        with self._by_loop_lock:
            self._close_those_of_ended_loops()
        self._deferred.flush(self.options.timeout_s)

    @entering
    def close(self) -> None:
        self._watcher.close()
        self._flush()
        self._deferred.close()
        with self._by_loop_lock:
            self._closed = True
            by_loop, self._by_loop = self._by_loop, {}
        for loop, connections in by_loop.items():
            if loop.is_running():
                # Soon, on its own loop too: that may be in the middle of a connection.
                loop.call_soon_threadsafe(connections.close)
            else:
                connections.close()
        self._connections.close()

    async def aclose(self) -> None:
        connections = self._by_loop.pop(asyncio.get_running_loop(), None)
        if connections is not None:
            connections.close()
        await asyncio.to_thread(self.close)

    def forked(self) -> None:
        """In a forked child: own connections, and nothing of the parent's is asked or ended."""
        super().forked()
        self._connections.drop()
        for connections in self._by_loop.values():
            connections.drop()
        self._by_loop = {}
        self._by_loop_lock = threading.Lock()
        self._deferred.reset()
        self._watcher.reset(self.waiters)


_all: weakref.WeakSet[RedisStore] = weakref.WeakSet()


def _in_child() -> None:
    for store in list(_all):
        store.forked()


@atexit.register
def _flush_all() -> None:
    """What a cancelled caller submitted is carried out before the process ends."""
    for store in list(_all):
        try:
            store.flush()
        except Exception:
            pass  # the process ends, and a lease heals what could not be written


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
