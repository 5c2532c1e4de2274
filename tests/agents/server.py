"""A process that has imported a framework and forks one child for each job, because importing takes seconds.

Between the test and the server there is one pipe; a child writes its answer to a file of its job's folder.
"""

from __future__ import annotations

import importlib
import os
import pickle
import socket
import subprocess
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from tests.agents import shop
from tests.agents.script import Job, Seen

ROOT = Path(__file__).parents[2]

# Not as `-m`: what this module defines would be of `__main__` there, and no pickle of it could be read here.
_MAIN = "from tests.agents import server; server.main()"


class Ended(NamedTuple):
    """How a child ended: what it saw, or what it raised; killed if neither."""

    seen: Seen | None
    raised: str
    killed: bool

    def unwrap(self) -> Any:
        assert self.seen is not None, f"killed: {self.killed}\n{self.raised}"
        return self.seen


class Server:
    """The test's side."""

    def __init__(self, adapter: str) -> None:
        ours, theirs = socket.socketpair()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _MAIN, adapter, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=environment,
            cwd=ROOT,
        )
        theirs.close()
        self._pipe = Connection(ours.detach())

    def start(self, do: str, job: Job) -> int:
        """The child that does it, by its process id."""
        self._pipe.send((do, job))
        child: int = self._pipe.recv()
        return child

    def wait(self, child: int) -> Ended:
        self._pipe.send(("wait", child))
        ended: Ended = self._pipe.recv()
        return ended

    def run(self, do: str, job: Job) -> Ended:
        return self.wait(self.start(do, job))

    def close(self) -> None:
        self._pipe.close()
        self._process.wait()


def serve(adapter: str, pipe: Connection) -> None:
    """Until the test closes its end."""
    framework = importlib.import_module(adapter)
    folders: dict[int, Path] = {}
    while True:
        try:
            do, what = pipe.recv()
        except EOFError:
            return
        if do == "wait":
            _, status = os.waitpid(what, 0)
            pipe.send(_ended(folders.pop(what) / f"ended-{what}", os.WIFSIGNALED(status)))
            continue
        child = os.fork()
        if not child:
            pipe.close()
            _work(getattr(framework, do), what)
        folders[child] = what.folder
        pipe.send(child)


def _work(act: Any, job: Job) -> None:
    """In the child, which ends here whatever happens."""
    answer: tuple[Seen | None, str] = (None, "")
    shop.provider = job.provider
    try:
        answer = (act(job), "")
    except BaseException:
        answer = (None, traceback.format_exc())
    finally:
        (job.folder / f"ended-{os.getpid()}").write_bytes(pickle.dumps(answer))
        sys.stderr.flush()
        os._exit(0)


def _ended(file: Path, killed: bool) -> Ended:
    if killed:
        return Ended(None, "", True)
    seen, raised = pickle.loads(file.read_bytes())
    return Ended(seen, raised, False)


def main() -> None:
    serve(sys.argv[1], Connection(int(sys.argv[2])))
