"""Real PostgreSQL servers, private to the tests: free ports, temporary directories, ended by their id."""

from __future__ import annotations

import atexit
import functools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.servers import free_port
from tests.faults.certificates import certify
from tests.missing import cannot
from tests.patience import PATIENCE_S
from tests.proxy import Proxy

# How processes that a test starts find the server of their parent.
PORT_VARIABLE = "SEMEL_TEST_POSTGRES_PORT"
TLS_VARIABLE = "SEMEL_TEST_POSTGRES_TLS"

USER, DATABASE = "semel", "postgres"

# What a standby calls itself.
STANDBY = "standby"

# A server recovers from a crash in a second; on a busy machine it takes longer.
START_S = PATIENCE_S


def binaries() -> Path | None:
    """Where initdb and postgres are: on the path, or where Debian puts them, the newest first."""
    found = shutil.which("initdb")
    if found:
        # Often a link: the other programs are where it leads to.
        return Path(found).resolve().parent
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return debian[-1].parent if debian else None


def need_postgres() -> Path:
    """Skips with one clear line where there is no PostgreSQL; in CI that is a failure."""
    where = binaries()
    if where is None:
        cannot("PostgreSQL is not installed: apt-get install postgresql")
    return where


class PostgresServer:
    """One server; PostgreSQL refuses to run as root, so it runs as a user of no rights."""

    def __init__(self, data: Path | None = None, **settings: str) -> None:
        self._binaries = need_postgres()
        self._settings = settings
        self.directory = Path(tempfile.mkdtemp(prefix="semel-postgres-"))
        self.directory.chmod(0o755)
        self.data = data or self.directory / "data"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._as_user: list[str] = []
        if os.getuid() == 0:
            user = pwd.getpwnam("postgres" if _known("postgres") else "nobody")
            os.chown(self.directory, user.pw_uid, user.pw_gid)
            ids = (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}")
            self._as_user = ["setpriv", *ids, "--clear-groups"]
        self.make()

    def make(self) -> None:
        """An empty cluster, in place of what was there."""
        shutil.rmtree(self.data, ignore_errors=True)
        command = [self._binaries / "initdb", "-D", self.data, "-U", USER, "-A", "trust", "-E", "UTF8"]
        subprocess.run(
            [*self._as_user, *map(str, command), "--locale=C", "-N"],
            check=True,
            capture_output=True,
            cwd=self.directory,
        )

    def start(self, **settings: str) -> None:
        """It answers."""
        said = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.directory),
            "max_connections": "300",
            # Power loss is not what these tests are about; killing the process loses nothing either way.
            "fsync": "off",
            **self._settings,
            **settings,
        }
        options = [word for name, value in said.items() for word in ("-c", f"{name}={value}")]
        with open(self.directory / "log", "ab") as log:
            self._process = subprocess.Popen(
                [*self._as_user, str(self._binaries / "postgres"), "-D", str(self.data), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
            )
        self._await()

    def _await(self) -> None:
        give_up_at = time.monotonic() + START_S
        ready = [str(self._binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(ready, check=False).returncode != 0:
            assert self._process is not None
            assert self._process.poll() is None, (self.directory / "log").read_text()[-2_000:]
            assert time.monotonic() < give_up_at, "PostgreSQL does not start"
            time.sleep(0.05)

    def order(self, statement: str) -> str:
        """What the server answers to a statement, as text: the cells of its rows."""
        command = [self._binaries / "psql", "-XAtq", "-h", "127.0.0.1", "-p", self.port, "-U", USER]
        done = subprocess.run(
            [*map(str, command), "-d", DATABASE, "-c", statement],
            check=True,
            capture_output=True,
            text=True,
            timeout=START_S,
        )
        return done.stdout.strip()

    def restore(self, backup: Path) -> None:
        """What was copied from `data` is there again."""
        shutil.rmtree(self.data, ignore_errors=True)
        shutil.copytree(backup, self.data, symlinks=True)
        owner = self.directory.stat()
        for path in (self.data, *self.data.rglob("*")):
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """kill -9 of the server: its children notice and end by themselves."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Immediate shutdown: connections are cut, nothing is written any more."""
        self._end(signal.SIGQUIT)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            children = _children(process.pid)
            process.send_signal(number)
            process.wait(START_S)
            # A server does not start while a child of its killed predecessor holds the shared memory.
            give_up_at = time.monotonic() + START_S
            while any(map(_runs, children)) and time.monotonic() < give_up_at:
                time.sleep(0.01)

    def freeze(self) -> None:
        """It and all that it started stand still."""
        # The server first, so that it starts no child meanwhile.
        _freeze(str(self.pid))
        for child in _children(self.pid):
            _freeze(child)

    def thaw(self) -> None:
        for pid in (str(self.pid), *_children(self.pid)):
            _signal(pid, signal.SIGCONT)

    def url(self, schema: str = "semel", **options: str) -> str:
        asked = "&".join(f"{name}={value}" for name, value in {"schema": schema, **options}.items())
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{DATABASE}?{asked}"

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


class TlsPostgresServer(PostgresServer):
    """One that speaks TLS; `certificate` vouches for it under the name localhost."""

    def __init__(self, **settings: str) -> None:
        super().__init__(None, **settings)
        self.certificate, key = certify(self.directory, "server")
        self._settings = {
            **settings,
            "ssl": "on",
            "ssl_cert_file": str(self.certificate),
            "ssl_key_file": str(key),
        }

    def url(self, schema: str = "semel", **options: str) -> str:
        return secured(super().url(schema, **options), str(self.certificate))


class PostgresStandby(PostgresServer):
    """A copy of a running server that follows it, by the port that is given: its own, or a proxy's."""

    def __init__(self, port: int) -> None:
        self._follows = port
        super().__init__(None)

    def make(self) -> None:
        """What the other server has at this moment, and the order to follow it."""
        where = (
            f"host=127.0.0.1 port={self._follows} user={USER} application_name={STANDBY} gssencmode=disable"
        )
        command = [self._binaries / "pg_basebackup", "-d", where, "-D", self.data, "-R", "-c", "fast", "-N"]
        subprocess.run(
            [*self._as_user, *map(str, command)], check=True, capture_output=True, cwd=self.directory
        )

    def promote(self) -> None:
        """It takes writes."""
        command = [self._binaries / "pg_ctl", "promote", "-w", "-t", int(START_S), "-D", self.data]
        subprocess.run(
            [*self._as_user, *map(str, command)], check=True, capture_output=True, cwd=self.directory
        )


class PostgresPair:
    """A primary and a standby that follows it through a proxy; the URL names both, and takes who writes."""

    def __init__(self, *, synchronous: bool) -> None:
        self._synchronous = synchronous
        self.primary = PostgresServer()
        self.between: Proxy | None = None
        self.standby: PostgresStandby | None = None

    def start(self) -> None:
        """The standby has what the primary has."""
        self.primary.start()
        self.between = Proxy(self.primary.port)
        self.standby = PostgresStandby(self.between.port)
        self.standby.start()
        if self._synchronous:
            self.primary.order(f"ALTER SYSTEM SET synchronous_standby_names = '{STANDBY}'")
            self.primary.order("SELECT pg_reload_conf()")
        mode = "sync" if self._synchronous else "async"
        _wait_until(lambda: self._told("sync_state") == mode, "the standby")

    def caught_up(self) -> bool:
        return self._told("replay_lsn = pg_current_wal_lsn()") == "t"

    def _told(self, column: str) -> str:
        return self.primary.order(
            f"SELECT {column} FROM pg_stat_replication WHERE application_name = '{STANDBY}'"
        )

    def sever(self) -> None:
        """Nothing reaches the standby any more; the primary's clients notice only what follows from that."""
        assert self.between is not None
        self.between.refuses = True
        self.between.cut()
        _wait_until(lambda: self._told("pid") == "", "the end of the stream")

    def join(self) -> None:
        """The standby is let in again."""
        assert self.between is not None
        self.between.restore()

    def fail_over(self) -> None:
        """The primary is dead, and the standby takes writes."""
        assert self.standby is not None
        self.primary.kill()
        self.standby.promote()

    def url(self, schema: str = "semel", **options: str) -> str:
        assert self.standby is not None
        asked = {"schema": schema, "target_session_attrs": "read-write", "sslmode": "disable", **options}
        both = ",".join(f"127.0.0.1:{server.port}" for server in (self.primary, self.standby))
        query = "&".join(f"{name}={value}" for name, value in asked.items())
        return f"postgresql://{USER}@{both}/{DATABASE}?{query}"

    def remove(self) -> None:
        for server in (self.standby, self.primary):
            if server is not None:
                server.remove()
        if self.between is not None:
            self.between.close()


def _wait_until(came_true: Callable[[], bool], what: str) -> None:
    give_up_at = time.monotonic() + START_S
    while not came_true():
        assert time.monotonic() < give_up_at, f"waited in vain for {what}"
        time.sleep(0.02)


def secured(url: str, certificate: str) -> str:
    """The same place by a connection that is encrypted and knows whom it talks to."""
    by_name = url.replace("@127.0.0.1:", "@localhost:")
    return f"{by_name}&sslmode=verify-full&sslrootcert={certificate}"


def _known(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


@functools.cache
def _own() -> PostgresServer:
    server = PostgresServer()
    atexit.register(server.remove)
    server.start()
    os.environ[PORT_VARIABLE] = str(server.port)
    return server


def shared_port() -> int:
    """The port of the one server that most tests share, each in a schema of its own."""
    known = os.environ.get(PORT_VARIABLE)
    return int(known) if known else _own().port


def _children(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []


def _runs(pid: str) -> bool:
    return _state(pid) not in ("", "Z")


def _state(pid: str) -> str:
    """One letter, as the system has it; none if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def _signal(pid: str, number: signal.Signals) -> None:
    try:
        os.kill(int(pid), number)
    except ProcessLookupError:
        pass  # it ended by itself


def _freeze(pid: str) -> None:
    """It stands still, or has ended by itself."""
    _signal(pid, signal.SIGSTOP)
    while _state(pid) not in ("", "Z", "T"):
        time.sleep(0.001)


def shared_url(schema: str, **options: str) -> str:
    asked = "&".join(f"{name}={value}" for name, value in {"schema": schema, **options}.items())
    return f"postgresql://{USER}@127.0.0.1:{shared_port()}/{DATABASE}?{asked}"


@functools.cache
def _own_tls() -> TlsPostgresServer:
    server = TlsPostgresServer()
    atexit.register(server.remove)
    server.start()
    os.environ[TLS_VARIABLE] = f"{server.port} {server.certificate}"
    return server


def shared_tls_url(schema: str, **options: str) -> str:
    if TLS_VARIABLE not in os.environ:
        _own_tls()
    port, _, certificate = os.environ[TLS_VARIABLE].partition(" ")
    asked = "&".join(f"{name}={value}" for name, value in {"schema": schema, **options}.items())
    return secured(f"postgresql://{USER}@127.0.0.1:{port}/{DATABASE}?{asked}", certificate)
