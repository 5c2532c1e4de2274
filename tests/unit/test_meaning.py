"""What an exception of a tool says about its effect."""

import asyncio
import errno
import http.client
import socket
import ssl
import urllib.error

import pytest

from semel.contract.exception_meaning import Meaning, meaning
from semel.errors import (
    EffectFailed,
    InFlight,
    KeyReused,
    OutcomeUnknown,
    OwnershipLost,
    PartialSuccess,
    StoreUnavailable,
)


def named(module: str, name: str, *bases: type[BaseException]) -> BaseException:
    """An exception of a client or framework that is not installed here."""
    kind = type(name, bases or (Exception,), {"__module__": module})
    error: BaseException = kind()
    return error


def answered(status: int, error: BaseException | None = None) -> BaseException:
    """A client's exception that carries the answer of the server."""
    error = error or named("httpx", "HTTPStatusError")
    error.response = type("Response", (), {"status_code": status})()  # type: ignore[attr-defined]
    return error


OPEN = [
    TimeoutError(),
    ConnectionError(),
    ConnectionResetError(),
    ConnectionAbortedError(),
    ConnectionRefusedError(),
    BrokenPipeError(),
    socket.gaierror(),
    ssl.SSLError(),
    urllib.error.URLError("gone"),
    http.client.RemoteDisconnected("gone"),
    http.client.IncompleteRead(b""),
    OSError(errno.EHOSTUNREACH, "no route"),
    OSError(errno.ENETUNREACH, "no net"),
    named("httpx", "ReadTimeout", type("TransportError", (Exception,), {"__module__": "httpx"})),
    named("requests.exceptions", "ConnectionError", OSError),
    named(
        "requests.exceptions",
        "ReadTimeout",
        type("Timeout", (OSError,), {"__module__": "requests.exceptions"}),
    ),
    named("aiohttp.client_exceptions", "ClientConnectionError"),
    named(
        "urllib3.exceptions",
        "ProtocolError",
        type("HTTPError", (Exception,), {"__module__": "urllib3.exceptions"}),
    ),
    named("grpc", "RpcError"),
    named("redis.exceptions", "ConnectionError"),
    named("psycopg", "OperationalError"),
    named("stripe._error", "APIConnectionError"),
    named("botocore.exceptions", "HTTPClientError"),
    named("smtplib", "SMTPServerDisconnected"),
    named("langgraph.errors", "GraphInterrupt"),
    named("pydantic_ai.exceptions", "CallDeferred"),
    named("celery.exceptions", "Retry"),
    named("temporalio.exceptions", "CancelledError"),
    asyncio.CancelledError(),
    SystemExit(),
    KeyboardInterrupt(),
    GeneratorExit(),
    BaseExceptionGroup("several", [KeyboardInterrupt()]),
    ExceptionGroup("several", [LookupError(), TimeoutError()]),
    ExceptionGroup("several", [ExceptionGroup("inner", [ConnectionResetError()])]),
    answered(408),
    answered(500),
    answered(502),
    answered(503),
    answered(504),
    InFlight(),
    StoreUnavailable(),
    OutcomeUnknown(),
    OwnershipLost(),
]

FAILED = [
    LookupError(),
    ValueError(),
    AssertionError(),
    FileNotFoundError(),
    PermissionError(),
    OSError(errno.ENOSPC, "full"),
    answered(400),
    answered(402),
    answered(404),
    answered(409),
    answered(422),
    KeyReused(),
    EffectFailed(),
    ExceptionGroup("several", [LookupError(), ValueError()]),
    named("mine", "TransportError"),
    named("httpxy", "TransportError"),
]


@pytest.mark.parametrize("error", OPEN, ids=lambda error: type(error).__name__)
def test_nobody_knows_after_a_timeout_a_broken_connection_or_an_interruption(error):
    assert meaning(error, (), ()) is Meaning.UNKNOWN


@pytest.mark.parametrize("error", FAILED, ids=lambda error: type(error).__name__)
def test_an_answer_or_an_error_of_the_tool_itself_is_a_failure(error):
    assert meaning(error, (), ()) is Meaning.FAILED


@pytest.mark.parametrize("error", [TimeoutError(), LookupError(), answered(503)])
def test_what_is_declared_goes_before_what_is_known(error):
    assert meaning(error, (type(error),), ()) is Meaning.REFUSED
    assert meaning(error, (), (type(error),)) is Meaning.TRANSIENT
    assert meaning(error, (type(error),), (type(error),)) is Meaning.REFUSED


def test_partial_success_is_partial_whatever_is_declared():
    assert meaning(PartialSuccess(), (Exception,), (Exception,)) is Meaning.PARTIAL


def test_a_subclass_is_meant_with_its_base():
    assert meaning(KeyError(), (LookupError,), ()) is Meaning.REFUSED


def test_a_group_with_a_transient_member_is_open():
    assert meaning(ExceptionGroup("several", [LookupError()]), (), (LookupError,)) is Meaning.UNKNOWN
