"""Connections of event loops: what tasks ask in one tick goes out in one write, answers come in order.

A connection belongs to one loop and is used on its thread only. Nobody who waits for an answer owns it: a
task that is cancelled leaves its request on its way, and the answer is thrown away. Sockets, TLS and writing
on are asyncio's; here is which answer is whose, and what becomes of requests when a connection ends.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any, cast

import hiredis

from semel.errors import SemelError
from semel.stores.redis import sentinel, trouble
from semel.stores.redis.commands import Request
from semel.stores.redis.nodes import Nodes
from semel.stores.redis.options import Node, RedisOptions
from semel.stores.redis.routing import TURNS_MAX, NodeTurn, demoted, next_turn, preceding
from semel.stores.redis.thread_connections import READ_BYTES, OutOfStep, mark, marked, packed
from semel.stores.redis.thread_requests import timed_out


class SentRequest:
    """A request on its way, the command or query it belongs to, and who waits for its answer."""

    __slots__ = (
        "deadline",
        "future",
        "heard",
        "mark",
        "number",
        "operation",
        "repeated",
        "request",
        "turn",
        "turns",
        "unheard",
    )

    def __init__(
        self,
        request: Request | None,
        operation: Any,
        future: asyncio.Future[Any] | None,
        turn: NodeTurn,
        unheard: Callable[[Any], None] | None = None,
    ) -> None:
        self.request = request
        self.number = None if request is None else request.number
        self.operation = operation
        self.future = future
        self.turn = turn
        self.unheard = unheard  # called with the operation, if it cannot be carried out here
        self.turns = 0
        self.repeated = False
        self.deadline = 0.0
        self.mark: bytes | None = None  # comes behind the answer, where that has no number of its own
        self.heard: tuple[Any] | None = None  # the answer, while the mark is not there yet

    def marked(self, last: Any) -> Any:
        """The answer, if its mark is the last that came. Whom the server does not let in gets no mark."""
        if self.mark is None or type(last) is hiredis.ReplyError:
            return last
        if self.heard is None or last != self.mark:
            raise OutOfStep
        return self.heard[0]

    def answer(self, answer: Any) -> None:
        if self.future is not None and not self.future.done():
            self.future.set_result(answer)

    def fail(self, error: SemelError) -> None:
        if self.future is not None:
            if not self.future.done():
                self.future.set_exception(error)
        elif self.unheard is not None:
            self.unheard(self.operation)


class LoopConnection(asyncio.BufferedProtocol):
    """One connection. It connects when it is first needed, and is thrown away when it breaks."""

    def __init__(self, owner: LoopConnections, node: Node) -> None:
        self._owner = owner
        self._loop = owner.loop
        self._node = node
        self.at = node  # its address, once that is known
        self._options = owner.options
        self._reader = hiredis.Reader()
        # Its own: asyncio would take a new one for every answer, so large that the kernel has to map it.
        # A view, because asyncio's TLS reads into slices of it: those of a bytearray would be copies.
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._transport: asyncio.Transport | None = None
        self._ready = False  # what is asked may go out
        self._connecting: asyncio.Task[None] | None = None
        self._out: list[bytes] = []
        self._flushing = False
        self._waiting: deque[SentRequest] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self._marks = 0
        self._open = True

    # --- out --------------------------------------------------------------------------------------

    def send(self, call: SentRequest, data: bytes) -> None:
        if call.number is None and call.request is not None:
            self._marks += 1
            call.mark, call.heard = mark(self._marks), None
            data += marked(call.mark)
        alone = not self._waiting
        call.deadline = self._loop.time() + self._options.timeout_s
        self._waiting.append(call)
        self._out.append(data)
        if self._watch is None:
            self._watch = self._loop.call_at(call.deadline, self._look_at_the_clock)
        if not self._ready:
            if self._connecting is None:
                self._connecting = self._loop.create_task(self._connect())
        elif alone:
            # Nobody else is on the way: waiting for company would only cost a turn of the loop.
            self._flush()
        elif not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._ready and self._out and self._transport is not None:
            data = b"".join(self._out)
            self._out.clear()
            self._transport.write(data)

    # --- in ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # So that a peer that vanished is noticed on an idle connection, too.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def get_buffer(self, _: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self._reader.feed(self._buffer, 0, nbytes)  # type: ignore[arg-type]
            self._hand_out()
        except (OutOfStep, hiredis.HiredisError) as error:
            self.give_up(error)

    def connection_lost(self, error: Exception | None) -> None:
        if self._open:
            self.give_up(error or ConnectionResetError("the server closed it"))

    def _hand_out(self) -> None:
        gets, waiting = self._reader.gets, self._waiting
        while self._open and (answer := gets()) is not False:
            if not waiting:
                raise OutOfStep
            call = waiting[0]
            number = call.number
            if number is not None and type(answer) is list and len(answer) > 3 and answer[3] == number:
                # Nearly always: the answer to a step.
                waiting.popleft()
                if call.future is not None and not call.future.done():
                    call.future.set_result(answer)
            elif call.mark is not None and call.heard is None:
                call.heard = (answer,)
            else:
                self._hand(call, call.marked(answer))

    def _hand(self, call: SentRequest, answer: Any) -> None:
        if type(answer) is hiredis.ReplyError:
            self._waiting.popleft()
            self._owner.refused(call, answer, self)
        elif call.request is None or call.request.answered_by(answer):
            self._waiting.popleft()
            call.answer(answer)
        else:
            raise OutOfStep

    # --- its life ---------------------------------------------------------------------------------

    async def _connect(self) -> None:
        try:
            if self._node.way == "sentinel":
                self.at = await self._loop.run_in_executor(None, sentinel.address, self._node, self._options)
            async with asyncio.timeout(self._options.connect_s):
                await self._reach(self.at)
                role = self._greet()
                if self._node.way == "sentinel":
                    trouble.check_primary(await role)
        except BaseException as error:
            self._connecting = None
            if self._open:
                self.give_up(error)
            if not isinstance(error, Exception):
                raise
            return
        self._connecting = None
        self._ready = True
        self._flush()

    async def _reach(self, at: Node) -> None:
        if at.way == "unix":
            await self._loop.create_unix_connection(lambda: self, at.host)
            return
        tls = self._options.tls
        name = None if tls is None else at.host
        await self._loop.create_connection(lambda: self, at.host, at.port, ssl=tls, server_hostname=name)

    def _greet(self) -> asyncio.Future[Any]:
        """The greeting is sent before what was asked meanwhile; a future of the last answer to it."""
        words, last = self._options.greeting(), self._loop.create_future()
        if self._node.way == "sentinel":
            words.append((b"ROLE",))
        for number in range(len(words)):
            call = SentRequest(None, None, None if number else last, NodeTurn(self._node))
            call.deadline = self._loop.time() + self._options.timeout_s
            self._waiting.appendleft(call)
        assert self._transport is not None
        self._transport.write(b"".join(map(packed, words)))
        return last

    def _look_at_the_clock(self) -> None:
        self._watch = None
        if not self._waiting:
            return
        deadline = self._waiting[0].deadline
        if deadline <= self._loop.time():
            self.give_up(TimeoutError())
        else:
            self._watch = self._loop.call_at(deadline, self._look_at_the_clock)

    def give_up(self, error: BaseException) -> None:
        """Of no use any more; who waits is told, or asks once more through another connection."""
        waiting = self.close()
        self._owner.broken(self._node, self, waiting, error)

    def close(self) -> list[SentRequest]:
        """Who was still waiting for an answer."""
        self._open = self._ready = False
        if self._transport is not None:
            if self._loop.is_closed():
                self.let_go()
            else:
                self._transport.abort()
        if self._watch is not None:
            self._watch.cancel()
        if self._connecting is not None and not self._loop.is_closed():
            self._connecting.cancel()
        waiting, self._waiting = self._waiting, deque()
        self._out.clear()
        return [call for call in waiting if call.request is not None]

    def let_go(self) -> None:
        """The socket is not open any more in this process, although its loop cannot be asked to close it.

        The loop ended, or it is the parent's of a forked child. Its transport will close the same number once
        more when it is collected: so that this never ends somebody else's file, the number is not set free.
        """
        transport, self._transport = self._transport, None
        number = -1 if transport is None else transport.get_extra_info("socket").fileno()
        if number >= 0:
            nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            os.dup2(nothing, number, inheritable=False)
            os.close(nothing)


class LoopConnections:
    """All connections of one loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, options: RedisOptions, nodes: Nodes, lanes: int
    ) -> None:
        self.loop = loop
        self.options = options
        self._nodes = nodes
        self._lanes = lanes
        self._connections: dict[Node, LoopConnection] = {}
        self._turns: dict[int, NodeTurn] = {}
        self._refreshing: set[asyncio.Future[Any]] = set()
        self._end = _at_the_end_of_the_loop(self._close)
        _resume(self._end.__anext__())

    def call(self, request: Request, operation: Any) -> asyncio.Future[Any]:
        """The answer, soon; it may be the server's error."""
        future = self.loop.create_future()
        self._send(SentRequest(request, operation, future, self._turn(request.lane)))
        return future

    def _turn(self, lane: int) -> NodeTurn:
        """To where the lane is at home: the same turn for as long as that is."""
        node, turn = self._nodes.home(lane), self._turns.get(lane)
        if turn is None or turn.node is not node:
            turn = self._turns[lane] = NodeTurn(node)
        return turn

    def submit(self, request: Request, operation: Any, unheard: Callable[[Any], None]) -> None:
        self._send(SentRequest(request, operation, None, self._turn(request.lane), unheard))

    def _send(self, call: SentRequest) -> None:
        turn, request = call.turn, call.request
        assert request is not None
        connection = self._connections.get(turn.node)
        if connection is None:
            connection = self._connections[turn.node] = LoopConnection(self, turn.node)
        if turn.loading or turn.asking:
            for data in preceding(turn):
                connection.send(SentRequest(None, None, None, turn), data)
        connection.send(call, packed(request.words()))

    def refused(self, call: SentRequest, answer: Any, connection: LoopConnection) -> None:
        """The server answered with an error: the call goes where that sends it, or gets it as its answer."""
        if call.request is None:
            if trouble.word_of(answer) in trouble.LOGIN:
                self._connections.pop(call.turn.node, None)
                for waiting in connection.close():
                    waiting.fail(trouble.refused(answer, waiting.operation))
            call.answer(answer)
            return
        if demoted(answer, call.turn) and not call.repeated:
            call.repeated = True
            connection.give_up(trouble.NotPrimary())
            self._send(call)
            return
        following = next_turn(answer, call.request.lane, call.turn, self._nodes)
        call.turns += 1
        if following is None or call.turns >= TURNS_MAX:
            call.answer(answer)
            return
        call.turn = following
        if following.pause_s:
            self.loop.call_later(following.pause_s, self._send, call)
        else:
            self._send(call)

    def broken(
        self, node: Node, connection: LoopConnection, waiting: list[SentRequest], error: BaseException
    ) -> None:
        if self._connections.get(node) is connection:
            del self._connections[node]
        again = []
        for call in waiting:
            assert call.request is not None
            if (
                call.repeated
                or not call.request.repeatable
                or timed_out(error)
                or not isinstance(error, Exception)
                or isinstance(error, SemelError)
            ):
                call.fail(trouble.broken(error, connection.at, call.operation))
            else:
                call.repeated = True
                again.append(call)
        if again:
            self._send_again(again)

    def _send_again(self, calls: list[SentRequest]) -> None:
        if not self.options.cluster:
            for call in calls:
                self._send(call)
            return
        refreshing = self.loop.run_in_executor(None, self._nodes.refresh, self._lanes)
        self._refreshing.add(refreshing)
        refreshing.add_done_callback(lambda done: self._refreshed(done, calls))

    def _refreshed(self, done: asyncio.Future[Any], calls: list[SentRequest]) -> None:
        self._refreshing.discard(done)
        error = None if done.cancelled() else done.exception()
        for call in calls:
            assert call.request is not None
            if done.cancelled() or error is not None:
                call.fail(trouble.broken(error or ConnectionResetError(), call.turn.node, call.operation))
            else:
                call.turn = NodeTurn(self._nodes.home(call.request.lane))
                self._send(call)

    def close(self) -> None:
        """On the loop's thread, or when the loop runs no more. What nobody waited for is handed over."""
        _resume(self._end.aclose())
        self._close()

    def _close(self) -> None:
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            for call in connection.close():
                if call.future is None or not self.loop.is_closed():
                    call.fail(trouble.closed())

    def drop(self) -> None:
        """In a forked child: the loop is the parent's, and so are its tasks."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.let_go()
        _resume(self._end.aclose())


async def _at_the_end_of_the_loop(act: Callable[[], None]) -> AsyncGenerator[None, None]:
    """Once begun, it acts when its loop ends: that closes its generators while it still can close sockets."""
    try:
        yield
    finally:
        act()


def _resume(step: Any) -> None:
    """To where it waits next, or to its end; it never waits for anything else."""
    with suppress(StopIteration, StopAsyncIteration):
        step.send(None)
