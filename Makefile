# Everything runs in .venv, which every target sets up by itself. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1

.PHONY: help dev demo test check docs servers dashboards stack stack-check schemas scale load chaos runs bench chapter chapter-page lint types layers
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

$(VENV)/ready: pyproject.toml requirements-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip setuptools
	$(BIN)/python -m pip install -q -r requirements-dev.txt
	$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .
	touch $@

dev: $(VENV)/ready  ## set up .venv with everything that demo, check and test need

demo: dev  ## train with a shifted loss mask, watch the gauges, see the alert and its first test; then a healthy run
	@# A critical alert makes the exit code 1: here it is what we came for.
	$(BIN)/rltriage train --fault mask_shift --steps 12 --listen 127.0.0.1:0; test $$? -eq 1
	@echo; echo "the same without the fault stays silent:"; echo
	$(BIN)/rltriage train --steps 8 --fail-on info

docs: dev  ## write the generated parts of the pages anew, and the rules of deploy/kubernetes
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

stack: dev servers  ## Prometheus, Alertmanager, the on-call page and a run with a planted fault, here, without Docker
	$(BIN)/python deploy/stack.py

stack-check: dev servers  ## the same without you: exit 0 if the fault is an alert within a minute and everything stops
	$(BIN)/python deploy/stack.py --check

schemas: dev  ## fetch the schemas of Kubernetes, prometheus-operator and compose that the manifests are tested with
	@$(BIN)/python deploy/fetch_schemas.py || echo "the manifests' schemas are not checked (with CI=1 the tests fail)" >&2

scale: dev servers  ## what many runs cost a Prometheus, measured (twenty minutes), then `make docs`
	$(BIN)/python benchmarks/scale.py

dashboards: dev  ## write deploy/grafana and the generated files of deploy/prometheus anew
	$(BIN)/rltriage export --grafana deploy/grafana
	$(BIN)/rltriage rules compile --kind meta -o deploy/prometheus/meta-alerts.yaml
	$(BIN)/rltriage rules compile --kind recording -o deploy/prometheus/recording.yaml

load: dev  ## 1,000 runs of 60 metrics, a row a second each, for two minutes: processor time, memory, lag, scrape
	$(BIN)/python benchmarks/load.py --runs 1000 --seconds 120

chaos: dev  ## kill the service 50 times while receivers fail, count what arrives (about 10 minutes)
	$(BIN)/python benchmarks/chaos.py --kills 50

runs: dev  ## train all recorded runs again (half an hour on two free cores), and the shipped reference
	$(BIN)/python benchmarks/runs.py

bench: dev  ## judge the recorded runs, write docs/detection.md; fails below the bars
	$(BIN)/rltriage bench
	$(BIN)/python benchmarks/margins.py
	$(BIN)/python benchmarks/variations.py
	$(BIN)/python benchmarks/detection.py

chapter: dev  ## run the chapter's experiments again and write docs/chapter.md (a quarter of an hour on two free cores)
	$(BIN)/python -m rltriage.trainer.chapter --seeds 0-4 --processes 2

chapter-page: dev  ## write docs/chapter.md from the recorded runs (a minute)
	$(BIN)/python benchmarks/chapter.py

test: dev check servers schemas  ## set-up, check, then the tests
	@sh tests/exporters/page/fetch_chromium.sh || echo "the browser tests are skipped (with CI=1 they fail)" >&2
	@sh tests/exporters/page/fetch_axe.sh || echo "axe-core could not be fetched: the tests for barriers are skipped"
	@sh tests/exporters/grafana/fetch_schema.sh || echo "the dashboards' types are not checked (with CI=1 and npm they fail)" >&2
	@sh tests/trainer/hooks/fetch_frameworks.sh || echo "the tests with verl's and OpenRLHF's own loggers are skipped"
	$(BIN)/python -m pytest -n 2 tests
