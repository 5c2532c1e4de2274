"""The bus: tells other processes that there is something to look at, in the store.

So a message that is lost or doubled does no harm.

base      what a bus does                  subscriptions  who waits for which message, in this process
local     within one process               nats           JetStream
subjects  messages as subjects of NATS     consumer       each message handled once, or put aside
settings  what a URL says about NATS       stream         the stream as it should be
"""

from __future__ import annotations

from semel.errors import OpenError
from semel.flow.bus.base import Bus
from semel.kernel.clock import SYSTEM, Clock
from semel.stores.urls import StoreUrl, hide_password, need


def open_bus(url: str, clock: Clock = SYSTEM) -> Bus:
    """The bus that the URL names, not yet started; OpenError, naming the fix, if there is none."""
    if url == "local":
        from semel.flow.bus.local import LocalBus

        return LocalBus(clock)
    if url.startswith(("nats://", "tls://")):
        need("nats", "nats")
        from semel.flow.bus.nats import NatsBus
        from semel.flow.bus.settings import read

        return NatsBus(read(StoreUrl(url)), clock)
    raise OpenError(
        f"{hide_password(url)!r} is not a bus. There are local and nats://host:4222. Nothing was opened."
    )
