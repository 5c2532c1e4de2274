"""What a bus does: takes messages for good, wakes waiting workers, delivers until acknowledged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from semel.errors import SemelError
from semel.flow.bus.subscriptions import Subscriptions
from semel.kernel.clock import Clock
from semel.questions.job import Message


class BusUnavailable(SemelError):
    """The bus did not take it for good; what the message is about is in the store all the same."""

    code = "BUS_UNAVAILABLE"
    retriable = True


class Delivery(Protocol):
    """One message at a consumer, until `ack` or `again`; a consumer that vanishes gets it again."""

    message: Message
    count: int  # 1 for the first time

    async def ack(self) -> None:
        """It is not delivered again."""

    async def again(self, seconds: float) -> None:
        """It is delivered again, not before so many seconds."""

    async def keep(self) -> None:
        """The consumer is still at it."""


class Subscription(Protocol):
    """What one consumer, by its name, has not yet acknowledged."""

    async def next(self, seconds: float) -> Delivery | None:
        """The next delivery; None if there is none for so long. BusUnavailable if nobody can tell."""


class Bus(ABC):
    """`start` it before use and `stop` it afterwards, on one event loop."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.subscriptions = Subscriptions(clock)
        self.run_ended: Callable[[str], None] = lambda _: None  # hears of which tenant

    @property
    @abstractmethod
    def healthy(self) -> bool:
        """Whether it would take a message now, as far as this process can tell."""

    @abstractmethod
    async def start(self) -> None:
        """It works, or will as soon as its server is there. OpenError for what waiting does not mend."""

    @abstractmethod
    async def stop(self) -> None: ...

    @abstractmethod
    def publish(self, message: Message) -> Awaitable[None]:
        """The bus has taken the message for good; BusUnavailable, within seconds, if that is not certain.

        semel.flow.outbox.TAKEN if there is nothing to wait for.
        """

    @abstractmethod
    async def subscribe(self, name: str, about: str = "", *, ack_wait_s: float = 60.0) -> Subscription:
        """What the consumer of this name has to handle: all, or types that are or begin with `about`."""

    async def wait(self, tenant: str, topics: Sequence[str], seconds: float) -> None:
        """Returns when a job of one of the topics can be leased, or when the time is up."""
        await self.subscriptions.wait(tenant, topics, seconds)

    def _wake(self, message: Message) -> None:
        if message.type == RUN_ENDED:
            self.run_ended(message.tenant)
        if message.topic is not None and message.type in JOB_READY:
            self.subscriptions.wake(message.tenant, message.topic)


# Types of messages after which a job can be leased.
JOB_READY = frozenset({"job.queued", "approval.approved"})

# The type of message after which a slot is free.
RUN_ENDED = "run.ended"


def is_about(type_: str, about: str) -> bool:
    return not about or type_ == about or type_.startswith(f"{about}.")
