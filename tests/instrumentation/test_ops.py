"""Rules and dashboards: Prometheus can read them, they fire when they should, and name only what is there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.instrumentation.test_prometheus import PROMISED
from tests.missing import cannot
from tests.patience import PATIENCE_S

OPS = Path(__file__).resolve().parent.parent.parent / "ops"
RULES = sorted(OPS.glob("*alerts.yml"))
BOARDS = sorted(OPS.glob("*grafana.json"))

# Of prometheus-client itself, in every process that has it.
OF_THE_PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes"}


def promtool(*words: str, folder: Path = OPS) -> None:
    """It says that all is well."""
    if shutil.which("promtool") is None:
        cannot("promtool is missing: apt-get install prometheus")
    ended = subprocess.run(
        ["promtool", *words], cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def queries(board: Path) -> list[str]:
    panels = json.loads(board.read_text(encoding="utf-8"))["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def alerts(rules: Path) -> list[dict[str, Any]]:
    groups = yaml.safe_load(rules.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def test_there_are_rules_and_a_dashboard_for_gateways_and_for_tools() -> None:
    assert [each.name for each in RULES] == ["alerts.yml", "tools-alerts.yml"]
    assert [each.name for each in BOARDS] == ["grafana.json", "tools-grafana.json"]


@pytest.mark.parametrize("rules", RULES, ids=lambda path: path.name)
def test_prometheus_reads_the_rules(rules: Path) -> None:
    promtool("check", "rules", "--lint-fatal", rules.name)


@pytest.mark.parametrize("board", BOARDS, ids=lambda path: path.name)
def test_prometheus_reads_every_query_of_a_dashboard(board: Path, tmp_path: Path) -> None:
    asked = [query.replace("$__rate_interval", "5m").replace("$tool", ".*") for query in queries(board)]
    rules = [{"record": f"query_{number}", "expr": query} for number, query in enumerate(asked)]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))
    promtool("check", "rules", "queries.yml", folder=tmp_path)


def test_the_alerts_of_tools_fire_when_they_should_and_not_otherwise() -> None:
    promtool("test", "rules", "alerts_test.yml", folder=Path(__file__).parent)


def test_every_alert_of_tools_has_a_test_a_severity_and_advice() -> None:
    tested = (Path(__file__).parent / "alerts_test.yml").read_text(encoding="utf-8")
    page = (OPS.parent / "docs" / "operate" / "instrumentation.md").read_text(encoding="utf-8")
    for rule in alerts(OPS / "tools-alerts.yml"):
        assert f'alertname="{rule["alert"]}"' in tested
        assert f"`{rule['alert']}`" in page
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert {"summary", "description"} <= rule["annotations"].keys()


def test_rules_and_dashboard_of_tools_name_only_what_a_process_shows_and_all_of_it() -> None:
    asked = queries(OPS / "tools-grafana.json") + [rule["expr"] for rule in alerts(OPS / "tools-alerts.yml")]
    named = {name for query in asked for name in re.findall(r"\b(?:semel|process)_\w+", query)}
    shown = {name.removesuffix("_bucket") for name in named}
    assert shown == PROMISED.keys() | OF_THE_PROCESS
    for query in asked:
        for name, selector in re.findall(r"(semel_\w+)\{([^}]*)\}", query):
            used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))
            assert used <= PROMISED[name.removesuffix("_bucket")] | {"job", "instance"}, query
