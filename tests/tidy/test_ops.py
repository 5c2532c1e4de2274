"""The files under ops/ that people copy: each can be read, and what it tells Semel is something Semel knows.

Nothing is started here: there is no container engine and no cluster at a desk.
"""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml  # type: ignore[import-untyped]

from semel.cli import main
from semel.gateway.settings import GatewaySettings, read
from tools.pages import ROOT

OPS = ROOT / "ops"
UNITS = sorted(OPS.glob("*.service"))
CONTAINERFILE = (OPS / "Containerfile").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((OPS / "compose.yaml").read_text(encoding="utf-8"))
KUBERNETES = list(yaml.safe_load_all((OPS / "kubernetes.yaml").read_text(encoding="utf-8")))


def kinds(kind: str) -> dict[str, Any]:
    return {each["metadata"]["name"]: each for each in KUBERNETES if each["kind"] == kind}


def unit(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(path)
    return parser


def containers(deployment: dict[str, Any]) -> list[dict[str, Any]]:
    return deployment["spec"]["template"]["spec"]["containers"]


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """Everything that these files ask `semel` to do."""
    for name in ("gateway", "worker"):
        yield f"compose {name}", COMPOSE["services"][name]["command"]
    for name, deployment in kinds("Deployment").items():
        yield f"kubernetes {name}", containers(deployment)[0]["args"]
    for path in UNITS:
        yield path.name, unit(path)["Service"]["ExecStart"].split()[1:]
    yield "Containerfile", json.loads(re.findall(r"^CMD (\[.+\])$", CONTAINERFILE, re.MULTILINE)[0])


def parse(words: list[str]) -> click.Context:
    """As the command would read them, without doing it; a UsageError for what it does not know."""
    command = main.commands[words[0]]
    return command.make_context(words[0], words[1:])


@pytest.mark.parametrize(("name", "words"), [pytest.param(*each, id=each[0]) for each in command_lines()])
def test_the_command_knows_what_it_is_told(name: str, words: list[str]) -> None:
    assert parse(words).params


def test_a_command_line_that_is_wrong_is_found() -> None:
    with pytest.raises(click.UsageError):
        parse(["serve", "--no-such-flag"])
    with pytest.raises(click.UsageError):
        parse(["worker"])


def test_compose_gives_the_gateways_settings_that_can_be_meant() -> None:
    for service in ("gateway", "worker"):
        settings = read({}, COMPOSE["services"][service]["environment"])
        assert settings.url.startswith("postgresql://")
        assert settings.bus == "nats://nats:4222"


def test_every_variable_is_one_that_is_read() -> None:
    known = {f"SEMEL_{name.upper()}" for name in _settings()} | {"SEMEL_API_KEY"}
    named = set()
    for path in [*OPS.iterdir()]:
        named |= set(re.findall(r"\bSEMEL_[A-Z_]+", path.read_text(encoding="utf-8")))
    assert {"SEMEL_URL", "SEMEL_BUS"} <= named
    assert named <= known


def _settings() -> set[str]:
    return {re.sub(r"_us$|_per_s$", "", name) for name in GatewaySettings.__dataclass_fields__}


def test_there_are_two_gateways_each_asked_whether_it_is_ready_and_alive() -> None:
    gateway = kinds("Deployment")["semel-gateway"]
    assert gateway["spec"]["replicas"] == 2
    assert COMPOSE["services"]["gateway"]["deploy"]["replicas"] == 2
    [container] = containers(gateway)
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"


def test_selectors_select_what_is_there() -> None:
    for deployment in kinds("Deployment").values():
        spec = deployment["spec"]
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"].items() <= labels.items()
    pods = kinds("Deployment")["semel-gateway"]["spec"]["template"]["metadata"]["labels"]
    assert kinds("Service")["semel-gateway"]["spec"]["selector"].items() <= pods.items()
    budget = kinds("PodDisruptionBudget")["semel-gateway"]["spec"]
    assert budget["selector"]["matchLabels"].items() <= pods.items()


def test_nothing_runs_as_root_and_the_users_agree() -> None:
    [uid] = re.findall(r"--uid (\d+)", CONTAINERFILE)
    assert re.search(r"^USER semel$", CONTAINERFILE, re.MULTILINE)
    for deployment in kinds("Deployment").values():
        rights = deployment["spec"]["template"]["spec"]["securityContext"]
        assert rights["runAsNonRoot"]
        assert rights["runAsUser"] == int(uid)
    for path in UNITS:
        assert unit(path)["Service"]["DynamicUser"] == "yes"


def test_whoever_stops_one_waits_for_as_long_as_it_may_take() -> None:
    patience_s = 30  # of requests in flight, and of running jobs
    for deployment in kinds("Deployment").values():
        assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > patience_s
    for path in UNITS:
        assert int(unit(path)["Service"]["TimeoutStopSec"]) > patience_s
    for service in ("gateway", "worker"):
        assert int(COMPOSE["services"][service]["stop_grace_period"].rstrip("s")) > patience_s


def test_no_password_is_written_down() -> None:
    for path in OPS.iterdir():
        for password in re.findall(
            r"(?:PASSWORD|API_KEY)\s*[:=]\s*([^?\s]\S*)", path.read_text(encoding="utf-8")
        ):
            assert password.startswith(("${", "…"))


def test_the_page_names_every_file() -> None:
    page = (ROOT / "docs/operate/deploy.md").read_text(encoding="utf-8")
    watching = ("alerts.yml", "grafana.json")  # on the pages about running it
    files = {path.name for path in OPS.iterdir() if not path.name.endswith(watching)}
    assert [name for name in files if f"/ops/{name})" not in page] == []


@pytest.mark.full
def test_what_the_container_copies_is_enough_to_install_from(tmp_path: Path) -> None:
    copies = re.findall(r"^COPY (.+) /src/(\S*)$", CONTAINERFILE, re.MULTILINE)
    for names, folder in copies:
        for source in (ROOT / name for name in names.split()):
            target = tmp_path / folder
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "made"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert list((tmp_path / "made").glob("semel-*.whl"))


@pytest.mark.full
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_reads_the_unit(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace("/srv/semel/bin/semel", "/bin/true")
    name = path.name.replace("@", "@shop")
    (tmp_path / name).write_text(text, encoding="utf-8")
    said = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / name)], capture_output=True, text=True, check=False
    )
    assert [line for line in said.stderr.splitlines() if name in line] == []
