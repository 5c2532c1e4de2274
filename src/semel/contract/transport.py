"""What the usual clients raise when nobody can know whether a request took effect.

One table, by package and class name, so that no client is imported for it. A class stands for its subclasses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Package: what it raises after a request may have arrived, though no usable answer did.
# A client whose exceptions derive from TimeoutError or ConnectionError needs no line for those.
OPEN: Mapping[str, tuple[str, ...]] = {
    "aiohttp": ("ClientConnectionError", "ClientPayloadError", "UploadAbortedError"),
    "aiokafka": ("KafkaConnectionError", "KafkaTimeoutError", "RequestTimedOutError"),
    "anthropic": ("APIConnectionError", "RetryableError"),
    "anyio": ("BrokenResourceError", "BrokenWorkerProcess", "ClosedResourceError", "EndOfStream"),
    "asyncio": ("IncompleteReadError",),
    "asyncpg": ("InterfaceError", "PostgresConnectionError"),
    "botocore": (
        "ConnectionError",
        "HTTPClientError",
        # An answer came, and what came of it was cut short or spoilt.
        "ChecksumError",
        "FlexibleChecksumError",
        "IncompleteReadError",
    ),
    "concurrent.futures": ("BrokenExecutor",),  # the process that did the work died
    "elastic_transport": ("TransportError",),
    "google.api_core": ("RetryError", "ResumableTransferError", "ServerError"),
    "google.auth": ("TransportError", "TimeoutError"),
    "grpc": ("RpcError", "FutureTimeoutError"),
    "h11": ("RemoteProtocolError",),
    "http": ("HTTPException",),
    "httpcore": ("NetworkError", "ProtocolError", "ProxyError", "TimeoutException"),
    "httpcore2": ("NetworkError", "ProtocolError", "ProxyError", "TimeoutException"),
    "httpx": ("TransportError", "DecodingError", "TooManyRedirects"),
    "httpx2": ("TransportError", "DecodingError", "TooManyRedirects"),
    "kafka": ("KafkaConnectionError", "KafkaTimeoutError", "RequestTimedOutError"),
    "nats": (
        "ConnectionClosedError",
        "ConnectionDrainingError",
        "ConnectionReconnectingError",
        "NoRespondersError",
        "NoServersError",
        "NoStreamResponseError",
        "OutboundBufferLimitError",
        "ProtocolError",
        "StaleConnectionError",
    ),
    "openai": ("APIConnectionError",),
    "paramiko": ("SSHException",),
    "pika": ("AMQPConnectionError",),
    "psycopg": ("OperationalError",),
    "psycopg2": ("OperationalError",),
    "pymongo": ("ConnectionFailure", "WTimeoutError", "WriteConcernError"),
    "pymysql": ("OperationalError", "InterfaceError"),
    "redis": ("ConnectionError", "TimeoutError"),
    "requests": (
        "ChunkedEncodingError",
        "ConnectionError",
        "ContentDecodingError",
        "RetryError",
        "Timeout",
        "TooManyRedirects",
    ),
    "smtplib": ("SMTPServerDisconnected",),
    "socket": ("gaierror",),
    "sqlalchemy": ("OperationalError", "InterfaceError"),
    "ssl": ("SSLError",),
    "stripe": ("APIConnectionError",),
    "subprocess": ("TimeoutExpired",),
    "tenacity": ("RetryError",),  # it keeps what was raised last to itself
    "urllib": ("URLError", "ContentTooShortError"),
    "urllib3": ("HTTPError",),
    "websockets": ("ConnectionClosed",),
}

# Control flow: the framework leaves the tool in the middle and means to come back.
CONTROL: Mapping[str, tuple[str, ...]] = {
    "airflow": ("AirflowRescheduleException", "TaskDeferred"),
    "billiard": ("SoftTimeLimitExceeded",),
    "celery": ("Ignore", "Retry", "SoftTimeLimitExceeded"),
    "langgraph": ("GraphBubbleUp", "GraphInterrupt", "NodeInterrupt"),
    "prefect": ("Pause", "PrefectSignal"),
    "pydantic_ai": ("ApprovalRequired", "CallDeferred"),
    "temporalio": ("CancelledError", "ContinueAsNewError"),
}

# Answers, not statuses, that say as little as a broken connection: JSON-RPC's "connection closed", "timed
# out", "internal error", and the time-out of earlier releases.
UNSURE_MCP_CODES = frozenset((-32000, -32001, -32603, 408))

# Clients that call the status of an HTTP answer `code`, which elsewhere means other things.
_STATUS_IS_CODE = ("google.api_core", "nats")

# 408 and 499: the server or a proxy gave up on us. 501 and 505 prove that it did not even begin.
_GIVEN_UP = frozenset((408, 499))
_NOT_BEGUN = frozenset((501, 505))


def leaves_open(error: Exception) -> bool:
    """Whether the request behind this exception of a client may have been carried out."""
    status = _status(error)
    if status is not None:
        return _unsure(status)
    if _is_of(error, "mcp"):
        return _mcp_code(error) in UNSURE_MCP_CODES
    return _stands_in(OPEN, error) or _stands_in(CONTROL, error)


def _unsure(status: int) -> bool:
    """Whether an answer with this status leaves open what happened.

    A server error often comes from whoever gave up waiting, after the work was done. And an exception with a
    success inside says that the answer could not be read, not that nothing happened.
    """
    return status in _GIVEN_UP or 200 <= status < 300 or (status >= 500 and status not in _NOT_BEGUN)


def _status(error: Exception) -> int | None:
    """The status of the HTTP answer that this exception carries, if it carries one."""
    response = _of(error, "response")
    candidates = [
        _of(response, "status_code"),
        _of(response, "status"),
        _status_of_aws(response),
        _of(error, "status_code"),
        _of(error, "status"),
        _of(error, "http_status"),
    ]
    if any(_is_of(error, package) for package in _STATUS_IS_CODE):
        candidates.append(_of(error, "code"))
    return next((int(status) for status in candidates if isinstance(status, int) and status), None)


def _status_of_aws(response: object) -> object:
    metadata = response.get("ResponseMetadata") if isinstance(response, Mapping) else None
    return metadata.get("HTTPStatusCode") if isinstance(metadata, Mapping) else None


def _mcp_code(error: Exception) -> object:
    inner = _of(error, "error")
    return _of(error if inner is None else inner, "code")


def _of(thing: object, name: str) -> Any:
    try:
        return getattr(thing, name, None)
    except Exception:  # of a property that has nothing to give
        return None


def _is_of(error: Exception, package: str) -> bool:
    return any(_belongs(kind, package) for kind in type(error).__mro__)


def _belongs(kind: type, package: str) -> bool:
    return kind.__module__ == package or kind.__module__.startswith(f"{package}.")


def _stands_in(table: Mapping[str, tuple[str, ...]], error: Exception) -> bool:
    return any(
        kind.__name__ in names and _belongs(kind, package)
        for kind in type(error).__mro__
        for package, names in table.items()
    )
