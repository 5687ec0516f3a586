# Every target sets the environment up by itself: .venv is made when it is missing or the lock has changed.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3.11
VENV := .venv
TORCH := .torch
BIN := $(VENV)/bin

# Call with the GB that a target takes; without, a full disk ends in an error of pip's that names no cause.
define refuse_small_disk
	@free=$$(df -Pk . | awk 'NR == 2 {print int($$4 / 1000000)}'); \
	[ "$$free" -ge $(1) ] || { echo "make: $@ takes up to $(1) GB, and $$free GB are free in $(CURDIR); make room"; exit 1; }
endef

.PHONY: help demo test test-all lint audit bench lock clean

help:
	@echo "make demo      the whole chain on data/sample, down to trained checkpoints and a summary"
	@echo "make test      the tests (under 20 minutes); make test-all adds the slow ones"
	@echo "make lint      ruff, mypy and the lock file's checks"
	@echo "make audit     known weaknesses of the dependencies (needs a network)"
	@echo "make bench     speed and memory of each data stage, as ratios in one run"
	@echo "make lock      resolve requirements.lock anew (needs uv)"
	@echo "make clean     remove .venv, caches and the demo's runs"

# The lock is installed with --no-deps because it overrides mindformers' pin of pyarrow (see pyproject.toml).
$(VENV)/.ready: requirements.lock pyproject.toml
	@command -v uv >/dev/null || $(PYTHON) --version >/dev/null 2>&1 || \
		{ echo "make: neither uv nor $(PYTHON) was found; install Python 3.11, or call make PYTHON=/path/to/python3.11"; exit 1; }
	$(call refuse_small_disk,6)
	@echo "Setting up $(VENV) (about 3.6 GB, one to three minutes) ..."
	@if command -v uv >/dev/null; then \
		uv venv --quiet --allow-existing --python 3.11 $(VENV) && \
		uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock && \
		uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable . ; \
	else \
		$(PYTHON) -m venv $(VENV) && \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock && \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . ; \
	fi
	@touch $@

# What loads exported checkpoints in the tests: PyTorch and transformers, apart from all else.
$(TORCH)/.ready: tests/torch-requirements.lock
	$(call refuse_small_disk,8)
	@echo "Setting up $(TORCH) for the tests of exported checkpoints (about 5 GB) ..."
	@if command -v uv >/dev/null; then \
		uv venv --quiet --allow-existing --python 3.11 $(TORCH) && \
		uv pip sync --quiet --python $(TORCH)/bin/python --require-hashes tests/torch-requirements.lock ; \
	else \
		$(PYTHON) -m venv $(TORCH) && \
		$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r tests/torch-requirements.lock ; \
	fi
	@touch $@

demo: $(VENV)/.ready
	@$(BIN)/mindpretrain run configs/demo.yaml

test: $(VENV)/.ready $(TORCH)/.ready
	@$(BIN)/python -m pytest -m "not slow"

test-all: $(VENV)/.ready $(TORCH)/.ready
	@$(BIN)/python -m pytest

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@! grep -nE "https?://|^--(extra-)?index-url" requirements.lock tests/torch-requirements.lock || { echo "a lock names a registry host"; exit 1; }

# In an environment of its own, so that the auditor's dependencies are not among those audited.
audit: $(VENV)/.ready
	@$(BIN)/python -m venv .audit && .audit/bin/python -m pip install --quiet --disable-pip-version-check "pip-audit>=2.7,<3"
	@.audit/bin/pip-audit --disable-pip --no-deps --requirement requirements.lock

bench: $(VENV)/.ready
	@$(BIN)/python -m tests.bench
	@$(BIN)/python -m tests.bench_dedup
	@$(BIN)/python -m tests.bench_pack
	@$(BIN)/python -m tests.bench_train

lock:
	uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-annotate --no-header --output-file requirements.lock
	uv pip compile tests/torch-requirements.in --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-annotate --no-header --output-file tests/torch-requirements.lock

clean:
	@if [ -x $(BIN)/mindpretrain ]; then $(BIN)/mindpretrain server stop; fi
	rm -rf $(VENV) $(TORCH) .audit .bench-peers runs .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find flows tasks configs tests -name __pycache__ -prune -exec rm -rf {} +
