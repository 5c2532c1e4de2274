# `make test` and `make serve` are each enough on their own; both set up what is missing first.
#
#   make test ARGS="-k refund"    only some of its tests; with test-all, of all but the soaks
#   make bench ROWS=memory,redis  only some rows; ARGS="--quick --json" and others: python -m bench --help
#   make setup PYTHON=python3.12  another interpreter (default: the first of at least 3.11 that is found)

PYTHON ?=
EXTRAS ?= dev,all
ARGS ?=
ROWS ?=

BIN := .venv/bin
STAMP := .venv/.installed
RIVALS := .venv-rivals
TYPED := src tests tools bench $(wildcard examples)

.DEFAULT_GOAL := help
.PHONY: help setup serve demo test test-all check format bench docs soak clean

help:
	@echo "setup     virtual environment in .venv, and Debian packages that tests need"
	@echo "serve     the gateway on SQLite (semel.db), with a small workflow to try; Ctrl-C stops it"
	@echo "demo      the Sunday incident: one refund, three crashes, with and without Semel"
	@echo "test      everything that decides, in minutes; then check"
	@echo "test-all  test, then the rest: every store, every fault, Temporal"
	@echo "check     format, lint, types"
	@echo "format    put the code into its format"
	@echo "bench     the figures of docs/figures.md, measured here"
	@echo "docs      links hold and examples in README and docs run"
	@echo "soak      the long races, with other chances each time"
	@echo "clean     caches and build output"

setup: $(STAMP)

# Remade only when what it installs has changed.
$(STAMP): pyproject.toml constraints.txt tools/setup
	@PYTHON="$(PYTHON)" EXTRAS="$(EXTRAS)" tools/setup .venv
	@touch $@

serve: setup
	@$(BIN)/semel serve --dev --sample $(ARGS)

demo: setup
	@$(BIN)/semel demo

# One more than there are cores: many tests wait for leases, servers and processes.
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2) + 1)

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

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy $(TYPED)

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup $(RIVALS)/.installed
	$(BIN)/python -m bench $(if $(ROWS),--rows $(ROWS)) $(ARGS)

# What the bench compares with. Where it cannot be installed, its rows say so and the others are measured.
$(RIVALS)/.installed: bench/rivals.txt
	@$(BIN)/python -m venv $(RIVALS) \
	&& $(RIVALS)/bin/python -m pip install --quiet --disable-pip-version-check -r $< && touch $@ \
	|| echo "bench: the packages of $< could not be installed"

docs: setup
	$(BIN)/python -m tools.check_docs

# A soak may run for an hour; what hangs longer is stuck.
soak: setup
	$(BIN)/python -m pytest -m slow --hypothesis-profile soak --timeout 3600 $(ARGS)

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests tools bench $(wildcard examples) -name __pycache__ -type d -prune -exec rm -rf {} +
