# Everything runs in .venv, which every target sets up by itself. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1

.PHONY: help dev demo test check docs servers stack stack-check fetch scale load chaos fuzz runs bench extra gaps chapter chapter-page lint types layers
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

# What demo and stack need: the package with its page, and torch as it is pinned. `make dev` puts the rest on top.
$(VENV)/core: pyproject.toml
	@if [ -f $(VENV)/ready ]; then touch $@; exit 0; fi; \
	echo "setting up $(VENV) with PyTorch and a dozen small packages: about 1 GB, two or three minutes, once" && \
	$(PYTHON) -m venv $(VENV) && \
	$(BIN)/python -m pip install -q --upgrade pip setuptools && \
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install -q --no-build-isolation "$$(grep '^torch==' requirements-dev.txt)" -e '.[trainer,web]' && \
	touch $@

$(VENV)/ready: pyproject.toml requirements-dev.txt
	@$(MAKE) --no-print-directory $(VENV)/core
	@echo "adding the tools for checks and tests, and the frameworks that the hooks are tested with: about 1 GB more"
	@$(BIN)/python -m pip install -q -r requirements-dev.txt
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .
	@touch $@

dev: $(VENV)/ready  ## set up .venv with everything that check and test need

demo: $(VENV)/core  ## train with a shifted loss mask, watch the gauges, see the alert and its first test; then a healthy run
	@# A critical alert makes the exit code 1: here it is what we came for.
	@echo "$$ $(BIN)/rltriage train --fault mask_shift --steps 12 --listen 127.0.0.1:0"
	@$(BIN)/rltriage train --fault mask_shift --steps 12 --listen 127.0.0.1:0; test $$? -eq 1
	@echo; echo "the same without the fault stays silent:"; echo
	@echo "$$ $(BIN)/rltriage train --steps 8 --fail-on info"
	@$(BIN)/rltriage train --steps 8 --fail-on info
	@echo; echo "to run rltriage by its name, as above:  . $(BIN)/activate"

docs: dev  ## write the generated parts of the pages and of deploy/ anew
	$(BIN)/python docs/build.py

check: dev lint types layers  ## style, types and layers, against what is shipped

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types layers: .build/lib/.stamp

.build/lib/.stamp: $(shell git ls-files '*.py' pyproject.toml)
	rm -rf build .build/lib
	$(BIN)/python -m pip install -q --no-deps --no-build-isolation --target .build/lib .
	touch $@

types:
	MYPYPATH=.build/lib $(BIN)/mypy --config-file pyproject.toml -p rltriage

layers:
	cd .build/lib && ../../$(BIN)/lint-imports --config ../../.importlinter --no-cache

servers:  ## fetch Prometheus and Alertmanager for the tests (Debian, Ubuntu); elsewhere put them on the PATH
	@sh deploy/fetch_servers.sh || echo "tests with real servers are skipped (with CI=1 they fail)" >&2

stack: $(VENV)/core servers  ## Prometheus, Alertmanager, the on-call page and a run with a planted fault, here, without Docker
	$(BIN)/python deploy/stack.py

stack-check: $(VENV)/core servers  ## the same without you: exit 0 if the fault is an alert within a minute and everything stops
	$(BIN)/python deploy/stack.py --check

fetch: dev servers  ## fetch what else some tests need: a browser, schemas, files of frameworks, an editor's language server
	@$(BIN)/python tests/fetch.py || echo "the tests that need them are skipped (with CI=1 they fail)" >&2

scale: dev servers  ## what many runs cost a Prometheus, measured (twenty minutes), then `make docs`
	$(BIN)/python benchmarks/scale.py

load: dev  ## 1,000 runs of 60 metrics, a row a second each, for two minutes: processor time, memory, lag, scrape
	$(BIN)/python benchmarks/load.py --runs 1000 --seconds 120 --record

chaos: dev  ## kill a service twice 50 times while receivers, disk and clock fail, count what arrives (about 8 minutes)
	$(BIN)/python benchmarks/chaos.py --kills 50 --sessions 2 --record

FUZZ_SECONDS ?= 60

fuzz: dev  ## hostile input to everything that reads some, guided by coverage: 18 targets, FUZZ_SECONDS (60) each
	@$(BIN)/python -m pip install -q 'atheris>=3,<4' || echo "without Atheris the variants are drawn by chance" >&2
	$(BIN)/python benchmarks/fuzz.py --seconds $(FUZZ_SECONDS)

runs: dev  ## train all recorded runs again (half an hour on two free cores), and the shipped reference
	$(BIN)/python benchmarks/runs.py

bench: dev  ## judge the recorded runs, write docs/detection.md; fails below the bars
	$(BIN)/rltriage bench
	$(BIN)/python benchmarks/margins.py
	$(BIN)/python benchmarks/variations.py
	$(BIN)/python benchmarks/detection.py

extra: dev  ## train the faults beyond the chapter's and write what sees each (five minutes on a free core)
	$(BIN)/python benchmarks/extra_faults.py
	$(BIN)/python docs/build.py

gaps: dev  ## measure why three numbers differ from the chapter's (ten minutes on a free core); then chapter-page
	$(BIN)/python benchmarks/chapter_gaps.py

chapter: dev  ## run the chapter's experiments again and write docs/chapter.md (a quarter of an hour on two free cores)
	$(BIN)/python -m rltriage.trainer.chapter --seeds 0-4 --processes 2

chapter-page: dev  ## write docs/chapter.md from the recorded runs (a minute)
	$(BIN)/python benchmarks/chapter.py

test: dev check fetch  ## set-up, check, then the tests
	$(BIN)/python -m pytest -n 2 tests
