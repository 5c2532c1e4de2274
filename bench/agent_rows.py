"""The rows about agent frameworks: what an integration adds to a run with one call of a no-op tool.

A run is a message of the user, the model's call, the tool, the model's last words. Both sides run in the
framework's environment (`tools/setup-agents`), each in a process of its own; the model is scripted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from bench.figures import Unit, alone, times
from bench.plan import Experiment, ExperimentResources
from bench.rivals import ProcessSide
from bench.servers import REPOSITORY
from bench.sides import MissingSide, Side

FRAMEWORKS = {
    "langgraph": "LangGraph",
    "pydantic_ai": "Pydantic AI",
    "openai_agents": "OpenAI Agents",
    "google_adk": "Google ADK",
    "agent_framework": "Microsoft Agent Framework",
    "anthropic": "Anthropic",
    "crewai": "CrewAI",
}

# CrewAI pins what the others have outgrown.
ENVIRONMENTS = dict.fromkeys(FRAMEWORKS, REPOSITORY / ".venv-agents") | {
    "crewai": REPOSITORY / ".venv-crewai"
}


def _sides(framework: str) -> Callable[[ExperimentResources], Iterator[Side]]:
    def sides(_: ExperimentResources) -> Iterator[Side]:
        for side in ("guarded", "alone"):
            yield side_of(framework, side)

    return sides


def side_of(framework: str, side: str) -> Side:
    environment = ENVIRONMENTS[framework]
    python = environment / "bin" / "python"
    if not python.exists():
        return MissingSide(side, f"There is no {environment.name}: `make bench` makes it.")
    words = [str(python), "-m", "bench.agent_calls", framework, side]
    paths = os.pathsep.join((str(REPOSITORY / "src"), str(REPOSITORY)))
    return ProcessSide(side, words, {**os.environ, "PYTHONPATH": paths})


def _experiment(framework: str, title: str) -> Experiment:
    name = f"agents-{framework.replace('_', '-')}"
    return Experiment(
        name,
        (
            times(
                f"{name}-run",
                f"{title}, memory: a run with one call of a no-op tool / without Semel",
                None,
                "guarded",
                "alone",
            ),
            alone(f"{name}-alone", f"{title}: the same run without Semel", Unit.MILLISECONDS, "alone"),
        ),
        _sides(framework),
        operations=30,
        quick_operations=2,
        needs="agents",
    )


EXPERIMENTS = tuple(_experiment(*each) for each in FRAMEWORKS.items())
