# Two commands for a newcomer: `make demo` and `make test`.
# Anything else needed is installed into .venv and, where apt and root are there, from Debian's packages.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore

.DEFAULT_GOAL := help
.PHONY: help demo demo-vllm test test-prometheus3 lint types unit build check pack previews install tools test-tools triton bench differential clean

help:
	@echo "make demo       play a real Triton incident through the rules (needs Prometheus; installs it by apt)"
	@echo "make demo-vllm  the same for a real vLLM incident"
	@echo "make test       all that CI runs: lint, types, the pack's own checks and tests, the test suite"
	@echo "make test-prometheus3  the pack's checks and tests and the test suite on Prometheus 3 (fetched from Debian sid into .venv)"
	@echo "make build      write rules, dashboards and docs;  make check: find faults in them"
	@echo "make previews   draw every dashboard from both recordings, as pages and pictures under previews/"
	@echo "make differential  hold the backtest's alert states against promtool on 1,000 random cases (minutes)"
	@echo "make bench      measure build, check and rule evaluation"

# --- set-up -----------------------------------------------------------------------------------------
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "make: $(PYTHON) is older than 3.10; name a newer one with PYTHON=python3.12" >&2; exit 3; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "make: Python's venv module is missing; install it: apt-get install python3-venv" >&2; exit 3; }

$(VENV)/.pack: pyproject.toml | $(VENV)/bin/python
	@echo "installing obs and what it needs into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --editable '.[pack]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	@echo "installing obs and its development tools into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $(VENV)/.pack $@

# A real Triton for the live tests, where its wheel runs; elsewhere those tests skip and say why.
$(VENV)/.triton: pyproject.toml tests/triton/requirements.txt | $(VENV)/.dev
	@if [ "$$(uname -sm)" = "Linux x86_64" ]; then \
	  echo "installing a real Triton server (55 MB) for the live tests ..."; \
	  $(BIN)/python -m pip install --quiet --no-deps -r tests/triton/requirements.txt || echo "no Triton wheel for this Python: its live tests will skip"; \
	fi
	@touch $@

install: $(VENV)/.dev

tools:
	@sh scripts/get-prometheus.sh

# What only tests need: Alertmanager and amtool (routes, the end-to-end incident), a browser (what pages look like).
test-tools: tools
	@sh scripts/get-apt.sh prometheus-alertmanager=prometheus-alertmanager amtool=prometheus-alertmanager chromium=chromium

# --- the newcomer's commands --------------------------------------------------------------------------
demo: $(VENV)/.pack tools
	@sh scripts/demo.sh triton-2.51-incident triton

demo-vllm: $(VENV)/.pack tools
	@sh scripts/demo.sh vllm-0.32-incident vllm --end +35s

test: $(VENV)/.dev $(VENV)/.triton test-tools lint types pack unit

lint: $(VENV)/.dev
	@$(BIN)/ruff check obs tests
	@$(BIN)/lint-imports

types: $(VENV)/.dev
	@$(BIN)/mypy

pack: $(VENV)/.dev tools
	@$(BIN)/obs build --check
	@$(BIN)/obs build --check --config examples/obs.yaml --out examples/pack
	@$(BIN)/obs build --check --config examples/obs.yaml --out examples/pack --format alertmanager,podmonitor,scrape
	@$(BIN)/obs build --check --config compose/obs.yaml --out compose --format alertmanager
	@$(BIN)/obs check
	@$(BIN)/obs test

unit: $(VENV)/.dev $(VENV)/.triton test-tools
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest

# The same with another Prometheus: what tests start and ask is named by PROMETHEUS and PROMTOOL (obs/prom/tools.py).
PROMETHEUS3 := $(CURDIR)/$(VENV)/prometheus3
test-prometheus3: $(VENV)/.dev
	@sh scripts/get-prometheus3.sh "$(PROMETHEUS3)"
	@PROMETHEUS="$(PROMETHEUS3)/usr/bin/prometheus" PROMTOOL="$(PROMETHEUS3)/usr/bin/promtool" $(MAKE) --no-print-directory pack unit

# --- daily work ---------------------------------------------------------------------------------------
build: $(VENV)/.pack
	@$(BIN)/obs build
	@$(BIN)/obs build --config examples/obs.yaml --out examples/pack
	@$(BIN)/obs build --config examples/obs.yaml --out examples/pack --format alertmanager,podmonitor,scrape
	@$(BIN)/obs build --config compose/obs.yaml --out compose --format alertmanager

check: $(VENV)/.pack tools
	@$(BIN)/obs check

RECORDINGS := tests/data/recordings
previews: $(VENV)/.pack test-tools
	@$(BIN)/obs preview --all --png --out previews/triton \
	  --recording $(RECORDINGS)/triton-2.51-incident.tar.gz --config $(RECORDINGS)/triton.obs.yaml
	@$(BIN)/obs preview --all --png --out previews/vllm --to +35s \
	  --recording $(RECORDINGS)/vllm-0.32-incident.tar.gz --config $(RECORDINGS)/vllm.obs.yaml

bench: $(VENV)/.dev tools
	@$(BIN)/python tests/bench/bench.py

differential: $(VENV)/.dev tools
	@$(BIN)/python -m tests.evaluate.differential --cases 1000

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis previews
