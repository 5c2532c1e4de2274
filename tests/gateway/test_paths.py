"""A path names one resource, or nothing."""

from __future__ import annotations

import pytest

from semel.gateway.paths import PathTable
from semel.gateway.routes import ROUTES

RESOURCES = {
    "/healthz": "health",
    "/api/v1/runs": "runs",
    "/api/v1/runs/{run_id}": "run",
    "/api/v1/runs/{run_id}/timeline": "timeline",
    "/api/v1/audit/duplicates": "duplicates",
}


@pytest.mark.parametrize(
    ("path", "resource", "names"),
    [
        ("/healthz", "health", {}),
        ("/api/v1/runs", "runs", {}),
        ("/api/v1/runs/r1", "run", {"run_id": "r1"}),
        ("/api/v1/runs/r1/timeline", "timeline", {"run_id": "r1"}),
        ("/api/v1/runs/timeline", "run", {"run_id": "timeline"}),
        ("/api/v1/runs/{run_id}", "run", {"run_id": "{run_id}"}),
        ("/api/v1/audit/duplicates", "duplicates", {}),
    ],
)
def test_a_path_names_its_resource_and_what_its_name_stands_for(
    path: str, resource: str, names: dict[str, str]
) -> None:
    assert PathTable(RESOURCES).find(path) == (resource, names)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "healthz",
        "/healthz/",
        "/api/v1/runs/",
        "/api/v1/runs//timeline",
        "/api/v1/runs/r1/",
        "/api/v1/runs/r1/timeline/",
        "/api/v1/runs/r1/timeline\n",
        "/api/v1/runs/r1/timeline/more",
        "/api/v1//r1",
        "//api/v1/runs/r1",
        "/api/v1/audit/",
        "/api/v1/audit/other",
        "/" * 10_000,
    ],
)
def test_every_other_path_names_nothing(path: str) -> None:
    assert PathTable(RESOURCES).find(path)[0] is None


def test_every_path_of_the_routes_is_found() -> None:
    paths = PathTable({route.path: route.path for route in ROUTES})
    for route in ROUTES:
        resource, names = paths.find(route.path)
        assert resource == route.path
        assert all(value == f"{{{name}}}" for name, value in names.items())


@pytest.mark.parametrize(
    "paths",
    [
        ("/api/v1/runs/{run_id}", "/api/v1/runs/{job_id}"),
        ("/api/v1/{kind}",),
        ("/api/v1/runs/{run_id}/{step_id}",),
    ],
)
def test_a_table_in_which_a_path_could_mean_two_things_is_not_made(paths: tuple[str, ...]) -> None:
    with pytest.raises((AssertionError, IndexError)):
        PathTable({path: path for path in paths})
