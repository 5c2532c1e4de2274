"""Where the file is. All who use it have to share its write-ahead log, which SQLite finds by the file's name.

So the file has one name, and keeps it, and keeps its log beside it. Under a second name, or after a move,
another process would have a log of its own: it would neither see nor lock out what is done here.
"""

from __future__ import annotations

import os
import re
import sqlite3
import stat

from semel.errors import OpenError
from semel.kernel.clock import SYSTEM, Clock
from semel.stores.sqlite import trouble
from semel.stores.sqlite.trouble import Displaced, HeldElsewhere

# Where Linux lists the mounts that this process sees; other systems cannot mount a single file.
_MOUNTS = "/proc/self/mountinfo"

_PUT_BACK = (
    "Put it back and service resumes; else stop every process that uses it, put the file with its log in one "
    "place, and start them there."
)

# Another process that is opening or closing the file is through in milliseconds.
_PAUSE_S = 0.005

# Without the right to read the directory, where there is such a thing.
_TO_LOOK_AT = getattr(os, "O_PATH", os.O_RDONLY)

# A file system's clock ticks every few milliseconds, and two changes within a tick have one time: so only the
# time of a directory that was quiet for longer tells whether something happened since. Some count whole
# hundredths of a second, or whole seconds; theirs never tells.
_QUIET_NS, _COARSE_NS = 100_000_000, 10_000_000

Inode = tuple[int, int]


class FileIdentity:
    """The path of an open database: `check` says whether the file and its log are still what is there."""

    def __init__(self, path: str, clock: Clock = SYSTEM) -> None:
        self.path = path
        # SQLite puts the log beside what a symbolic link points at.
        self.log_path, self._index_path = logs_of(path)
        self._clock = clock
        self._log: Inode | None = None
        self._index: Inode | None = None
        self._directory: int | None = None
        self._device, self._inode = _identity(os.stat(path))
        self._seen_ns = 0  # the directory's last change when the log was looked at; 0 if it tells nothing

    def log_opened(self) -> None:
        """From here on the log has to stay what it is: SQLite keeps it while a connection is open."""
        self.log_closed()
        try:
            log, index = _identity(os.stat(self.log_path)), _identity(os.stat(self._index_path))
        except OSError:
            return  # a file that may only be read may have none; then nothing is written either
        try:
            self._directory = os.open(os.path.dirname(self.log_path), _TO_LOOK_AT)
        except OSError:
            pass  # not on this system: then every look is at the files themselves
        self._log, self._index = log, index

    def log_closed(self) -> None:
        """The last connection of all takes its log away, and the next one makes another."""
        self._log = self._index = None
        self._seen_ns = 0
        directory, self._directory = self._directory, None
        if directory is not None:
            os.close(directory)

    def __del__(self) -> None:
        self.log_closed()

    def check(self) -> None:
        """Displaced, which is an error of SQLite's to all who handle those, unless all is where it was."""
        # Callers wait for this at every commit: two system calls, and little besides.
        try:
            file = os.stat(self.path)
        except OSError as error:
            raise _gone(self.path, error) from None
        if file.st_ino != self._inode or file.st_dev != self._device:
            raise _replaced(self.path)
        if file.st_nlink > 1:
            raise Displaced(
                f"{self.path} has got a second hard link while it was open, and whoever uses that would have "
                "a write-ahead log of its own",
                "Remove the link and service resumes.",
            )
        directory, changed_ns = self._directory, 0
        if directory is not None:
            # When something came into it, or left it, or changed its name: a time that nobody can set, unlike
            # that of its modification.
            try:
                changed_ns = os.stat(directory).st_ctime_ns
            except OSError:
                pass  # closed meanwhile
        if changed_ns == 0 or changed_ns != self._seen_ns:
            self._check_log(changed_ns)

    def distrust(self) -> None:
        """The next check looks at the log itself: a directory does not tell if something is mounted in it."""
        self._seen_ns = 0

    def _check_log(self, changed_ns: int) -> None:
        log, index = self._log, self._index
        if log is not None and index is not None:
            _look_at(self.log_path, log)
            _look_at(self._index_path, index)
            self._seen_ns = changed_ns if self._tells(changed_ns) else 0

    def _tells(self, changed_ns: int) -> bool:
        """Whether a later change will have another time, however coarse the file system's clock is."""
        return 0 < changed_ns < self._clock.now_us() * 1_000 - _QUIET_NS and changed_ns % _COARSE_NS != 0


def _look_at(path: str, identity: Inode) -> None:
    try:
        file = os.stat(path)
    except OSError as error:
        raise _gone(path, error) from None
    if _identity(file) != identity:
        raise _replaced(path)


def _gone(path: str, error: OSError) -> sqlite3.Error:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return Displaced(f"{path} was moved or removed while the database was open", _PUT_BACK)
    unknown = sqlite3.OperationalError(f"nobody can tell whether {path} is in place: {error}")
    unknown.__cause__ = error
    return unknown


def _replaced(path: str) -> Displaced:
    return Displaced(f"{path} was replaced by another file while the database was open", _PUT_BACK)


def refuse(path: str) -> None:
    """OpenError if the file has a second name, through which others would have another log."""
    try:
        file = os.stat(path)
    except OSError:
        return  # there is none yet, or opening it will say what is wrong
    if not stat.S_ISREG(file.st_mode):
        return
    if file.st_nlink > 1:
        raise OpenError(
            f"{path} has a second hard link: whoever opens that would have a write-ahead log of its own, and "
            "effects would land twice. Nothing was opened.",
            corrective_action="Remove the other link, or link the directory that holds the file.",
        )
    if os.path.realpath(path) in _mounted():
        raise OpenError(
            f"{path} is itself a mount point: its write-ahead log would not be shared with whoever opens the "
            "file where it comes from, and effects would land twice. Nothing was opened.",
            corrective_action="Mount the directory that holds the file, not the file.",
        )


def _mounted() -> set[str]:
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as lines:
            return mount_points(lines.read())
    except OSError:
        return set()


def mount_points(text: str) -> set[str]:
    """What the kernel's list names, with its escapes undone: a blank is written as \\040."""
    named = (line.split(" ", 5)[4] for line in text.splitlines() if line.count(" ") > 4)
    return {re.sub(r"\\([0-7]{3})", lambda escape: chr(int(escape[1], 8)), point) for point in named}


def make_private(path: str) -> None:
    """A file that is not there yet is made, for its owner only; SQLite gives its log the same mode."""
    mode = stat.S_IRUSR | stat.S_IWUSR
    try:
        try:
            # Not by opening it: closing a file drops the locks that other connections of this process hold.
            os.mknod(path, stat.S_IFREG | mode)
        except (AttributeError, PermissionError):
            # Not on this system. The file is new, so that nobody else is likely to have a lock on it.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode))
    except OSError:
        pass  # it is there, or SQLite says why it cannot be


def refuse_lost_log(path: str, wait_s: float) -> None:
    """HeldElsewhere if somebody has the file open whose log is not beside it.

    Whoever has it open holds a lock on it, and its log exists. So a file without one can be locked for this
    process alone, or it was moved, linked or mounted under another, or that one's log was removed.
    """
    give_up_at = SYSTEM.monotonic() + wait_s
    while not _log_is_there(path) and not _nobody_has_it_open(path):
        if SYSTEM.monotonic() >= give_up_at:
            raise HeldElsewhere(
                "another process has this file locked, and no write-ahead log is beside it: an application "
                "is busy with it, or the file was moved or has another name there, or its log was removed",
                "Stop every process that uses the file, then start them all on one path.",
            )
        SYSTEM.sleep(SYSTEM.random() * _PAUSE_S)


def _log_is_there(path: str) -> bool:
    try:
        # A file without content was never used.
        return os.stat(path).st_size == 0 or all(map(os.path.exists, logs_of(path)))
    except OSError:
        return True  # nothing to lose; opening it will say what is wrong


def _nobody_has_it_open(path: str) -> bool:
    try:
        connection = sqlite3.connect(path, timeout=0, isolation_level=None)
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("ROLLBACK")
        finally:
            connection.close()
    except sqlite3.Error as error:
        return not trouble.busy(error)  # another error is for the real opening to report
    return True


def logs_of(path: str) -> tuple[str, str]:
    """The write-ahead log and its index."""
    real = os.path.realpath(path)
    return f"{real}-wal", f"{real}-shm"


def _identity(file: os.stat_result) -> Inode:
    return file.st_dev, file.st_ino
