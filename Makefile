# `make demo` and `make test` work on a bare checkout: each makes the virtual environment it needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint paper benchmark clean

demo: $(VENV)/ready
	$(BIN)/zoar demo --out runs/demo

test: lint
	$(BIN)/pytest

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The figures under results/, on the machine at hand.
benchmark: $(VENV)/ready
	$(BIN)/python benchmarks/step_overhead.py --json results/step_overhead.json

paper: $(VENV)/ready
	$(BIN)/python benchmarks/paper_settings.py --out results/paper_settings

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) runs
