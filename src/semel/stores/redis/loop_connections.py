"""Connections of event loops: what tasks ask in one tick goes out in one write, answers come in order.

A connection belongs to one loop and is used on its thread only. Nobody who waits for an answer owns it: a
task that is cancelled leaves its request on its way, and the answer is thrown away.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any

import hiredis

from semel.errors import SemelError
from semel.stores.redis import trouble
from semel.stores.redis.commands import Request
from semel.stores.redis.nodes import Nodes
from semel.stores.redis.options import Node, RedisOptions
from semel.stores.redis.routing import TURNS_MAX, Turn, next_turn, said_before
from semel.stores.redis.thread_connections import READ_BYTES, OutOfStep, mark, marked, packed, tune
from semel.stores.redis.thread_requests import timed_out

_NOT_YET = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class SentRequest:
    """A request on its way, and who is told."""

    __slots__ = (
        "asked",
        "deadline",
        "future",
        "heard",
        "mark",
        "repeated",
        "request",
        "turn",
        "turns",
        "unheard",
    )

    def __init__(
        self,
        request: Request | None,
        asked: Any,
        future: asyncio.Future[Any] | None,
        turn: Turn,
        unheard: Callable[[Any], None] | None = None,
    ) -> None:
        self.request = request
        self.asked = asked
        self.future = future
        self.turn = turn
        self.unheard = unheard  # told what was asked, if it cannot be carried out here
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
            self.unheard(self.asked)


class LoopConnection:
    """One connection. It connects when it is first needed, and is thrown away when it breaks."""

    def __init__(self, all_of_loop: LoopConnections, node: Node) -> None:
        self._all = all_of_loop
        self._loop = all_of_loop.loop
        self._node = node
        self._options = all_of_loop.options
        self._reader = hiredis.Reader()
        self._socket: socket.socket | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._out: list[bytes] = []
        self._unsent = b""
        self._flushing = False
        self._waiting: deque[SentRequest] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self._marks = 0
        self._open = True

    # --- out --------------------------------------------------------------------------------------

    def send(self, call: SentRequest, data: bytes) -> None:
        if call.request is not None and call.request.number is None:
            self._marks += 1
            call.mark, call.heard = mark(self._marks), None
            data += marked(call.mark)
        alone = not self._waiting
        call.deadline = self._loop.time() + self._options.timeout_s
        self._waiting.append(call)
        self._out.append(data)
        if self._watch is None:
            self._watch = self._loop.call_at(call.deadline, self._look_at_the_clock)
        if self._socket is None:
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
        if self._socket is None or not self._out:
            return
        data = b"".join(self._out)
        self._out.clear()
        if self._unsent:
            self._unsent += data
        else:
            self._write(data)

    def _write(self, data: bytes) -> None:
        assert self._socket is not None
        try:
            sent = self._socket.send(data)
        except _NOT_YET:
            sent = 0
        except OSError as error:
            self._break(error)
            return
        unsent = data[sent:]
        if unsent and not self._unsent:
            self._loop.add_writer(self._socket, self._write_on)
        elif self._unsent and not unsent:
            self._loop.remove_writer(self._socket)
        self._unsent = unsent

    def _write_on(self) -> None:
        self._write(self._unsent)

    # --- in ---------------------------------------------------------------------------------------

    def _readable(self) -> None:
        sock = self._socket
        if sock is None:
            return
        try:
            data = sock.recv(READ_BYTES)
            if not data:
                raise ConnectionResetError("the server closed it")
            self._reader.feed(data)
            if isinstance(sock, ssl.SSLSocket):
                while sock.pending():
                    self._reader.feed(sock.recv(READ_BYTES))
            self._hand_out()
        except _NOT_YET:
            return
        except (OSError, hiredis.HiredisError) as error:
            self._break(error)

    def _hand_out(self) -> None:
        gets = self._reader.gets
        while self._open and (answer := gets()) is not False:
            if not self._waiting:
                raise OutOfStep
            call = self._waiting[0]
            if call.mark is not None and call.heard is None:
                call.heard = (answer,)
            else:
                self._hand(call, call.marked(answer))

    def _hand(self, call: SentRequest, answer: Any) -> None:
        if type(answer) is hiredis.ReplyError:
            self._waiting.popleft()
            self._all.refused(call, answer, self)
        elif call.request is None or call.request.answered_by(answer):
            self._waiting.popleft()
            call.answer(answer)
        else:
            raise OutOfStep

    # --- its life ---------------------------------------------------------------------------------

    async def _connect(self) -> None:
        sock: socket.socket | None = None
        try:
            async with asyncio.timeout(self._options.connect_s):
                sock = await _connected(self._loop, self._node)
                if self._options.tls is not None:
                    sock = await _secured(self._loop, sock, self._options.tls, self._node.host)
        except BaseException as error:
            if sock is not None:
                sock.close()
            self._connecting = None
            self._break(error)
            if not isinstance(error, Exception):
                raise
            return
        if not self._open:
            sock.close()
            return
        self._socket, self._connecting = sock, None
        self._loop.add_reader(sock, self._readable)
        self._greet()
        self._flush()

    def _greet(self) -> None:
        """The greeting goes before what has been asked meanwhile."""
        words = self._options.greeting()
        turn = Turn(self._node)
        for _ in words:
            call = SentRequest(None, None, None, turn)
            call.deadline = self._loop.time() + self._options.timeout_s
            self._waiting.appendleft(call)
        self._out[:0] = [packed(said) for said in words]

    def _look_at_the_clock(self) -> None:
        self._watch = None
        if not self._waiting:
            return
        deadline = self._waiting[0].deadline
        if deadline <= self._loop.time():
            self._break(TimeoutError())
        else:
            self._watch = self._loop.call_at(deadline, self._look_at_the_clock)

    def _break(self, error: BaseException) -> None:
        """Of no use any more; who waits is told, or asks once more through another connection."""
        waiting = self.close()
        self._all.broken(self._node, self, waiting, error)

    def close(self) -> list[SentRequest]:
        """Who was still waiting for an answer."""
        self._open = False
        sock, self._socket = self._socket, None
        if sock is not None:
            if not self._loop.is_closed():
                self._loop.remove_reader(sock)
                self._loop.remove_writer(sock)
            sock.close()
        if self._watch is not None:
            self._watch.cancel()
        if self._connecting is not None and not self._loop.is_closed():
            self._connecting.cancel()
        waiting, self._waiting = self._waiting, deque()
        self._out.clear()
        return [call for call in waiting if call.request is not None]


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
        self._refreshing: set[asyncio.Future[Any]] = set()

    def call(self, request: Request, asked: Any) -> asyncio.Future[Any]:
        """The answer, soon; it may be the server's error."""
        future = self.loop.create_future()
        self._send(SentRequest(request, asked, future, Turn(self._nodes.home(request.lane))))
        return future

    def submit(self, request: Request, asked: Any, unheard: Callable[[Any], None]) -> None:
        self._send(SentRequest(request, asked, None, Turn(self._nodes.home(request.lane)), unheard))

    def _send(self, call: SentRequest) -> None:
        turn, request = call.turn, call.request
        assert request is not None
        connection = self._connections.get(turn.node)
        if connection is None:
            connection = self._connections[turn.node] = LoopConnection(self, turn.node)
        if turn.loading or turn.asking:
            for said in said_before(turn):
                connection.send(SentRequest(None, None, None, turn), said)
        connection.send(call, packed(request.words()))

    def refused(self, call: SentRequest, answer: Any, connection: LoopConnection) -> None:
        """The server answered with an error: the call goes where that sends it, or gets it as its answer."""
        if call.request is None:
            if trouble.word_of(answer) in trouble.LOGIN:
                self._connections.pop(call.turn.node, None)
                for waiting in connection.close():
                    waiting.fail(trouble.refused(answer, waiting.asked))
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
            ):
                call.fail(trouble.broken(error, node, call.asked))
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
                call.fail(trouble.broken(error or ConnectionResetError(), call.turn.node, call.asked))
            else:
                call.turn = Turn(self._nodes.home(call.request.lane))
                self._send(call)

    def close(self) -> None:
        """On the loop's thread, or when the loop runs no more. What nobody waited for is handed over."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            for call in connection.close():
                if call.future is None or not self.loop.is_closed():
                    call.fail(trouble.closed())

    def drop(self) -> None:
        """In a forked child: the loop is the parent's, and so are its tasks."""
        for connection in self._connections.values():
            sock, connection._socket = connection._socket, None
            if sock is not None:
                sock.close()


async def _connected(loop: asyncio.AbstractEventLoop, node: Node) -> socket.socket:
    found = await loop.getaddrinfo(node.host, node.port, type=socket.SOCK_STREAM)
    failure: OSError = ConnectionRefusedError()
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            tune(sock)
            await loop.sock_connect(sock, address)
            return sock
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
    raise failure


async def _secured(
    loop: asyncio.AbstractEventLoop, plain: socket.socket, tls: ssl.SSLContext, host: str
) -> ssl.SSLSocket:
    sock = tls.wrap_socket(plain, server_hostname=host, do_handshake_on_connect=False)
    try:
        while True:
            try:
                sock.do_handshake()
                return sock
            except ssl.SSLWantReadError:
                await _ready(sock, loop.add_reader, loop.remove_reader)
            except ssl.SSLWantWriteError:
                await _ready(sock, loop.add_writer, loop.remove_writer)
    except BaseException:
        sock.close()
        raise


async def _ready(sock: socket.socket, add: Any, remove: Any) -> None:
    ready = asyncio.Event()
    add(sock, ready.set)
    try:
        await ready.wait()
    finally:
        remove(sock)
