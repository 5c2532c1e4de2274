"""A framework is tested where it is installed (`tools/setup-agents`); elsewhere its tests are left out."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

# Nothing leaves this machine: what frameworks would tell their makers, or look up there, is switched off,
# here and in the processes that tests start. Only where there is a framework: this file is read wherever
# tests run, and others test OpenTelemetry.
if find_spec("langgraph") or find_spec("crewai"):
    os.environ.update(
        ANONYMIZED_TELEMETRY="false",
        CREWAI_DISABLE_TELEMETRY="true",
        CREWAI_DISABLE_VERSION_CHECK="true",
        CREWAI_TRACING_ENABLED="false",
        DO_NOT_TRACK="1",
        FASTMCP_CHECK_FOR_UPDATES="off",
        LANGCHAIN_TRACING_V2="false",
        LANGSMITH_TRACING="false",
        OPENAI_AGENTS_DISABLE_TRACING="1",
        OTEL_SDK_DISABLED="true",
    )

# CrewAI pins what the others have outgrown, so it has an environment of its own.
APART = {"test_crewai.py": "crewai"}

collect_ignore = [
    each.name
    for each in Path(__file__).parent.glob("test_*.py")
    if not find_spec(APART.get(each.name, "langgraph"))
]
