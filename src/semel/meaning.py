"""What an exception from a tool says about its effect."""

from __future__ import annotations

import errno
from enum import Enum

from semel.errors import CallError, PartialSuccess

# Classes of clients and frameworks, by name: none of them is imported for this.
# Transport: the request may have arrived although no answer did.
_TRANSPORT = frozenset(
    (
        "aiohttp.ClientConnectionError",
        "aiohttp.ClientPayloadError",
        "aiohttp.ServerTimeoutError",
        "anyio.BrokenResourceError",
        "anyio.EndOfStream",
        "asyncpg.InterfaceError",
        "asyncpg.PostgresConnectionError",
        "botocore.ConnectionError",
        "botocore.HTTPClientError",
        "elastic_transport.TransportError",
        "google.DeadlineExceeded",
        "google.RetryError",
        "google.ServiceUnavailable",
        "grpc.AioRpcError",
        "grpc.RpcError",
        "h11.RemoteProtocolError",
        "http.HTTPException",
        "httpcore.NetworkError",
        "httpcore.ProtocolError",
        "httpcore.TimeoutException",
        "httpx.TransportError",
        "kafka.KafkaTimeoutError",
        "nats.NoRespondersError",
        "openai.APIConnectionError",
        "paramiko.SSHException",
        "pika.AMQPConnectionError",
        "psycopg.OperationalError",
        "psycopg2.OperationalError",
        "pymongo.AutoReconnect",
        "redis.ConnectionError",
        "redis.TimeoutError",
        "requests.ConnectionError",
        "requests.Timeout",
        "requests.ChunkedEncodingError",
        "smtplib.SMTPServerDisconnected",
        "socket.gaierror",
        "ssl.SSLError",
        "stripe.APIConnectionError",
        "urllib.URLError",
        "urllib3.HTTPError",
        "websockets.ConnectionClosed",
    )
)

# Control flow: the framework leaves the tool in the middle and means to come back.
_CONTROL = frozenset(
    (
        "airflow.AirflowRescheduleException",
        "airflow.TaskDeferred",
        "celery.Ignore",
        "celery.Retry",
        "celery.SoftTimeLimitExceeded",
        "billiard.SoftTimeLimitExceeded",
        "langgraph.GraphBubbleUp",
        "langgraph.GraphInterrupt",
        "langgraph.NodeInterrupt",
        "prefect.Pause",
        "prefect.PrefectSignal",
        "pydantic_ai.ApprovalRequired",
        "pydantic_ai.CallDeferred",
        "temporalio.CancelledError",
        "temporalio.ContinueAsNewError",
    )
)

_UNREACHED = frozenset(
    (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.ETIMEDOUT, errno.EPIPE)
)

# From a server or proxy that gave up waiting: the request may still have been carried out behind it.
_UNSURE_STATUS = frozenset((408, 500, 502, 503, 504))

# Answers of a contract inside the tool that leave open whether *its* effect took place.
_UNSURE_CODES = frozenset(("OUTCOME_UNKNOWN", "OWNERSHIP_LOST"))


class Meaning(Enum):
    PARTIAL = "a part was done"
    REFUSED = "nothing happened"
    TRANSIENT = "the downstream did not answer, and may be asked again with the same key"
    UNKNOWN = "nobody knows"
    FAILED = "it failed"


def meaning(
    error: BaseException,
    refused: tuple[type[BaseException], ...],
    transient: tuple[type[BaseException], ...],
) -> Meaning:
    """What the contract makes of it. What is declared goes before what is known."""
    if isinstance(error, PartialSuccess):
        return Meaning.PARTIAL
    if isinstance(error, refused):
        return Meaning.REFUSED
    if isinstance(error, transient):
        return Meaning.TRANSIENT
    if not isinstance(error, Exception) or _leaves_open(error):
        return Meaning.UNKNOWN
    if isinstance(error, ExceptionGroup):
        # A task group says at once what went wrong in several places; one that is open leaves the whole open.
        meant = {meaning(member, refused, transient) for member in error.exceptions}
        return Meaning.UNKNOWN if meant & {Meaning.UNKNOWN, Meaning.TRANSIENT} else Meaning.FAILED
    return Meaning.FAILED


def _leaves_open(error: Exception) -> bool:
    if isinstance(error, CallError):
        return error.retriable or error.code in _UNSURE_CODES
    if isinstance(error, TimeoutError | ConnectionError) or _status(error) in _UNSURE_STATUS:
        return True
    if isinstance(error, OSError) and error.errno in _UNREACHED:
        return True
    return _known_by_name(type(error)) and _status(error) is None


def _status(error: Exception) -> int | None:
    """The status of the HTTP answer that this exception carries, if it carries one."""
    response = getattr(error, "response", None)
    for holder, name in (
        (response, "status_code"),
        (response, "status"),
        (error, "status_code"),
        (error, "status"),
    ):
        status = getattr(holder, name, None)
        if isinstance(status, int):
            return int(status)
    return None


def _known_by_name(kind: type[BaseException]) -> bool:
    names = {f"{base.__module__.partition('.')[0]}.{base.__qualname__}" for base in kind.__mro__}
    return not names.isdisjoint(_TRANSPORT | _CONTROL)
