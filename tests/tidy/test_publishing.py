"""What is published says who, what and where; and nothing publishes by itself."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

import semel
from semel.gateway import front_page
from tests.tidy.source import ROOT
from tools.published_readme import published

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]


def workflow(name: str) -> dict[Any, Any]:
    content: dict[Any, Any] = yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text())
    # YAML of old reads the word `on` as true.
    return content | {"on": content[True]}


def test_the_version_is_the_same_everywhere_and_has_a_section_in_the_changelog() -> None:
    assert PROJECT["version"] == semel.__version__
    assert re.search(
        rf"^## {re.escape(semel.__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )


def test_the_project_says_where_it_lives_and_on_which_pythons_it_runs() -> None:
    assert {"Homepage", "Documentation", "Repository", "Changelog", "Issues"} <= PROJECT["urls"].keys()
    assert PROJECT["urls"]["Documentation"] == front_page.DOCS
    of_python = "Programming Language :: Python :: "
    named = [name.removeprefix(of_python) for name in PROJECT["classifiers"] if name.startswith(of_python)]
    assert [name for name in named if "." in name] == PYTHONS


@pytest.mark.parametrize(("name", "job"), [("ci", "test"), ("release", "install")])
def test_every_python_is_tried_on_linux_and_on_macos(name: str, job: str) -> None:
    matrix = workflow(name)["jobs"][job]["strategy"]["matrix"]
    assert matrix["python"] == PYTHONS
    assert {system.partition("-")[0] for system in matrix["os"]} == {"ubuntu", "macos"}


def test_nothing_is_published_unless_a_person_says_so() -> None:
    release = workflow("release")
    assert set(release["on"]) == {"workflow_dispatch"}
    assert release["on"]["workflow_dispatch"]["inputs"]["publish"]["default"] is False
    publishing = {
        f"{name}: {job}"
        for name in ("ci", "release")
        for job, content in workflow(name)["jobs"].items()
        if "publish" in str(content["steps"]) or "id-token" in str(content)
    }
    assert publishing == {"release: publish"}
    assert release["jobs"]["publish"]["if"].startswith("inputs.publish &&")
    assert release["jobs"]["publish"]["environment"] == "release"


def test_workflows_run_what_the_makefile_has() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    steps = [step for job in workflow("ci")["jobs"].values() for step in job["steps"]]
    made = {word for step in steps for word in re.findall(r"\bmake ([a-z-]+)", step.get("run", ""))}
    assert made
    assert made <= targets
    assert (ROOT / ".ci/run").exists()


def test_plain_make_names_every_target_and_fits_80_columns() -> None:
    makefile = (ROOT / "Makefile").read_text()
    [targets] = re.findall(r"^\.PHONY: help (.+)$", makefile, re.MULTILINE)
    lines = re.findall(r'^\t@echo "([^"]+)"$', makefile, re.MULTILINE)
    assert {line.split()[0] for line in lines} == set(targets.split())
    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("See [start](docs/start.md#a).", "See [start](https://host/blob/v1.2.3/docs/start.md#a)."),
        ("![it](./a.svg)", "![it](https://host/raw/v1.2.3/a.svg)"),
        ("[![it](a.svg)](b.md)", "[![it](https://host/raw/v1.2.3/a.svg)](https://host/blob/v1.2.3/b.md)"),
        ('<img alt="" src="b.png">', '<img alt="" src="https://host/raw/v1.2.3/b.png">'),
        ("[start]: docs/start.md", "[start]: https://host/blob/v1.2.3/docs/start.md"),
        ("[x](https://y.org/z) [here](#here)", "[x](https://y.org/z) [here](#here)"),
    ],
)
def test_links_of_the_readme_are_addresses_where_it_is_published(written: str, shown: str) -> None:
    assert published(written, "https://host", "1.2.3") == shown
