"""A gateway that listens: sockets, signals, and a stop that loses nothing."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import uvicorn

from semel.errors import OpenError
from semel.gateway.app import Beside, GatewayApp, build
from semel.gateway.bounded_http import BoundedHttp
from semel.gateway.services import Services
from semel.gateway.settings import GatewaySettings
from semel.stores.base import Store

# Requests in flight get this long to end. The longest wait ends early, so what takes longer hangs.
_GRACE_S = 30

# An idle connection is kept for longer than clients and balancers keep theirs (5 s, 60 s): so they close it,
# and no request is sent into a connection that is being closed.
_IDLE_S = 75

# Connections that may wait to be accepted: a burst of a thousand clients is not turned away.
_BACKLOG = 2_048

# What a process that could not begin to serve exits with.
_FAILED = 4

# Young objects before the collector looks at them: more than two hundred requests have under way at once, and
# requests leave no cycles behind. By default it looks at each of 700, which is at every tenth request.
_YOUNG_MAX = 10_000

# How long an embedded gateway may take to begin, on a machine that is busy with tests.
_BEGIN_S = 60


class GatewayServer(uvicorn.Server):
    """Stops in order: no new connections, waits end, answers leave, background work ends, store closes."""

    def __init__(self, app: GatewayApp, began: Callable[[], None]) -> None:
        super().__init__(_config(app))
        self._services = app.services
        self._began = began

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._began()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._services.stopping.set()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM ask for a stop, and are answered by it: the process does not die of them too."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _STOPS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


_STOPS = (signal.SIGINT, signal.SIGTERM)


def _config(app: GatewayApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=BoundedHttp,
        lifespan="on",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        # Nobody in front of the gateway is believed about who asks: credentials say it.
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_IDLE_S,
        timeout_graceful_shutdown=_GRACE_S,
    )


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; OpenError, naming the fix, if there can be none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family, backlog=_BACKLOG)
    except OSError as wrong:
        raise OpenError(
            f"Nothing can listen on {host}, port {port}: {_reason(wrong)}. Nothing was started.",
            corrective_action="Choose another --port (0: any that is free) or --host.",
        ) from None


def _reason(wrong: OSError) -> str:
    """In the system's own words: `strerror` repeats the address."""
    return os.strerror(wrong.errno) if wrong.errno else str(wrong)


def address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(
    settings: GatewaySettings,
    store: Store,
    began: Callable[[str, Services], None],
    beside: Beside | None = None,
    **parts: Any,
) -> None:
    """Serve until a signal asks for the stop; then everything has ended and the store is closed."""
    app = build(settings, store, beside=beside, **parts)
    listener = listen(settings.host, settings.port)
    where, services = address(listener), app.services

    def begun() -> None:
        _leave_alone_what_stays()
        began(where, services)

    before = gc.get_threshold()
    try:
        GatewayServer(app, begun).run(sockets=[listener])
    except SystemExit:
        raise app.failure or SystemExit(_FAILED) from None
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _leave_alone_what_stays() -> None:
    """The collector does not look at what is here now any more, and less often at the rest."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_MAX, *gc.get_threshold()[1:])


@contextmanager
def embedded(settings: GatewaySettings, store: Store, **parts: Any) -> Iterator[tuple[str, Services]]:
    """A gateway on a thread of this process, on a free port of the loopback: its address and its parts."""
    app = build(settings, store, **parts)
    listener = listen("127.0.0.1", 0)
    began = threading.Event()
    server = GatewayServer(app, began.set)
    thread = threading.Thread(target=server.run, args=([listener],), name="semel-gateway", daemon=True)
    thread.start()
    try:
        if not began.wait(_BEGIN_S):
            raise OpenError("The embedded gateway did not begin to serve.")
        yield address(listener), app.services
    finally:
        server.should_exit = True
        thread.join()


class LineFormatter(logging.Formatter):
    """One JSON object per line, whatever was logged."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        if message.startswith("{"):
            return message
        return orjson.dumps({"event": message, "level": record.levelname, "logger": record.name}).decode()


def log_to_stderr() -> None:
    """Requests, refusals and what the flow notes go to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter())
    for name in ("semel", "uvicorn"):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.propagate = False
    logging.getLogger("semel").setLevel(logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
