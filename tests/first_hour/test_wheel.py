"""What would be published: built, looked at, and installed where nothing else is."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.first_hour import fresh
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.full


def done(
    *command: str, cwd: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the wheel, which was made from the source archive beside it."""
    folder = tmp_path_factory.mktemp("dist")
    clone = fresh.copied(tmp_path_factory.mktemp("clone"))
    built = done(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(clone))
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    [wheel] = built.glob("*.whl")
    return wheel


def test_a_package_index_would_take_them(built: Path) -> None:
    files = [str(path) for path in built.iterdir()]
    assert len(files) == 2
    checked = done(sys.executable, "-m", "twine", "check", "--strict", *files)
    assert checked.returncode == 0, checked.stdout


def test_the_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
    source = fresh.ROOT / "src"
    files = {
        path.relative_to(source).as_posix()
        for path in (source / "semel").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert set(names) == files
    assert {"semel/py.typed", "semel/stores/redis/steps/claim.lua"} <= files


def test_the_source_archive_has_what_tests_need(built: Path) -> None:
    [archive] = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {"Makefile", "tools/setup", "tools/published_readme.py", "constraints.txt", "LICENSE"} <= names
    assert "tests/first_hour/test_wheel.py" in names


def test_no_link_of_its_page_leads_nowhere(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [name] = (name for name in archive.namelist() if name.endswith("/METADATA"))
        page = archive.read(name).decode().partition("\n\n")[2]
    targets = re.findall(r"\]\(([^)\s]+)\)", page) + re.findall(r'\ssrc="([^"]+)"', page)
    assert targets
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


class Installed:
    """An environment with the wheel and what it asks for, outside of the repository."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        (folder / "home").mkdir()
        self.environment = fresh.environment(folder / "home")
        self._venv = folder / "venv"
        self.ok(sys.executable, "-m", "venv", str(self._venv))
        pip = (str(self._venv / "bin/python"), "-m", "pip", "--disable-pip-version-check")
        self.ok(*pip, "install", "--quiet", "-c", str(fresh.ROOT / "constraints.txt"), str(wheel))
        self.ok(*pip, "check")

    def ok(self, *command: str) -> str:
        ended = self.run(*command)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return done(*command, cwd=self.folder, env=self.environment)

    def semel(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run(str(self._venv / "bin/semel"), *words)

    def python(self, code: str) -> str:
        return self.ok(str(self._venv / "bin/python"), "-c", code)

    def processor_s(self, code: str) -> float:
        """Of a processor, not by the clock: how busy the machine is does not count."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.python(code)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"), wheel)


def test_the_demo_tells_its_story_without_a_clone(installed: Installed) -> None:
    demo = installed.semel("demo")
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert demo.stdout.splitlines()[-1] == "Without Semel 4 refunds, with it 1."
    assert max(map(len, demo.stdout.splitlines())) <= 80


def test_a_tool_is_safe_with_the_wheel_alone(installed: Installed) -> None:
    program = """
import semel

@semel.tool_contract
def pay(order: str) -> str:
    print("paid")
    return order

for _ in range(3):
    semel.step(conversation="a", step="b").run(pay, "order-1")
"""
    assert installed.python(program) == "paid\n"
    assert installed.semel("records", "list").returncode == 0


def test_what_needs_an_extra_names_it(installed: Installed) -> None:
    refused = installed.semel("serve", "--dev")
    assert (refused.returncode, 'pip install "semel[gateway]"' in refused.stderr) == (4, True), refused.stderr
    refused = installed.semel("doctor", "--url", "redis://localhost")
    assert (refused.returncode, 'pip install "semel[redis]"' in refused.stderr) == (4, True), refused.stderr


def test_importing_it_costs_little_beside_pydantic(installed: Installed) -> None:
    """It costs a quarter as much, far from the bound: what a burdened machine adds cannot decide this."""
    for code in ("import semel", "from pydantic import BaseModel"):
        installed.python(code)  # compiled now
    rounds = range(5)
    ours = min(installed.processor_s("import semel") for _ in rounds)
    pydantics = min(installed.processor_s("from pydantic import BaseModel") for _ in rounds)
    assert ours < 1.3 * pydantics
