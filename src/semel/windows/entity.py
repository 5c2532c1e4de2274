"""The window of an entity: which keys were seen within the last days, kept in the entity's own state.

Pure and deterministic: no clock, no I/O. The same pushes give the same window, so it may live in a workflow
that is replayed from its history. One window belongs to one entity and one thread.

    keys, order    queues of the live keys and of their times, oldest first     what to forget next
    times          key → when it was first seen                                 whether a key is known
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from types import EllipsisType
from typing import Any, NamedTuple, Self, TypeGuard

from semel.kernel.durations import Duration, microseconds, words
from semel.windows.ages import bound_above

# Longer than a weekend: what failed on Friday evening is sent again on Monday morning.
DEFAULT_MAX_AGE = timedelta(days=3)

# 1 listed pairs of key and time; 2 lists keys and the gaps between their times, which is half as long.
FORMAT = 2

# A SHA-256 in hex fits, a UUID does twice. What is longer is known by its digest: a client chooses its keys,
# but not how many bytes of state each of them takes.
_KEY_CHARACTERS_MAX = 64

# A table is made anew when three quarters of what it held are gone: the copy costs less than they did.
# Below this many keys it is too small to matter.
_SPARSE, _SMALL = 4, 64

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST_US = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


class WindowStats(NamedTuple):
    """What a window has seen since it was new, restarts included."""

    pushes: int
    duplicates: int
    ages: dict[timedelta, int]  # of duplicates, since their key was new: how many under each
    evicted_early: int  # keys that `max_keys` dropped before they were as old as the window


class DedupWindow:
    """Tells new keys from those seen within `max_age`; never holds more than `max_keys` of them."""

    def __init__(self, max_age: Duration = DEFAULT_MAX_AGE, max_keys: int | None = None) -> None:
        self._max_age_us = microseconds(max_age, "max_age")
        self._max_keys = _bound(max_keys)
        self._keys: deque[str] = deque()
        self._order: deque[int] = deque()
        self._times: dict[str, int] = {}
        # The latest time that was told. None before the first.
        self._latest_us: int | None = None
        # Keys first seen before this may be forgotten although they are young. None if there are none.
        self._since_us: int | None = None
        # The most keys that the table held since it was made.
        self._peak = 0
        self._pushes = self._evicted_early = 0
        self._ages_us: dict[int, int] = {}  # of duplicates, by the bound above each

    # --- what is asked for each event ---------------------------------------------------------------

    def push(self, key: str | None, now: datetime | None = None) -> bool:
        """True for a new key, which is known from now on; False for one seen inside the window.

        A duplicate changes nothing, so the window counts from the first time. Without a key there is nothing
        to compare: None is always new. ValueError if `now` is missing or has no time zone.
        """
        if now is not None:
            self.evict(now)
        if key is None:
            self._pushes += 1
            return True
        if now is None:
            raise ValueError("push(key, now) needs the time: a window has no clock of its own")
        name = _name(key)
        self._pushes += 1
        return self._remember(name)

    def evict(self, now: datetime) -> int:
        """Keys older than `max_age` are forgotten, and their memory is given back; how many they were.

        Time that steps back stands still instead: it neither brings a key back nor ends one early.
        """
        at = _us(now)
        if self._latest_us is not None and at <= self._latest_us:
            return 0
        self._latest_us = at
        return self._forget_before(at - self._max_age_us)

    def __contains__(self, key: object) -> bool:
        """Whether the key was inside the window at the latest time that was told."""
        return isinstance(key, str) and _name(key) in self._times

    def __len__(self) -> int:
        return len(self._times)

    def first_seen(self, key: str) -> datetime | None:
        """When the key was new, None if it is not known."""
        at = self._times.get(_name(key))
        return None if at is None else _datetime(at)

    @property
    def covered_since(self) -> datetime | None:
        """Every key that was first seen at this time or later is known. None before the first time was told.

        Usually that is the latest time less `max_age`. It is later where `max_keys` has dropped younger keys,
        and where `from_state` has made the window longer: what was forgotten does not come back.
        """
        if self._latest_us is None:
            return None
        return _datetime(_later(self._latest_us - self._max_age_us, self._since_us))

    def stats(self) -> WindowStats:
        """What was counted. It is part of the state; ages are under the first bound that is longer."""
        counts = sorted(self._ages_us.items())
        ages = {timedelta(microseconds=bound_us): count for bound_us, count in counts}
        return WindowStats(self._pushes, sum(ages.values()), ages, self._evicted_early)

    @property
    def max_age(self) -> timedelta:
        return timedelta(microseconds=self._max_age_us)

    @property
    def max_keys(self) -> int | None:
        return self._max_keys

    def __repr__(self) -> str:
        bound = "" if self._max_keys is None else f", max_keys={self._max_keys}"
        return f"<{type(self).__name__} of {words(self._max_age_us)}{bound}: {len(self)} keys>"

    # --- across restarts ------------------------------------------------------------------------------

    def to_state(self) -> dict[str, Any]:
        """The window as plain JSON data, for `from_state`."""
        return {
            "format": FORMAT,
            "max_age_us": self._max_age_us,
            "max_keys": self._max_keys,
            "latest_us": self._latest_us,
            "since_us": self._since_us,
            "keys": list(self._keys),
            # The first is a time, the others say how much later the next key came.
            "gaps_us": [at - before for at, before in zip(self._order, (0, *self._order), strict=False)],
            # An older version leaves it out, and does not miss it.
            "stats": {
                "pushes": self._pushes,
                "ages_us": [[bound_us, self._ages_us[bound_us]] for bound_us in sorted(self._ages_us)],
                "evicted_early": self._evicted_early,
            },
        }

    @classmethod
    def from_state(
        cls,
        state: Mapping[str, Any],
        max_age: Duration | None = None,
        max_keys: int | EllipsisType | None = ...,
    ) -> Self:
        """The window that `to_state` described, also by an older version of Semel.

        `max_age` and `max_keys` change it: a shorter one forgets at once, a longer one holds from now on, and
        `covered_since` says so. ValueError if the state is damaged or was written by a newer version.
        """
        read = _read(state)
        window = cls(timedelta(microseconds=read.max_age_us), read.max_keys)
        window._restore(read)
        if max_keys is not ...:
            window._max_keys = _bound(max_keys)
        if max_age is not None:
            window._change_age(microseconds(max_age, "max_age"))
        window._drop_beyond_bound()
        return window

    def _restore(self, read: _State) -> None:
        self._latest_us, self._since_us = read.latest_us, read.since_us
        self._times = dict(zip(read.keys, read.times, strict=True))
        self._keys, self._order = deque(read.keys), deque(read.times)
        self._peak = len(read.keys)
        self._pushes, self._ages_us, self._evicted_early = read.pushes, read.ages_us, read.evicted_early

    def _change_age(self, max_age_us: int) -> None:
        if self._latest_us is not None and max_age_us != self._max_age_us:
            # What the old age has forgotten stays forgotten under the new one.
            self._since_us = _later(self._latest_us - self._max_age_us, self._since_us)
            self._forget_before(self._latest_us - max_age_us)
        self._max_age_us = max_age_us

    # --- remembering and forgetting -------------------------------------------------------------------

    def _remember(self, name: str) -> bool:
        times, before = self._times, len(self._times)
        # Never the caller's own time: it may have stepped back, and the queues are in order of time.
        at: int = self._latest_us  # type: ignore[assignment]  # told by now
        first = times.setdefault(name, at)
        if len(times) == before:
            self._met_again(first, at)
            return False
        self._keys.append(name)
        self._order.append(at)
        self._peak = max(self._peak, before + 1)
        self._drop_beyond_bound()
        return True

    def _met_again(self, first_us: int, at_us: int) -> None:
        """A duplicate came; the counts are all that it changes."""
        bound_us = bound_above(at_us - first_us)
        self._ages_us[bound_us] = self._ages_us.get(bound_us, 0) + 1

    def _dropped_young(self, count: int) -> None:
        """So many keys gave way to others before they were as old as the window."""
        self._evicted_early += count

    def _forget_before(self, limit_us: int) -> int:
        order, before = self._order, len(self._order)
        # The times are read off their queue: to ask the table for each would cost as much as the rest.
        while order and order[0] < limit_us:
            self._drop_oldest()
        if before > len(order):
            self._give_back()
        return before - len(order)

    def _drop_oldest(self) -> int:
        del self._times[self._keys.popleft()]
        return self._order.popleft()

    def _drop_beyond_bound(self) -> None:
        """At most `max_keys` are left, the youngest."""
        if self._max_keys is None or len(self._keys) <= self._max_keys:
            return
        self._dropped_young(len(self._keys) - self._max_keys)
        while len(self._keys) > self._max_keys:
            dropped_us = self._drop_oldest()
        # One of the same microsecond may have stayed; from the next on all are here.
        self._since_us = _later(max(dropped_us + 1, self._order[0]), self._since_us)
        self._give_back()

    def _give_back(self) -> None:
        """The table is small where it holds little: by itself it would keep its largest size."""
        if self._peak > _SMALL and self._peak > _SPARSE * len(self._times):
            self._times = dict(self._times)
            self._peak = len(self._times)


def _bound(max_keys: Any) -> int | None:
    if max_keys is None or (_whole(max_keys) and max_keys > 0):
        return max_keys
    raise ValueError(f"max_keys must be a whole number from 1, or None for no bound, not {max_keys!r}")


def _name(key: str) -> str:
    """The key as it is kept: itself, or a digest where it is long or not every JSON reader would take it."""
    if not isinstance(key, str):
        raise TypeError(f"A window's key is a text, or None where there is none, not {key!r}")
    if len(key) <= _KEY_CHARACTERS_MAX and key.isascii() and key.isprintable():
        return key
    return "sha256:" + sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _us(now: datetime) -> int:
    try:
        passed = now - _EPOCH
    except TypeError:
        raise ValueError(f"A window takes datetimes with a time zone, not {now!r}") from None
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds


def _datetime(us: int) -> datetime:
    # A window may reach back beyond the first day that a datetime knows.
    return _EPOCH + timedelta(microseconds=max(us, _FIRST_US))


def _later(us: int, other_us: int | None) -> int:
    return us if other_us is None else max(us, other_us)


# --- reading a state ------------------------------------------------------------------------------


class _State(NamedTuple):
    max_age_us: int
    max_keys: int | None
    latest_us: int | None
    since_us: int | None
    keys: list[str]
    times: list[int]
    pushes: int
    ages_us: dict[int, int]
    evicted_early: int


def _read(state: Mapping[str, Any]) -> _State:
    """What the state says, whichever format it has; ValueError unless all of it makes sense."""
    if not isinstance(state, Mapping):
        raise _damaged("it is no mapping")
    format_ = state.get("format")
    if not _whole(format_) or format_ < 1:
        raise _damaged("it names no format")
    if format_ > FORMAT:
        raise ValueError(
            f"The window's state has format {format_}, and this version reads up to {FORMAT}:"
            " it was written by a newer one. Run that, or a newer one, to go on with it."
        )
    keys, times = _pairs(state) if format_ == 1 else _gaps(state)
    read = _State(
        _number(state, "max_age_us"),
        _number(state, "max_keys", optional=True),
        _number(state, "latest_us", optional=True),
        _number(state, "since_us", optional=True),
        keys,
        times,
        *_counts(state),
    )
    _check(read)
    return read


def _pairs(state: Mapping[str, Any]) -> tuple[list[str], list[int]]:
    seen = _list(state, "seen")
    if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in seen):
        raise _damaged("seen is not a list of pairs")
    return [key for key, _ in seen], [at for _, at in seen]


def _gaps(state: Mapping[str, Any]) -> tuple[list[str], list[int]]:
    times: list[int] = []
    at = 0
    for gap in _list(state, "gaps_us"):
        if not _whole(gap):
            raise _damaged("gaps_us holds something else than whole numbers")
        at += gap
        times.append(at)
    return list(_list(state, "keys")), times


def _counts(state: Mapping[str, Any]) -> tuple[int, dict[int, int], int]:
    """Pushes, ages of duplicates, early evictions; nothing was counted before there were counts."""
    stats = state.get("stats")
    if stats is None:
        return 0, {}, 0
    if not isinstance(stats, Mapping):
        raise _damaged("stats is no mapping")
    ages = _list(stats, "ages_us")
    if not all(isinstance(pair, list | tuple) and len(pair) == 2 and all(map(_whole, pair)) for pair in ages):
        raise _damaged("ages_us is not a list of pairs of whole numbers")
    return _number(stats, "pushes"), dict(ages), _number(stats, "evicted_early")


def _list(state: Mapping[str, Any], name: str) -> list[Any] | tuple[Any, ...]:
    value = state.get(name)
    if not isinstance(value, list | tuple):
        raise _damaged(f"{name} is not a list")
    return value


def _number(state: Mapping[str, Any], name: str, optional: bool = False) -> Any:
    value = state.get(name, ...)
    if _whole(value) or (optional and value is None):
        return value
    raise _damaged(f"{name} is not a whole number")


def _check(read: _State) -> None:
    if len(read.keys) != len(read.times):
        raise _damaged(f"it has {len(read.keys)} keys and {len(read.times)} times")
    if not all(isinstance(key, str) for key in read.keys):
        raise _damaged("a key is not a text")
    if len(set(read.keys)) != len(read.keys):
        raise _damaged("a key is there twice")
    _check_times(read)


def _check_times(read: _State) -> None:
    if not all(map(_whole, read.times)) or read.times != sorted(read.times):
        raise _damaged("the times do not rise")
    if read.keys and read.latest_us is None:
        raise _damaged("it has keys, but no latest time")
    times = [us for us in (*read.times[:1], *read.times[-1:], read.latest_us) if us is not None]
    points = [*times, *(us for us in (read.since_us,) if us is not None)]
    if times != sorted(times) or not all(_FIRST_US <= us <= _LAST_US for us in points):
        raise _damaged("a time is out of range")
    if not all(0 < us <= _LAST_US - _FIRST_US for us in (read.max_age_us, *read.ages_us)):
        raise _damaged("an age is out of range")


def _whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _damaged(why: str) -> ValueError:
    return ValueError(f"This is no state of a window, or a damaged one: {why}.")
