"""The bus on NATS JetStream.

One stream keeps every message; JetStream drops what carries a `Nats-Msg-Id` that it has seen within its
duplicate window. Messages that wake somebody go to a plain subscription, so each process hears all of them.
Consumers are durable and pull.

A lost connection is made anew here rather than by the client library: its buffer would take messages that
nobody acknowledges, and here each connection begins with a look at the stream, which may have vanished.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import TypeVar

from nats import errors as trouble
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js import errors as refusals
from nats.js.api import AckPolicy, ConsumerConfig

from semel.errors import OpenError
from semel.flow.bus import subjects
from semel.flow.bus.base import JOB_READY, RUN_ENDED, Bus, BusUnavailable
from semel.flow.bus.settings import NatsSettings
from semel.flow.bus.stream import agree
from semel.kernel.clock import Clock
from semel.questions.job import Message
from semel.stores.document_bytes import to_bytes

log = logging.getLogger("semel.flow.bus")

# A server on the same continent answers in a tenth of this, its fsync included.
_ANSWER_S = 5.0

# How long `start` waits for a server that is not there: then the store is polled until it comes.
_START_S = 3.0

# Between two attempts to connect, on average.
_PAUSE_S = 0.5

# A half-dead connection is noticed after three of these.
_PING_S = 10

T = TypeVar("T")


class NatsConnection:
    """One connection, from its beginning to its end."""

    def __init__(self, client: Client, closed: asyncio.Event) -> None:
        self.client = client
        self.closed = closed
        self.stream: JetStreamContext = client.jetstream(timeout=_ANSWER_S)

    async def answer(self, request: Awaitable[T]) -> T:
        """The server's answer; BusUnavailable if there is no good one, at once if the connection ends."""
        answering, closed = asyncio.ensure_future(request), asyncio.ensure_future(self.closed.wait())
        try:
            await asyncio.wait((answering, closed), timeout=_ANSWER_S, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                raise TimeoutError
            return answering.result()
        except (trouble.Error, OSError, TimeoutError, ValueError) as wrong:
            raise BusUnavailable(f"NATS did not take it for good: {_kind(wrong)}.") from wrong
        finally:
            answering.cancel()
            closed.cancel()


class NatsBus(Bus):
    def __init__(self, settings: NatsSettings, clock: Clock) -> None:
        super().__init__(clock)
        self.settings = settings
        self._link: NatsConnection | None = None
        self._doubtful = False  # the last message was not acknowledged
        self._silent = False  # what is wrong has been logged
        self._staying: asyncio.Task[None] | None = None

    @property
    def healthy(self) -> bool:
        return self._link is not None and not self._doubtful

    async def start(self) -> None:
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._staying = asyncio.ensure_future(self._stay(first))
        if await self.clock.await_future(first, _START_S):
            try:
                first.result()
            except OpenError:
                await self.stop()
                raise
        else:
            # The client library goes on trying by itself and says nothing.
            self._tell(f"{self.settings.shown} cannot be reached")

    async def stop(self) -> None:
        staying, self._staying = self._staying, None
        if staying is not None:
            staying.cancel()
            await asyncio.gather(staying, return_exceptions=True)

    # --- the connection ---------------------------------------------------------------------------

    async def _stay(self, first: asyncio.Future[None]) -> None:
        """Connected, whenever there is somebody to connect to."""
        while True:
            try:
                await self._connected(first)
            except OpenError as wrong:
                self._tell(wrong.message)
                if not first.done():
                    first.set_exception(wrong)
            except (trouble.Error, OSError, TimeoutError) as wrong:
                self._tell(f"{self.settings.shown} cannot be used: {_kind(wrong)}")
            await self.clock.asleep(_PAUSE_S * (0.5 + self.clock.random()))

    async def _connected(self, first: asyncio.Future[None]) -> None:
        """From the beginning of a connection to its end."""
        link = await self._connect()
        try:
            await self._prepare(link)
            if self._silent:
                log.warning("%s is connected", self.settings.shown)
            self._link, self._doubtful, self._silent = link, False, False
            if not first.done():
                first.set_result(None)
            await link.closed.wait()
            self._tell(f"{self.settings.shown}: the connection was lost")
        finally:
            self._link = None
            await _close(link)

    async def _connect(self) -> NatsConnection:
        settings, closed = self.settings, asyncio.Event()

        async def ended() -> None:
            closed.set()

        async def failed(wrong: Exception) -> None:
            log.debug("%s: %s", settings.shown, type(wrong).__name__)

        link = NatsConnection(Client(), closed)
        try:
            await link.client.connect(
                servers=list(settings.servers),
                user=settings.user,
                password=settings.password,
                token=settings.token,
                name="semel",
                allow_reconnect=False,
                connect_timeout=2,
                ping_interval=_PING_S,
                closed_cb=ended,
                error_cb=failed,
            )
        except (trouble.Error, OSError, TimeoutError) as wrong:
            await _close(link)  # it may have come half way
            if "authorization" in str(wrong).lower():
                raise OpenError(f"{settings.shown} does not take these credentials.") from None
            raise
        return link

    async def _prepare(self, link: NatsConnection) -> None:
        """The stream is there as it should be, and messages that wake workers and waiters arrive."""
        for type_ in sorted({*JOB_READY, RUN_ENDED}):
            subject = subjects.subjects_about(self.settings.stream, type_)
            await link.client.subscribe(subject, cb=self._heard)
        # A server does as it is told in turn: once it has answered this, it knows the subscriptions. The
        # client's own `flush` would not tell, as its ping overtakes what waits to be sent.
        await agree(link.stream, self.settings)

    async def _heard(self, arrived: Msg) -> None:
        message = subjects.message_in(self.settings.stream, arrived.subject, arrived.data)
        if message is not None:
            self._wake(message)

    def _tell(self, what: str) -> None:
        """Once for each outage, not at each attempt."""
        if not self._silent:
            log.warning("%s; what waits looks into the store every second", what)
        self._silent = True

    # --- messages ---------------------------------------------------------------------------------

    def link(self) -> NatsConnection:
        """The present connection; BusUnavailable if there is none."""
        if self._link is None:
            raise BusUnavailable(f"{self.settings.shown} is not connected.")
        return self._link

    async def publish(self, message: Message) -> None:
        link, prefix = self.link(), self.settings.stream
        publishing = link.stream.publish(
            subjects.subject_of(prefix, message),
            to_bytes(message),
            stream=prefix,
            headers={"Nats-Msg-Id": message.id},
        )
        try:
            await link.answer(publishing)
        except BusUnavailable as wrong:
            self._doubtful = True
            if isinstance(wrong.__cause__, TimeoutError | refusals.NoStreamResponseError):
                # Perhaps there is no stream any more: the next connection begins with a look at it.
                link.closed.set()
            raise
        self._doubtful = False

    async def subscribe(self, name: str, about: str = "", *, ack_wait_s: float = 60.0) -> NatsSubscription:
        config = ConsumerConfig(
            durable_name=subjects.word(name),
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ack_wait_s,
            # Without a limit of JetStream's own: beyond it a message would be passed over in silence.
            max_deliver=-1,
            filter_subject=subjects.subjects_about(self.settings.stream, about),
        )
        return NatsSubscription(self, config)


class NatsSubscription:
    """A durable pull consumer; it is made when it is first used, and anew if the server has lost it."""

    def __init__(self, bus: NatsBus, config: ConsumerConfig) -> None:
        self._bus = bus
        self._config = config
        self._bound: tuple[NatsConnection, JetStreamContext.PullSubscription] | None = None

    async def next(self, seconds: float) -> NatsDelivery | None:
        pull = await self._pull()
        try:
            (arrived,) = await pull.fetch(1, timeout=seconds)
        except TimeoutError:
            return None
        except trouble.Error as wrong:
            self._bound = None
            raise BusUnavailable(f"The consumer was not answered: {_kind(wrong)}.") from wrong
        message = subjects.message_in(self._bus.settings.stream, arrived.subject, arrived.data)
        if message is None:
            log.warning("%s holds something that is no message; it is passed over", self._bus.settings.stream)
            await arrived.term()
            return None
        return NatsDelivery(message, arrived)

    async def _pull(self) -> JetStreamContext.PullSubscription:
        link, stream = self._bus.link(), self._bus.settings.stream
        if self._bound is None or self._bound[0] is not link:
            await link.answer(link.stream.add_consumer(stream, self._config))
            name = self._config.durable_name
            self._bound = link, await link.answer(link.stream.pull_subscribe_bind(name, stream=stream))
        return self._bound[1]


class NatsDelivery:
    def __init__(self, message: Message, arrived: Msg) -> None:
        self.message = message
        self.count = arrived.metadata.num_delivered or 1
        self._arrived = arrived

    async def ack(self) -> None:
        await _try_send(self._arrived.ack())

    async def again(self, seconds: float) -> None:
        await _try_send(self._arrived.nak(delay=seconds))

    async def keep(self) -> None:
        await _try_send(self._arrived.in_progress())


async def _try_send(sending: Awaitable[None]) -> None:
    """Sent, if there is a connection; else the server delivers again, and the inbox knows the message."""
    try:
        await sending
    except (trouble.Error, OSError):
        pass


async def _close(link: NatsConnection) -> None:
    try:
        async with asyncio.timeout(_ANSWER_S):
            await link.client.close()
    except (trouble.Error, OSError, TimeoutError):
        pass


def _kind(wrong: BaseException) -> str:
    """What went wrong, without a word that a server or an address could have put into it."""
    return getattr(wrong, "description", None) or type(wrong).__name__
