"""One connection: prepared statements in binary form, straight on libpq, every wait with an end.

The driver's cursors would cost more than the statement's whole round trip; what is left of the driver is its
wrapper of libpq, which knows TLS, passwords and the rest of the URL.

Every request takes a number with it, and its answer comes with that number: a reply that arrives twice is
never taken for the answer to something else. The number goes in front of a statement, or is the last of its
values; a refusal has no row to bring it back, and is believed once the connection is known to be in step.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg import pq

from semel.kernel.clock import SYSTEM
from semel.stores.postgres.packing import READERS, number
from semel.stores.postgres.statements import ECHO, Statement
from semel.stores.postgres.trouble import Failure

_OK = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK, pq.ExecStatus.EMPTY_QUERY)
_ROWS, _SYNC = pq.ExecStatus.TUPLES_OK, pq.ExecStatus.PIPELINE_SYNC
_LOST, _ALONE = pq.ConnStatus.BAD, pq.PipelineStatus.OFF
_SQLSTATE = pq.DiagnosticField.SQLSTATE
_MESSAGE = pq.DiagnosticField.MESSAGE_PRIMARY
_SAID_BY = pq.DiagnosticField.SOURCE_FUNCTION
_BINARY = pq.Format.BINARY
_READABLE, _WRITABLE = select.POLLIN, select.POLLOUT

# How long an interrupted caller waits for the end of its statement, which takes milliseconds as a rule.
_HEAR_OUT_S = 2.0

# Of the time that a caller waits for a statement.
_SERVERS_SHARE = 0.9

# The place in the server that warns of a commit which no standby has: the words depend on its language.
_WAITS_FOR_STANDBY = b"SyncRepWaitForLSN"

# Below it are the types that PostgreSQL comes with.
_FIRST_OWN_OID = 16384

Row = tuple[Any, ...]
Params = Sequence[bytes | None]


class PostgresConnection:
    """An open connection; whoever holds it is alone with it."""

    def __init__(self, conninfo: bytes, connect_s: float, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.broken = False
        self.path_to_lend: str | None = None  # the search path that a tool's transaction sets, if any
        self.used = False  # an answer came over it since it was taken from the pool for the first time
        self._prepared: dict[bytes, tuple[Callable[[bytes], Any], ...]] = {}
        self._unanswered = False  # sent as a whole, and the server is not through with it
        self._requests = 0
        self._echoes = False  # the server knows how to repeat a request's number
        self._dropped: list[bool] = []  # what libpq read while nothing was under way
        self._unreplicated: list[bool] = []  # commits for which the server gave up waiting for its standby
        self._pgconn = pq.PGconn.connect_start(conninfo)
        try:
            self._connect(SYSTEM.monotonic() + connect_s)
        except BaseException:
            self.close()
            raise
        self._pgconn.notice_handler = _noting(self._dropped, self._unreplicated)
        self._poll = select.poll()
        self._poll.register(self._pgconn.socket, _READABLE)
        self._pgconn.nonblocking = 1

    def _connect(self, give_up_at: float) -> None:
        while True:
            if self._pgconn.status == pq.ConnStatus.BAD:
                raise self._failure()
            status = self._pgconn.connect_poll()
            if status == pq.PollingStatus.OK:
                return
            if status == pq.PollingStatus.FAILED:
                raise self._failure()
            events = _READABLE if status == pq.PollingStatus.READING else _WRITABLE
            _wait(self._pgconn.socket, events, give_up_at)

    def _failure(self) -> Failure:
        return Failure(_one_line(self._pgconn.error_message), lost=True)

    # --- statements ------------------------------------------------------------------------------

    def run(self, step: Statement, params: Params = ()) -> list[Row]:
        """The rows of one statement, which is a transaction of its own unless one was begun."""
        give_up_at = SYSTEM.monotonic() + self.timeout_s
        try:
            readers = self._prepared.get(step.name)
            if readers is None:
                readers = self._prepare(step, give_up_at)
            self._open_request()
            self._pgconn.send_query_prepared(step.name, params, (_BINARY,) * len(params), _BINARY)
            result = self._answer(give_up_at)
        except psycopg.Error as error:
            raise self._break(str(error)) from None
        except Failure:
            raise
        except BaseException:
            # Interrupted in mid-conversation: nobody may go on with it.
            self._hear_out()
            raise
        self.used = True
        return _rows(result, readers)

    def run_numbered(self, step: Statement, params: Params) -> list[Row]:
        """The rows of a statement that takes its request's number last, and says it first in each of them."""
        give_up_at = SYSTEM.monotonic() + self.timeout_s
        pgconn = self._pgconn
        try:
            readers = self._prepared.get(step.name)
            if readers is None:
                readers = self._prepare(step, give_up_at)
            self._be_alone()
            self._dropped.clear()
            self._requests += 1
            request = number(self._requests)
            formats = (_BINARY,) * (len(params) + 1)
            # First: an interrupt after this hears the server out, or finds that nothing was sent.
            self._unanswered = True
            pgconn.send_query_prepared(step.name, (*params, request), formats, _BINARY)
            if pgconn.flush():
                self._flush(give_up_at)
            result = self._next(give_up_at)
            if self._next(give_up_at) is not None:
                # A piece of an older answer, and then ours.
                raise self._break("the answer is to another question")
            self._unanswered = False
            if result is None:
                raise self._break("no answer")
            if result.status != _ROWS:
                raise self._in_step(self._refusal(result), give_up_at)
            if not result.ntuples or result.get_value(0, 0) != request:
                raise self._break("the answer is to another question")
            self._refuse_unreplicated()
        except psycopg.Error as error:
            raise self._break(str(error)) from None
        except Failure:
            raise
        except BaseException:
            self._hear_out()
            raise
        self.used = True
        return _rows(result, readers)

    def _in_step(self, refusal: Failure, give_up_at: float) -> Failure:
        """The refusal, once it is known to be the answer to what was asked last: nothing came behind it.

        What came at once libpq has dropped, and said so; what comes now stands in front of a number.
        """
        if self.broken:
            return refusal
        if self._dropped:
            return self._break("the answer is to another question")
        if not self.idle:
            self.close()  # in a transaction nobody says a number any more, and it is undone in any case
            return refusal
        try:
            self._number_request()
            self._answer(give_up_at)
        except psycopg.Error:
            self.close()
            refusal.lost = True
        return refusal

    def script(self, text: str) -> None:
        """Several statements without parameters, in one transaction unless they say otherwise."""
        self._requests += 1
        # A SELECT would fix the snapshot of a transaction that begins here, and with it its isolation level.
        numbered = f"{text}\n;SET semel.request = {self._requests};SHOW semel.request"
        try:
            self._be_alone()
            self._pgconn.send_query(numbered.encode())
            results = self._results(SYSTEM.monotonic() + self.timeout_s)
            self._check(results)
            self._recognise(results[-1], b"%d" % self._requests)
            self._refuse_unreplicated()
        except psycopg.Error as error:
            raise self._break(str(error)) from None
        except Failure:
            raise
        except BaseException:
            self.close()
            raise

    def _prepare(self, step: Statement, give_up_at: float) -> tuple[Callable[[bytes], Any], ...]:
        self._open_request()
        self._pgconn.send_prepare(step.name, step.text)
        self._pgconn.send_describe_prepared(step.name)
        described = self._answer(give_up_at)
        types = [described.ftype(column) for column in range(described.nfields)]
        # What is no type of PostgreSQL's own is a whole row of a table.
        readers = tuple(bytes if oid >= _FIRST_OWN_OID else READERS[oid] for oid in types)
        self._prepared[step.name] = readers
        return readers

    def _be_alone(self) -> None:
        """What the server sent unasked is thrown away: most replies that come twice end here, at no cost."""
        self._pgconn.consume_input()
        self._pgconn.is_busy()  # libpq drops what it reads while nothing is under way

    def _open_request(self) -> None:
        """What is sent next has a number in front of it, and they travel together."""
        self._be_alone()
        self._number_request()

    def _number_request(self) -> None:
        self._requests += 1
        self._pgconn.enter_pipeline_mode()
        if not self._echoes:
            self._pgconn.send_prepare(ECHO.name, ECHO.text)
        self._pgconn.send_query_prepared(ECHO.name, (number(self._requests),), (_BINARY,), _BINARY)

    def _answer(self, give_up_at: float) -> Any:
        """The last result of the request; Failure if any of it failed, or if it is another's."""
        self._unanswered = True
        self._pgconn.pipeline_sync()
        results = self._results(give_up_at)
        if self._pgconn.status != _LOST:
            self._pgconn.exit_pipeline_mode()
        if not self._echoes:
            self._check(results[:1])
            self._echoes = True
            del results[0]
        self._check(results[:1])
        self._recognise(results[0], number(self._requests))
        self._check(results)
        self._refuse_unreplicated()
        return results[-1]

    def _results(self, give_up_at: float) -> list[Any]:
        """Everything that the server says to what was sent, as far as it gets."""
        if self._pgconn.flush():
            self._flush(give_up_at)
        results: list[Any] = []
        while (result := self._next(give_up_at)) is not None or self._more():
            if result is None:
                continue
            if result.status == _SYNC:
                self._unanswered = False
                break
            results.append(result)
        return results

    def _hear_out(self) -> None:
        """The connection is closed; before that, the server is through with what it was sent.

        Else what follows over another connection could overtake it: a release its own claim.
        """
        give_up_at = SYSTEM.monotonic() + min(self.timeout_s, _HEAR_OUT_S)
        try:
            while self._unanswered and not self.broken:
                if self._pgconn.pipeline_status == _ALONE:
                    while self._next(give_up_at) is not None:
                        pass
                    break
                # One None stands between two results; two in a row mean that no more has come yet.
                results = (self._next(give_up_at), self._next(give_up_at))
                if any(result is not None and result.status == _SYNC for result in results):
                    break
                if results == (None, None):
                    self._wait(give_up_at)
                    self._pgconn.consume_input()
        except (Failure, psycopg.Error):
            pass
        finally:
            self.close()

    def _next(self, give_up_at: float) -> Any:
        pgconn = self._pgconn
        while pgconn.is_busy():
            self._wait(give_up_at)
            pgconn.consume_input()
        return pgconn.get_result()

    def _more(self) -> bool:
        """Whether the end of one result is not the end of all: several requests are on their way."""
        return self._pgconn.pipeline_status != _ALONE and self._pgconn.status != _LOST

    def _check(self, results: list[Any]) -> None:
        if not results:
            raise self._break("no answer")
        for result in results:
            if result.status not in _OK:
                raise self._refusal(result)

    def _recognise(self, echo: Any, expected: bytes | None) -> None:
        if echo.status != _ROWS or echo.ntuples != 1 or echo.get_value(0, 0) != expected:
            raise self._break("the answer is to another question")

    def _refuse_unreplicated(self) -> None:
        """Failure if somebody ended the server's wait for its standby: a failover would lose that commit."""
        if self._unreplicated:
            raise self._break("the server was told not to wait for its standby")

    def _refusal(self, result: Any) -> Failure:
        code = (result.error_field(_SQLSTATE) or b"").decode()
        text = (result.error_field(_MESSAGE) or result.error_message or b"").decode(errors="replace")
        lost = self._pgconn.status == pq.ConnStatus.BAD
        if lost:
            self.close()
        return Failure(_one_line(text), code, lost=lost)

    def _break(self, text: str) -> Failure:
        self.close()
        return Failure(_one_line(text), lost=True)

    # --- waiting ---------------------------------------------------------------------------------

    def _flush(self, give_up_at: float) -> None:
        while self._pgconn.flush():
            # Answers have to be read meanwhile, or both sides wait for each other.
            ready = _ready(self._pgconn.socket, _READABLE | _WRITABLE, give_up_at)
            if not ready:
                raise self._late()
            if ready & _READABLE:
                self._pgconn.consume_input()

    def _wait(self, give_up_at: float) -> None:
        left_s = give_up_at - SYSTEM.monotonic()
        if left_s <= 0 or not self._poll.poll(left_s * 1000):
            raise self._late()

    def _late(self) -> Failure:
        self.close()
        return Failure(f"silent for {self.timeout_s:g} s", late=True)

    # --- notifications ---------------------------------------------------------------------------

    @property
    def socket(self) -> int:
        return int(self._pgconn.socket)

    def notifications(self) -> list[str]:
        """What was sent on the channels that this connection listens to, as far as it has arrived."""
        try:
            self._pgconn.consume_input()
        except psycopg.Error as error:
            raise self._break(str(error)) from None
        payloads = []
        while (notify := self._pgconn.notifies()) is not None:
            payloads.append(notify.extra.decode(errors="replace"))
        return payloads

    # --- around ----------------------------------------------------------------------------------

    def statement_ms(self) -> bytes:
        """How long the server lets a statement take: less than we wait, so that it can say what is wrong."""
        return str(max(1, int(self.timeout_s * _SERVERS_SHARE * 1000))).encode()

    @property
    def pgconn(self) -> pq.abc.PGconn:
        """For the driver's own connection around it."""
        return self._pgconn

    @property
    def server_version(self) -> int:
        return int(self._pgconn.server_version)

    @property
    def in_transaction(self) -> bool:
        """Whether one is open on it in which nothing has failed."""
        return not self.broken and self._pgconn.transaction_status == pq.TransactionStatus.INTRANS

    @property
    def idle(self) -> bool:
        """Whether no transaction is open on it."""
        return not self.broken and self._pgconn.transaction_status == pq.TransactionStatus.IDLE

    def close(self) -> None:
        self.broken = True
        self._pgconn.finish()


def _noting(dropped: list[bool], unreplicated: list[bool]) -> Callable[[Any], None]:
    """Takes two kinds of notices.

    Libpq's own have no code: it dropped what it read while nothing was under way. The server's warning that a
    commit did not wait for the standby comes with what looks like any other answer.
    """

    def take(notice: Any) -> None:
        if not notice.error_field(_SQLSTATE):
            dropped.append(True)
        elif notice.error_field(_SAID_BY) == _WAITS_FOR_STANDBY:
            unreplicated.append(True)

    return take


def _rows(result: Any, readers: Sequence[Callable[[bytes], Any]]) -> list[Row]:
    get = result.get_value
    columns = [*enumerate(readers)]
    return [
        tuple(
            [None if (cell := get(row, column)) is None else read(cell) for column, read in columns],
        )
        for row in range(result.ntuples)
    ]


def _ready(socket: int, events: int, give_up_at: float) -> int:
    poll = select.poll()
    poll.register(socket, events)
    left_s = give_up_at - SYSTEM.monotonic()
    ready = poll.poll(left_s * 1000) if left_s > 0 else []
    return ready[0][1] if ready else 0


def _wait(socket: int, events: int, give_up_at: float) -> None:
    if not _ready(socket, events, give_up_at):
        raise Failure("no connection in time", lost=True, late=True)


def _one_line(text: str | bytes) -> str:
    words = text.decode(errors="replace") if isinstance(text, bytes) else text
    return " ".join(words.split())
