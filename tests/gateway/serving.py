"""`semel serve` as a real process on a free port of the loopback; and one that ends or freezes at a point.

Run as a program, this is `semel serve` with a fate: `python -m tests.gateway.serving "after lock" KILL serve`
gets the signal when its first request reaches that point.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.patience import PATIENCE_S as PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]

_PAUSE_S = 0.01

# Loading the certificates of the world takes longer than all else that a client does; here they have no use.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

_SERVING = re.compile(r"^Serving .* on (http://\S+)$", re.MULTILINE)


def until(ask: Callable[[], Any], what: str) -> Any:
    """The first answer that is true; fails once patience is over."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not (answer := ask()):
        assert time.monotonic() < give_up_at, f"waited in vain until {what}"
        time.sleep(_PAUSE_S)
    return answer


class Gateway:
    """A process that serves; stopped, frozen and killed by its own id."""

    def __init__(
        self,
        store: str,
        *flags: str,
        dev: bool = True,
        log: str = "problems",
        fate: tuple[str, str] | None = None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="semel-gateway-")
        self._clients = ExitStack()
        self.output = Path(self._folder.name) / "output"
        program = ["tests.gateway.serving", *fate] if fate else ["semel"]
        words = ["serve", f"--url={store}", "--port=0", *(["--dev"] if dev else []), *flags]
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *program, *words],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=quiet_environment() | {"SEMEL_LOG": log},
            )
        self._url = ""

    @property
    def url(self) -> str:
        """Where it serves, once it does."""
        if not self._url:
            self._url = until(self._told, "the gateway serves")
        return self._url

    def _told(self) -> str:
        said = self.said()
        assert self._process.poll() is None, f"the gateway ended: {said}"
        found = _SERVING.search(said)
        return found[1] if found else ""

    def said(self) -> str:
        """All that it wrote to standard output and standard error."""
        return self.output.read_text(errors="replace")

    def client(self, **headers: str) -> httpx.Client:
        """A client that sends these headers; `_` in a name is `-`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        client = httpx.Client(base_url=self.url, headers=named, timeout=PATIENCE_S, verify=NO_TLS)
        return self._clients.enter_context(client)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def frozen(self) -> bool:
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def wait(self) -> int:
        """How it ended: an exit status, or minus the number of a signal."""
        return self._process.wait(PATIENCE_S)

    def stop(self) -> int:
        """Asked to, as an operator does."""
        self.send(signal.SIGTERM)
        return self.wait()

    def remove(self) -> None:
        self._clients.close()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(PATIENCE_S)
        self._folder.cleanup()


Gateways = Callable[..., Gateway]


@contextmanager
def gateways() -> Iterator[Gateways]:
    """Starts gateways; none of them is left afterwards."""
    with ExitStack() as stack:

        def start(store: str, *flags: str, **how: Any) -> Gateway:
            gateway = Gateway(store, *flags, **how)
            stack.callback(gateway.remove)
            return gateway

        yield start


class Park:
    """Gateways that tests of one module share, by store and flags, started when they are first needed."""

    def __init__(self, start: Gateways, folder: Path) -> None:
        self._start = start
        self._folder = folder
        self._stores: dict[str, str] = {}
        self._found: dict[tuple[str, ...], list[Gateway]] = {}

    def store(self, name: str) -> str:
        """The URL of the one store of this name."""
        from tests.faults.places import PLACES

        if name not in self._stores:
            (self._folder / name).mkdir()
            self._stores[name] = next(place for place in PLACES if place.name == name).url(
                self._folder / name
            )
        return self._stores[name]

    def one(self, name: str, *flags: str) -> Gateway:
        return self.some(1, name, *flags)[0]

    def some(self, number: int, name: str, *flags: str) -> list[Gateway]:
        """So many gateways on this store."""
        found = self._found.setdefault((name, *flags), [])
        while len(found) < number:
            found.append(self._start(self.store(name), *flags))
        return found[:number]


def quiet_environment() -> dict[str, str]:
    """Ours, without what would steer the command from outside."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")} | {
        "SEMEL_LOG": "problems",
        "COLUMNS": "1000",  # nothing that is told is broken into lines
    }


def semel(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "semel", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        env=quiet_environment() | environment,
        check=False,
    )


# --- asking -----------------------------------------------------------------------------------------


def persistent_start(client: httpx.Client, key: str, body: Any = None, name: str = "hello") -> httpx.Response:
    """The answer to a start after being told to come back (409, 503) as often as it takes."""

    def ask() -> httpx.Response | None:
        answer = client.post(
            f"/api/v1/workflows/{name}/runs", json=body or {}, headers={"Idempotency-Key": key}
        )
        if answer.status_code in (409, 503):
            assert answer.headers["retry-after"], answer.text
            return None
        return answer

    found: httpx.Response = until(ask, "a start is decided")
    return found


def run_ids(client: httpx.Client, **filters: str) -> list[str]:
    """All runs of the tenant, page by page."""
    found: list[str] = []
    query = {"limit": "200", **filters}
    while True:
        page = client.get("/api/v1/runs", params=query)
        assert page.status_code == 200, page.text
        found += [run["run_id"] for run in page.json()["items"]]
        if page.json()["next_cursor"] is None:
            return found
        query["cursor"] = page.json()["next_cursor"]


def complete(client: httpx.Client, run_id: str) -> None:
    ended = client.post(f"/api/v1/runs/{run_id}/complete", json={"status": "succeeded"})
    assert ended.status_code == 200, ended.text


def crowd(tenant: str) -> httpx.AsyncClient:
    """A client that has as many connections as it has requests under way."""
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(
        headers={"X-Tenant-ID": tenant}, timeout=PATIENCE_S, limits=limits, verify=NO_TLS
    )


async def all_at_once(
    client: httpx.AsyncClient, urls: Sequence[str], keys: Sequence[str], name: str = "hello"
) -> list[httpx.Response]:
    """The answers to starts with these keys, sent together, to each of the gateways in turn."""
    return await asyncio.gather(
        *(
            client.post(
                f"{urls[number % len(urls)]}/api/v1/workflows/{name}/runs",
                json={},
                headers={"Idempotency-Key": key},
            )
            for number, key in enumerate(keys)
        )
    )


def one_crowd(urls: Sequence[str], keys: Sequence[str], tenant: str) -> list[httpx.Response]:
    """The same, for those who need one only."""

    async def answers() -> list[httpx.Response]:
        async with crowd(tenant) as client:
            return await all_at_once(client, urls, keys)

    return asyncio.run(answers())


# --- a gateway with a fate --------------------------------------------------------------------------

ATOMIC_POINTS = (
    "on request",
    "before create",
    "after create",
    "before answer",
    "within answer",
    "after answer",
)
LOCK_POINTS = (
    "on request",
    "before reserve",
    "after reserve",
    "before lock",
    "after lock",
    "before create",
    "after create",
    "before release",
    "after release",
    "before answer",
    "within answer",
    "after answer",
)

# Reached only by a start that is refused.
CLEANUP_POINTS = ("before cleanup", "after cleanup")


def meant_by(put: Sequence[Any], drop: Sequence[str]) -> str:
    """Which step of an admission or a decision a commit is; "" if none."""
    written = [draft.id for draft in put]
    if "lock" in written:
        return "lock"
    if "lock" in drop:
        return "release"
    if any(id_.startswith("message/approval:") for id_ in written):
        return "decide"
    keys = any(id_.startswith("rec_") for id_ in written)
    if keys and any(id_.startswith("run_") for id_ in written):
        return "create"
    if keys:
        return "reserve"
    return "cleanup" if any(id_.startswith("rec_") for id_ in drop) else ""


def _meet(point: str, number: signal.Signals) -> None:
    """From now on the process gets the signal, once, when a request reaches the point."""
    left = [number]

    def reach(where: str) -> None:
        if where == point and left:
            signal_itself(left.pop())

    _watch_commits(reach)
    _watch_decisions_leave(reach)
    _watch_answers(reach)


def signal_itself(number: signal.Signals) -> None:
    """This process gets the signal. Frozen, it holds no lock of a SQLite file."""
    url = next((word.removeprefix("--url=") for word in sys.argv if word.startswith("--url=")), "")
    if number is signal.SIGSTOP:
        # By another process: its lock is not to be held by a process that stands still.
        subprocess.run([sys.executable, "-m", "tests.freezing", url, str(os.getpid())], cwd=ROOT, check=True)
    else:
        os.kill(os.getpid(), number)


def _watch_commits(reach: Callable[[str], None]) -> None:
    from semel.flow.document_store import DocumentStore
    from semel.stores.documents import Commit

    write = DocumentStore.write

    async def watched(self: DocumentStore, commit: Commit) -> Any:
        step = meant_by(commit.put, commit.drop)
        reach(f"before {step}")
        committed = await write(self, commit)
        reach(f"after {step}")
        return committed

    DocumentStore.write = watched  # type: ignore[method-assign]


def _watch_decisions_leave(reach: Callable[[str], None]) -> None:
    """Of all messages those that announce a decision: others leave before and after it."""
    from semel.flow.outbox import Outbox, Send

    begin = Outbox.__init__

    def watched(self: Outbox, document_store: Any, send: Send) -> None:
        async def leave(message: Any) -> None:
            step = "publish" if message.id.startswith("approval:") else ""
            reach(f"before {step}")
            await send(message)
            reach(f"after {step}")

        begin(self, document_store, leave)

    Outbox.__init__ = watched  # type: ignore[method-assign]


def _watch_answers(reach: Callable[[str], None]) -> None:
    from semel.gateway import app

    respond, answer = app.respond, app.GatewayChecks.answer

    async def watched_respond(
        send: Callable[[Any], Awaitable[None]], reply: Any, tenant: str | None = None
    ) -> None:
        async def watched_send(message: Any) -> None:
            if message["type"] == "http.response.body":
                reach("within answer")
            await send(message)

        reach("before answer")
        await respond(watched_send, reply, tenant)
        reach("after answer")

    async def watched_answer(self: app.GatewayChecks, *told: Any) -> Any:
        reach("on request")
        return await answer(self, *told)

    app.respond = watched_respond
    app.GatewayChecks.answer = watched_answer  # type: ignore[assignment,method-assign]


if __name__ == "__main__":
    _meet(sys.argv[1], signal.Signals[f"SIG{sys.argv[2]}"])
    del sys.argv[1:3]
    from semel.cli import main

    main()
