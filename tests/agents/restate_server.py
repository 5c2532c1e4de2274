"""A private Restate server on loopback, its data in a folder of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from bench.servers import free_port
from tests.faults.checks import until
from tests.missing import cannot
from tests.patience import PATIENCE_S

MISSING = "Restate's server is not installed; to have it: tools/setup-restate"

_CONFIG = """
bind-address = "127.0.0.1:{node}"
disable-telemetry = true
base-dir = "{folder}"
default-num-partitions = 1
[ingress]
bind-address = "127.0.0.1:{ingress}"
[admin]
bind-address = "127.0.0.1:{admin}"
"""


def binary() -> Path:
    """Skips with one clear line where there is none; in CI that is a failure."""
    places = Path(sys.prefix, "restate", "node_modules", "@restatedev")
    found = next(places.glob("restate-server-*/bin/restate-server"), None)
    return found or cannot(MISSING)


class RestateServer:
    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="semel-restate-"))
        ports = {name: free_port() for name in ("node", "ingress", "admin")}
        self._ingress, self._admin = (f"http://127.0.0.1:{ports[name]}" for name in ("ingress", "admin"))
        config = self._folder / "restate.toml"
        config.write_text(_CONFIG.format(folder=self._folder / "data", **ports))
        self._log = (self._folder / "log").open("wb")
        self._process = subprocess.Popen(
            [str(binary()), "--config-file", str(config)], stdout=self._log, stderr=self._log
        )
        until(lambda: _answers(f"{self._admin}/health"), "Restate's server is up")

    def register(self, port: int) -> None:
        """New invocations go to the program at this port."""
        _send(
            f"{self._admin}/deployments",
            {"uri": f"http://127.0.0.1:{port}", "use_http_11": True, "force": True},
        )

    def send(self, handler: str, what: Any, key: str = "") -> str:
        """The invocation's id."""
        headers = {"idempotency-key": key} if key else {}
        return str(_send(f"{self._ingress}/{handler}/send", what, headers)["invocationId"])

    def result(self, invocation: str) -> Any:
        """What the invocation answers, once it does: a value, or {"message": …, "metadata": …}."""
        try:
            return _send(f"{self._ingress}/restate/invocation/{invocation}/attach")
        except urllib.error.HTTPError as failed:
            with failed:
                return json.load(failed)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()
        shutil.rmtree(self._folder)


def _send(url: str, what: Any = None, headers: dict[str, str] | None = None) -> Any:
    data = None if what is None else json.dumps(what).encode()
    told = {"content-type": "application/json", **(headers or {})}
    with urllib.request.urlopen(urllib.request.Request(url, data, told), timeout=PATIENCE_S) as answer:
        return json.load(answer)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S):
            return True
    except OSError:
        return False
