# `make test` and `make serve` are each enough on their own; both set up what is missing first.
#
#   make test ARGS="-k refund"    only some of its tests; with test-all, of all but the soaks
#   make bench ROWS=memory,redis  only some rows; agents: those of agent frameworks; ARGS="--quick --json" and others: python -m bench --help
#   make scoreboard ONLY=semel,idemkit TRIALS=killed-inside  only some libraries, only some trials
#   make serve ARGS="--port 0"    another port, here any that is free
#   make soak SHORT=yes           storms of 40 s and the failovers, no more
#   make setup PYTHON=python3.12  another interpreter (default: the first of at least 3.11 that is found)

PYTHON ?=
EXTRAS ?= dev,all
ARGS ?=
ROWS ?=
SHORT ?=
ONLY ?=
TRIALS ?=

BIN := .venv/bin
# One environment: what `make serve` runs, and later, where tests are run, all the rest beside it.
SERVING := .venv/.serving
STAMP := .venv/.installed
RIVALS := .venv-rivals
TYPED := src tests tools bench scoreboard $(wildcard examples)

.DEFAULT_GOAL := help
.PHONY: help setup serve demo test test-all test-agents check format bench scoreboard docs screenshots soak clean

help:
	@echo "serve        the gateway on SQLite, with a worker and a sample; Ctrl-C stops it"
	@echo "demo         the Sunday incident: one refund, three crashes, paid once"
	@echo "test         everything that decides, in minutes; then check"
	@echo "test-all     test, then the rest: every store and fault, every agent framework"
	@echo "test-agents  the agent frameworks alone, in environments of their own"
	@echo "check        format, lint, types"
	@echo "format       put the code into its format"
	@echo "docs         the site in build/site; links hold, and pages do what they say"
	@echo "bench        measure here; writes docs/figures.md, picture and README's rows"
	@echo "scoreboard   try Semel beside other packages; writes docs/scoreboard.md"
	@echo "soak         the long races; writes docs/evidence.md (SHORT=yes: 15 minutes)"
	@echo "screenshots  the console's pictures in docs/assets/console, taken anew"
	@echo "setup        .venv with all of it, and Debian packages that tests need"
	@echo "clean        caches and build output"

setup: $(STAMP)

# Remade only when what they install has changed.
$(STAMP): pyproject.toml constraints.txt tools/setup
	@PYTHON="$(PYTHON)" EXTRAS="$(EXTRAS)" tools/setup .venv
	@touch $(SERVING) $@

$(SERVING): pyproject.toml constraints.txt tools/setup
	@PYTHON="$(PYTHON)" EXTRAS=console tools/setup .venv
	@touch $@

serve: $(SERVING)
	@$(BIN)/semel serve --dev --sample --url sqlite:///semel.db $(ARGS)

demo: $(SERVING)
	@$(BIN)/semel demo

# Two more than there are cores: many tests wait for leases, servers and processes.
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2) + 2)

PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# Fault tests start some thousand processes; without its compiled modules each would take half as long again.
unexport PYTHONDONTWRITEBYTECODE

# tests/storeys.py says what is `full`, that is left to test-all.
test: setup
	$(PYTEST) -m "not full and not slow" $(ARGS)
	@$(MAKE) --no-print-directory check

# What test did not run. Given ARGS, whatever they choose of both.
test-all: $(if $(ARGS),setup,test)
	$(PYTEST) -m "$(if $(ARGS),,full and )not slow" $(ARGS)
	$(if $(ARGS),,@$(MAKE) --no-print-directory test-agents)

# Agent frameworks have environments of their own: they pin much. One process serves all tests of a framework.
test-agents: .venv-agents/.installed
	.venv-agents/bin/python -m pytest -n $(WORKERS) --dist loadscope $(or $(ARGS),tests/agents)
	$(if $(ARGS),,.venv-crewai/bin/python -m pytest tests/agents)

.venv-agents/.installed: pyproject.toml $(wildcard tests/agents/constraints*.txt) $(wildcard tools/setup*)
	@PYTHON="$(PYTHON)" tools/setup-agents
	@touch $@

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy $(TYPED)

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Without rows or arguments it measures everything, and makes the page of figures of it.
bench: setup $(RIVALS)/.installed
	$(if $(or $(findstring agents,$(ROWS)),$(if $(ROWS),,all)),$(INSTALL_FRAMEWORKS))
	$(BIN)/python -m bench $(if $(ROWS),--rows $(ROWS),$(if $(ARGS),,--write)) $(ARGS)

# The agent frameworks; as with what the bench compares with, their rows say so where there are none.
INSTALL_FRAMEWORKS = @$(MAKE) --no-print-directory .venv-agents/.installed || echo "bench: the frameworks are not all here"

# What the bench compares with. Where it cannot be installed, its rows say so and the others are measured.
$(RIVALS)/.installed: bench/rivals.txt
	@$(BIN)/python -m venv $(RIVALS) \
	&& $(RIVALS)/bin/python -m pip install --quiet --disable-pip-version-check -r $< && touch $@ \
	|| echo "bench: the packages of $< could not be installed"

# Each library in an environment of its own, under .venv-scoreboard, which is made when it is missing.
scoreboard: setup
	$(BIN)/python -m scoreboard $(if $(ONLY),--only "$(ONLY)") $(if $(TRIALS),--trials $(TRIALS)) $(ARGS)

# The site into build/site, from nothing but this folder; then every page is done as it says.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python -m tools.check_docs

# The pictures of the documentation, from the sample and the scenes of the tests.
screenshots: setup
	$(BIN)/python -m tools.screenshots

# The storms, shorter, and the failovers: what the page of evidence is about, without the races and machines.
SHORT_SOAK := tests/faults/test_storm.py tests/faults/test_failovers.py tests/faults/test_nats.py

# A soak may run for an hour; what hangs longer is stuck. Without ARGS it writes docs/evidence.md.
soak: export SEMEL_SOAK_SHORT := $(SHORT)
soak: export SEMEL_STORM_S := $(or $(SEMEL_STORM_S),$(if $(SHORT),40,150))
soak: setup
	$(BIN)/python -m pytest -m slow --hypothesis-profile soak --timeout 3600 $(or $(ARGS),--evidence docs/evidence.json $(if $(SHORT),$(SHORT_SOAK)))

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests tools bench scoreboard $(wildcard examples) -name __pycache__ -type d -prune -exec rm -rf {} +
