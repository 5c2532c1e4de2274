"""The process of a server that a test starts for itself, and the directory in which it keeps what it has."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

from tests.patience import PATIENCE_S


class ServerProcess:
    directory: Path
    _process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """kill -9."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(PATIENCE_S)

    def freeze(self) -> None:
        """None of its threads runs any more."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)
