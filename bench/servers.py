"""Private servers for the bench: on free loopback ports, in directories of their own, ended by their id.

PostgreSQL refuses to run as root, and no server needs to: where we are root, it runs as a user of no rights.
"""

from __future__ import annotations

import itertools
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from semel.kernel.clock import SYSTEM

# Where `python -m bench…` finds the bench, wherever we were called from.
REPOSITORY = Path(__file__).resolve().parent.parent

USER, DATABASE = "semel", "postgres"

# A node of a Redis cluster listens here too, so much above its port.
_GOSSIP = 10_000

# Below what systems give to connections by themselves (Linux from 32 768, macOS from 49 152), the gossip too:
# nobody is given a port between our look and the server's start, nor while a server is being restarted.
# Each process begins elsewhere, so that several of them at once do not pick the same.
_PORTS = range(15_000, 22_000)
_next_port = itertools.count(os.getpid() * 173)

# A server starts within a second; on a busy machine with a slow disk it takes longer.
_START_S = 60.0
_PAUSE_S = 0.02

# Enough of a log to tell what is wrong, and one line.
_LOG_CHARACTERS = 300


class ServerMissing(Exception):
    """There is no such server here; the text says in one line why, and what to do."""


class PrivateServer(ABC):
    """A server process in a directory of its own. Everything of it is gone when it is closed."""

    title: str
    users: tuple[str, ...]
    ended_by: signal.Signals

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._as_user = _give(directory, self.users)

    def _start(self, command: Sequence[str]) -> None:
        """It answers. Raises ServerMissing if it ends before it does."""
        with open(self.directory / "log", "ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                # An interrupt is for us: we end the server when its clients are closed.
                start_new_session=True,
                **self._as_user,
            )
        give_up_at = SYSTEM.monotonic() + _START_S
        while not self._answers():
            if self._process.poll() is not None or SYSTEM.monotonic() > give_up_at:
                self.close()
                raise ServerMissing(f"{self.title} does not start: {self._last_words()}")
            SYSTEM.sleep(_PAUSE_S)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @abstractmethod
    def _answers(self) -> bool:
        """Whether clients are served."""

    def _last_words(self) -> str:
        log = (self.directory / "log").read_text(encoding="utf-8", errors="replace")
        return " ".join(log.split())[-_LOG_CHARACTERS:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def close(self) -> None:
        """At once: what it keeps is thrown away anyway."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(self.ended_by)
            process.wait(_START_S)


class RedisServer(PrivateServer):
    """Redis with an append-only file that is forced to disk every second, as its documentation advises."""

    title = "Redis"
    users = ("redis", "nobody")
    ended_by = signal.SIGKILL

    # Rewriting the file would disturb some rounds and not others.
    settings: Mapping[str, str] = {
        "bind": "127.0.0.1",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "auto-aof-rewrite-percentage": "0",
        "save": "",
    }

    def __init__(self, directory: Path) -> None:
        binary = redis_binary()
        super().__init__(directory)
        settings = {**self.settings, "port": str(self.port), "dir": str(directory)}
        self._start([binary, *(word for name, value in settings.items() for word in (f"--{name}", value))])

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False

    @property
    def address(self) -> str:
        """For whoever knows nothing of our prefixes."""
        return f"redis://127.0.0.1:{self.port}"

    def url(self, prefix: str) -> str:
        return f"{self.address}?prefix={prefix}"

    @staticmethod
    def described() -> str:
        """Its version and how durable it writes."""
        return f"{_version(redis_binary())} (append-only file, appendfsync everysec)"


class PostgresServer(PrivateServer):
    """PostgreSQL as its makers set it up: fsync and synchronous_commit are on."""

    title = "PostgreSQL"
    users = ("postgres", "nobody")
    ended_by = signal.SIGQUIT  # it takes that as "immediately"; killed, it would leave shared memory behind

    def __init__(self, directory: Path) -> None:
        self.binaries = postgres_binaries()
        super().__init__(directory)
        self._make()
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "200",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self._start([str(self.binaries / "postgres"), "-D", str(directory / "data"), *options])

    def _make(self) -> None:
        command = [str(self.binaries / "initdb"), "-D", str(self.directory / "data"), "-U", USER]
        made = subprocess.run(
            [*command, "-A", "trust", "-E", "UTF8", "--locale=C"],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=self.directory,
            **self._as_user,
        )
        if made.returncode != 0:
            error = " ".join(made.stderr.decode(errors="replace").split())[-_LOG_CHARACTERS:]
            raise ServerMissing(f"PostgreSQL cannot begin a database in {self.directory}: {error}")

    def _answers(self) -> bool:
        asking = [str(self.binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(asking, check=False).returncode == 0

    def url(self, schema: str) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{DATABASE}?schema={schema}"

    def conninfo(self, schema: str) -> str:
        """For whoever works on the store's tables by hand."""
        where = f"host=127.0.0.1 port={self.port} user={USER} dbname={DATABASE}"
        return f"{where} options='-c search_path={schema}'"

    @staticmethod
    def described() -> str:
        return f"{_version(str(postgres_binaries() / 'postgres'))} (fsync and synchronous_commit on)"


def redis_binary() -> str:
    """Where redis-server is; ServerMissing if it is not, or nobody could talk to it."""
    binary = shutil.which("redis-server")
    if binary is None:
        raise ServerMissing("Redis is not installed: apt-get install redis-server")
    # The store needs hiredis; redis-py is what it is compared with.
    _need("Redis", hiredis="redis", redis="dev")
    return binary


def postgres_binaries() -> Path:
    """Where PostgreSQL's programs are: on the path, or where Debian puts them, the newest first."""
    initdb = shutil.which("initdb")
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if initdb is None and not debian:
        raise ServerMissing("PostgreSQL is not installed: apt-get install postgresql")
    _need("PostgreSQL", psycopg="postgres")
    # On the path it is often a link: the other programs are where it leads to.
    where = (Path(initdb).resolve() if initdb else debian[-1]).parent
    if not (where / "pgbench").exists():
        raise ServerMissing("pgbench is not installed: apt-get install postgresql-contrib")
    return where


def _need(title: str, **extras: str) -> None:
    """Each module is there; ServerMissing with the extra that brings it."""
    for module, extra in extras.items():
        if find_spec(module) is None:
            raise ServerMissing(f'{title} has no driver here ({module}): pip install "semel[{extra}]"')


def free_port() -> int:
    """A port of the loopback that nobody has, nor the one that a cluster's node would take for its gossip."""
    while True:
        port = _PORTS[next(_next_port) % len(_PORTS)]
        if _is_free(port) and _is_free(port + _GOSSIP):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _version(binary: str) -> str:
    output = subprocess.run([binary, "--version"], check=False, capture_output=True, text=True).stdout
    version = re.search(r"\d+(\.\d+)+", output)
    return version.group() if version else "of unknown version"


def _give(directory: Path, names: Sequence[str]) -> dict[str, Any]:
    """The directory is there and belongs to whom the server runs as: how to start it as that user."""
    directory.mkdir()
    if os.getuid() != 0:
        return {}
    user = _user(names)
    os.chown(directory, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _user(names: Sequence[str]) -> pwd.struct_passwd:
    for name in names:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ServerMissing(f"Root must not run it, and there is no user {' or '.join(names)} here.")
