"""Which resource a path names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

R = TypeVar("R")

# Where a path has its name: /api/v1/runs/{run_id}/timeline, counted from the empty text before the first /.
_PLACE = 4


class PathTable(Generic[R]):
    """Resources by their paths: two look-ups, whatever the number of paths.

    A path may have one name, `{so}`, in the place that is the same for all; it stands for any one segment.
    """

    def __init__(self, resources: Mapping[str, R]) -> None:
        self._fixed = {path: resource for path, resource in resources.items() if "{" not in path}
        self._named = {
            _nameless(path): (resource, path.split("/")[_PLACE].strip("{}"))
            for path, resource in resources.items()
            if path not in self._fixed
        }
        assert len(self._fixed) + len(self._named) == len(resources), "two paths differ only by a name"

    def find(self, path: str) -> tuple[R | None, dict[str, str]]:
        """The resource, and what its name stands for here; None if the path names nothing."""
        resource = self._fixed.get(path)
        if resource is not None:
            return resource, {}
        # No further: a path may have as many segments as a header has bytes.
        segments = path.split("/", _PLACE + 1)
        if len(segments) <= _PLACE or not (value := segments[_PLACE]):
            return None, {}
        segments[_PLACE] = ""
        resource, name = self._named.get("/".join(segments), (None, ""))
        return resource, {name: value}


def _nameless(path: str) -> str:
    segments = path.split("/")
    segments[_PLACE] = ""
    assert "{" not in "".join(segments), f"{path} has its name in another place than the other paths"
    return "/".join(segments)
