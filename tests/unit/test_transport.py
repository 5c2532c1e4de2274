# mypy: disable-error-code="import-untyped, no-untyped-call"
"""What the usual clients raise, on their real classes: may the request have been carried out?"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pkgutil
import subprocess
import warnings
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from types import ModuleType

import aiohttp
import aiokafka.errors
import anthropic
import anyio
import asyncpg
import botocore.exceptions
import elastic_transport
import grpc
import httpcore
import httpx
import httpx2
import mcp.types
import nats.errors
import nats.js.errors
import openai
import paramiko
import pika.exceptions
import psycopg
import psycopg2
import pymongo.errors
import pymysql.err
import pytest
import redis.exceptions
import requests
import sqlalchemy.exc
import stripe
import tenacity
import urllib3.exceptions
from google.auth import exceptions as google_auth_errors
from mcp.shared.exceptions import MCPError

from semel.contract.exception_meaning import Meaning, meaning
from semel.contract.transport import OPEN

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about their own imports
    google_errors = importlib.import_module("google.api_core.exceptions")
    kafka_errors = importlib.import_module("kafka.errors")

REQUEST = httpx.Request("POST", "http://127.0.0.1/charges")
REQUEST_2 = httpx2.Request("POST", "http://127.0.0.1/charges")


def aws(status: int) -> Exception:
    metadata = {"HTTPStatusCode": status}
    return botocore.exceptions.ClientError({"Error": {}, "ResponseMetadata": metadata}, "PutItem")


def answer(status: int) -> httpx.Response:
    return httpx.Response(status, request=REQUEST)


def answer_2(status: int) -> httpx2.Response:
    return httpx2.Response(status, request=REQUEST_2)


def answered_by_requests(status: int) -> Exception:
    response = requests.Response()
    response.status_code = status
    return requests.HTTPError(response=response)


def gave_up() -> Exception:
    def fails() -> None:
        raise httpx.ReadTimeout("")

    try:
        tenacity.Retrying(stop=tenacity.stop_after_attempt(1))(fails)
    except tenacity.RetryError as error:
        return error
    raise AssertionError("tenacity did not give up")


MAY_HAVE_HAPPENED: dict[str, list[Callable[[], Exception]]] = {
    "aiohttp": [
        aiohttp.ClientConnectionError,
        aiohttp.ServerDisconnectedError,
        aiohttp.SocketTimeoutError,
        aiohttp.ClientPayloadError,
        lambda: aiohttp.ClientResponseError(None, (), status=502),  # type: ignore[arg-type]
        lambda: aiohttp.ContentTypeError(None, (), status=200),  # type: ignore[arg-type]
    ],
    "aiokafka": [aiokafka.errors.KafkaConnectionError, aiokafka.errors.KafkaTimeoutError],
    "anthropic": [
        lambda: anthropic.APIConnectionError(request=REQUEST_2),
        lambda: anthropic.APITimeoutError(REQUEST_2),
        lambda: anthropic.InternalServerError("", response=answer_2(500), body=None),
        lambda: anthropic.APIStatusError("", response=answer_2(529), body=None),
        lambda: anthropic.APIResponseValidationError(answer_2(200), None),
    ],
    "anyio": [anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream],
    "asyncio": [lambda: asyncio.IncompleteReadError(b"", 8), TimeoutError],
    "asyncpg": [lambda: asyncpg.InterfaceError(""), asyncpg.ConnectionDoesNotExistError],
    "botocore": [
        lambda: botocore.exceptions.IncompleteReadError(actual_bytes=1, expected_bytes=2),
        lambda: botocore.exceptions.ReadTimeoutError(endpoint_url=""),
        lambda: botocore.exceptions.ConnectionClosedError(endpoint_url=""),
        lambda: botocore.exceptions.EndpointConnectionError(endpoint_url=""),
        lambda: aws(500),
        lambda: aws(503),
    ],
    "concurrent.futures": [BrokenProcessPool],
    "elastic_transport": [lambda: elastic_transport.ConnectionTimeout("")],
    "google.api_core": [
        lambda: google_errors.ServiceUnavailable(""),
        lambda: google_errors.InternalServerError(""),
        lambda: google_errors.Unknown(""),
        lambda: google_errors.BadGateway(""),
        lambda: google_errors.DeadlineExceeded(""),
        lambda: google_errors.Cancelled(""),
        lambda: google_errors.RetryError("", None),
    ],
    "google.auth": [google_auth_errors.TransportError, google_auth_errors.TimeoutError],
    "grpc": [grpc.RpcError, grpc.FutureTimeoutError],
    "httpcore": [httpcore.ReadTimeout, httpcore.ReadError, httpcore.RemoteProtocolError],
    "httpx": [
        lambda: httpx.ReadTimeout(""),
        lambda: httpx.ConnectError(""),
        lambda: httpx.RemoteProtocolError(""),
        lambda: httpx.DecodingError(""),
        lambda: httpx.HTTPStatusError("", request=REQUEST, response=answer(504)),
    ],
    "httpx2": [
        lambda: httpx2.ReadTimeout(""),
        lambda: httpx2.ConnectTimeout(""),
        lambda: httpx2.PoolTimeout(""),
        lambda: httpx2.WriteError(""),
        lambda: httpx2.CloseError(""),
        lambda: httpx2.RemoteProtocolError(""),
        lambda: httpx2.ProxyError(""),
        lambda: httpx2.DecodingError(""),
        lambda: httpx2.HTTPStatusError("", request=REQUEST_2, response=answer_2(503)),
    ],
    "kafka": [kafka_errors.KafkaConnectionError, kafka_errors.KafkaTimeoutError],
    "mcp": [
        lambda: MCPError(mcp.types.CONNECTION_CLOSED, ""),
        lambda: MCPError(mcp.types.REQUEST_TIMEOUT, ""),
        lambda: MCPError(mcp.types.INTERNAL_ERROR, ""),
    ],
    "nats": [
        nats.errors.TimeoutError,
        nats.errors.ConnectionClosedError,
        nats.errors.ConnectionDrainingError,
        nats.errors.ConnectionReconnectingError,
        nats.errors.UnexpectedEOF,
        nats.errors.StaleConnectionError,
        nats.errors.NoServersError,
        nats.errors.NoRespondersError,
        nats.js.errors.NoStreamResponseError,
        lambda: nats.js.errors.ServiceUnavailableError(code=503),
        lambda: nats.js.errors.ServerError(code=500),
    ],
    "openai": [
        lambda: openai.APIConnectionError(request=REQUEST_2),
        lambda: openai.APITimeoutError(REQUEST_2),
        lambda: openai.InternalServerError("", response=answer_2(500), body=None),
    ],
    "paramiko": [paramiko.SSHException],
    "pika": [pika.exceptions.StreamLostError],
    "psycopg": [psycopg.OperationalError],
    "psycopg2": [psycopg2.OperationalError],
    "pymongo": [lambda: pymongo.errors.AutoReconnect(""), lambda: pymongo.errors.NetworkTimeout("")],
    "pymysql": [pymysql.err.OperationalError],
    "redis": [redis.exceptions.ConnectionError, redis.exceptions.TimeoutError],
    "requests": [
        requests.ConnectionError,
        requests.ReadTimeout,
        requests.exceptions.ChunkedEncodingError,
        requests.exceptions.RetryError,
        lambda: answered_by_requests(500),
        lambda: answered_by_requests(524),
    ],
    "sqlalchemy": [lambda: sqlalchemy.exc.OperationalError("", {}, Exception())],
    "stripe": [
        lambda: stripe.APIConnectionError(""),
        lambda: stripe.APIError("", http_status=500),
        lambda: stripe.APIError("", http_status=503),
    ],
    "subprocess": [lambda: subprocess.TimeoutExpired("pay", 1)],
    "tenacity": [gave_up],
    "urllib3": [lambda: urllib3.exceptions.ProtocolError("")],
}

DID_NOT: dict[str, list[Callable[[], Exception]]] = {
    "anthropic": [lambda: anthropic.BadRequestError("", response=answer_2(400), body=None)],
    "botocore": [lambda: aws(400), lambda: aws(403), botocore.exceptions.NoCredentialsError],
    "google.api_core": [
        lambda: google_errors.InvalidArgument(""),
        lambda: google_errors.NotFound(""),
        lambda: google_errors.MethodNotImplemented(""),
    ],
    "httpx": [lambda: httpx.HTTPStatusError("", request=REQUEST, response=answer(422))],
    "httpx2": [
        lambda: httpx2.InvalidURL(""),
        lambda: httpx2.HTTPStatusError("", request=REQUEST_2, response=answer_2(404)),
    ],
    "mcp": [lambda: MCPError(mcp.types.INVALID_PARAMS, ""), lambda: MCPError(mcp.types.METHOD_NOT_FOUND, "")],
    "nats": [nats.errors.MaxPayloadError, lambda: nats.js.errors.BadRequestError(code=400)],
    "requests": [lambda: answered_by_requests(402), lambda: answered_by_requests(501)],
    "stripe": [
        lambda: stripe.CardError("", "", "", http_status=402),
        lambda: stripe.InvalidRequestError("", "", http_status=400),
    ],
}


@pytest.mark.parametrize("client", MAY_HAVE_HAPPENED)
def test_an_error_that_leaves_open_whether_it_happened_is_no_failure(client: str) -> None:
    errors = [make() for make in MAY_HAVE_HAPPENED[client]]
    judged_as_failed = [error for error in errors if meaning(error, (), ()) is not Meaning.UNKNOWN]
    assert judged_as_failed == []


@pytest.mark.parametrize("client", MAY_HAVE_HAPPENED)
def test_a_group_that_holds_one_leaves_the_whole_open(client: str) -> None:
    for make in MAY_HAVE_HAPPENED[client]:
        group = ExceptionGroup("several", [ValueError(), ExceptionGroup("inner", [make()])])
        assert meaning(group, (), ()) is Meaning.UNKNOWN


@pytest.mark.parametrize("client", DID_NOT)
def test_an_answer_that_says_no_is_a_failure(client: str) -> None:
    errors = [make() for make in DID_NOT[client]]
    assert [error for error in errors if meaning(error, (), ()) is not Meaning.FAILED] == []


def classes_of(package: str) -> set[str]:
    """Names of the exceptions that the package defines, wherever they stand in it."""
    return {kind.__name__ for module in modules_of(package) for kind in exceptions_of(module)}


def modules_of(package: str) -> list[ModuleType]:
    top = importlib.import_module(package)
    places = getattr(top, "__path__", [])
    names = [place.name for place in pkgutil.iter_modules(places) if not place.name.startswith("__main")]
    likely = [
        name for name in names if any(word in name for word in ("err", "exc", "exceptions", "proc", "js"))
    ]
    return [top, *(importlib.import_module(f"{package}.{name}") for name in likely)]


def exceptions_of(module: ModuleType) -> list[type[BaseException]]:
    kinds = [kind for kind in list(vars(module).values()) if inspect.isclass(kind)]
    return [kind for kind in kinds if issubclass(kind, BaseException)]


# Where a name is not found by walking the package, because it stands in a module with another kind of name.
ELSEWHERE = {
    "concurrent.futures": {"BrokenExecutor"},
    "http": {"HTTPException"},
    "nats": {"NoStreamResponseError"},
    "urllib": {"URLError", "ContentTooShortError"},
}


@pytest.mark.parametrize("package", OPEN)
def test_every_class_of_the_table_exists(package: str) -> None:
    assert set(OPEN[package]) - classes_of(package) - ELSEWHERE.get(package, set()) == set()
