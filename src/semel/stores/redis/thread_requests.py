"""Requests of threads: sent, sent on where a server says so, and sent once more after a broken connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hiredis

from semel.errors import StoreUnavailable
from semel.kernel.clock import SYSTEM
from semel.kernel.record import new
from semel.stores.redis import trouble
from semel.stores.redis.commands import Request
from semel.stores.redis.connection_pool import ConnectionPool
from semel.stores.redis.nodes import Nodes
from semel.stores.redis.options import Node
from semel.stores.redis.routing import TURNS_MAX, NodeTurn, demoted, next_turn, preceding
from semel.stores.redis.thread_connections import OutOfStep, ThreadConnection, Words, packed

_BROKEN = (OSError, hiredis.HiredisError)

# How many requests are on their way to one server at once: enough that its answers fill a packet or two.
_ROW_MAX = 128


class ThreadRequests:
    """The way of a thread's requests. An answer may be the server's error; none is StoreUnavailable."""

    def __init__(self, connections: ConnectionPool, nodes: Nodes, lanes: int) -> None:
        self._connections = connections
        self._nodes = nodes
        self._lanes = lanes

    def call(self, request: Request, operation: Any = None) -> Any:
        turn, repeated = new(NodeTurn, (self._nodes.home(request.lane), False, False, 0.0)), False
        answer: Any = None
        for _ in range(TURNS_MAX):
            try:
                answer = self._once(request, turn)
            except _BROKEN as error:
                if repeated or not request.repeatable or timed_out(error):
                    raise trouble.broken(error, turn.node, operation) from error
                repeated = True
                continue
            except StoreUnavailable as away:
                if repeated or not self._elsewhere(request.lane, turn):
                    raise trouble.again(away, operation) from away
                turn, repeated = NodeTurn(self._nodes.home(request.lane)), True
                continue
            if type(answer) is not hiredis.ReplyError:
                return answer
            if not repeated and demoted(answer, turn):
                self._connections.drop()
                repeated = True
                continue
            following = next_turn(answer, request.lane, turn, self._nodes)
            if following is None:
                return answer
            turn = following
            if turn.pause_s:
                SYSTEM.sleep(turn.pause_s)
        return answer

    def _once(self, request: Request, turn: NodeTurn) -> Any:
        answer = self._exchange(turn, request.words(), numbered=request.number is not None)
        if not request.answered_by(answer) and not _error(answer):
            # Nothing that is still on its way on these connections can be trusted.
            self._connections.drop()
            raise OutOfStep
        return answer

    def _exchange(self, turn: NodeTurn, words: Words, *, numbered: bool = False) -> Any:
        connection = self._connections.take(turn.node)
        try:
            data = packed(words)
            if numbered and not (turn.loading or turn.asking):
                answer = connection.call(data)
            else:
                *_, answer = connection.call_all([*preceding(turn), data])
        except _BROKEN:
            self._connections.discard(connection)
            raise
        except BaseException:
            connection.close()  # Interrupted: its answer would be read as the next one's.
            raise
        self._connections.give_back(connection)
        return answer

    def _elsewhere(self, lane: int, turn: NodeTurn) -> bool:
        """Whether another server has the lane by now."""
        try:
            self._nodes.refresh(self._lanes)
        except StoreUnavailable:
            return False
        return self._nodes.home(lane) != turn.node

    def call_all(self, requests: Sequence[Request], operation: Any = None) -> list[Any]:
        """The answers in the order of the requests, which go out in rows, a row to each server."""
        answers: list[Any] = [None] * len(requests)
        rows: dict[Node, list[int]] = {}
        for position, request in enumerate(requests):
            rows.setdefault(self._nodes.home(request.lane), []).append(position)
        for node, positions in rows.items():
            for start in range(0, len(positions), _ROW_MAX):
                row = positions[start : start + _ROW_MAX]
                heard = self._row(node, [requests[position] for position in row], operation)
                for position, answer in zip(row, heard, strict=True):
                    answers[position] = answer
        return answers

    def _row(self, node: Node, requests: list[Request], operation: Any) -> list[Any]:
        repeatable = all(request.repeatable for request in requests)
        if len(requests) == 1 and repeatable:
            return [self.call(request, operation) for request in requests]
        try:
            connection = self._connections.take(node) if repeatable else self._proven(node)
            try:
                answers = connection.call_all([packed(request.words()) for request in requests])
            except BaseException:
                self._connections.discard(connection)
                raise
            self._connections.give_back(connection)
            check(requests, answers)
        except (*_BROKEN, StoreUnavailable) as error:
            if timed_out(error) or not repeatable:
                raise trouble.broken(error, node, operation) from error
            return [self.call(request, operation) for request in requests]
        return [
            self.call(request, operation) if _error(answer) else answer
            for request, answer in zip(requests, answers, strict=True)
        ]

    def _proven(self, node: Node) -> ThreadConnection:
        """A connection that lives: for what cannot be repeated, should it have been broken for long."""
        connection = self._connections.take(node)
        try:
            connection.call(packed((b"PING",)))
            return connection
        except _BROKEN:
            self._connections.discard(connection)
            return self._connections.fresh(node)

    def to_node(self, node: Node, *words: bytes) -> Any:
        """A command to this very server."""
        try:
            return self._exchange(NodeTurn(node), words)
        except _BROKEN as error:
            if timed_out(error) or not isinstance(error, OSError):
                raise trouble.broken(error, node) from error
        try:
            return self._exchange(NodeTurn(node), words)
        except _BROKEN as error:
            raise trouble.broken(error, node) from error


def check(requests: Sequence[Request], answers: Sequence[Any]) -> None:
    for request, answer in zip(requests, answers, strict=True):
        if not _error(answer) and not request.answered_by(answer):
            raise OutOfStep


def _error(answer: Any) -> bool:
    return type(answer) is hiredis.ReplyError


def timed_out(error: BaseException) -> bool:
    return isinstance(error, TimeoutError | BlockingIOError)
