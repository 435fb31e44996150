# Needs only Python >= 3.11 and make; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# A worker per core: more threads only get in each other's way.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

.PHONY: demo test test-all lint docs bench clean

demo: $(VENV)/.installed
	$(BIN)/dpspectral demo --out demo-report

test: $(VENV)/.installed-test lint  # a few minutes: at least one test of every claim
	$(PYTEST) -m "not slow"

test-all: $(VENV)/.installed-test lint  # also kills, exhaustive searches, audits, real data, pages and deployment scripts
	$(PYTEST)

lint: $(VENV)/.installed-test
	$(BIN)/ruff check src tests benchmarks docs
	$(BIN)/ruff format --check src tests benchmarks docs
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

docs: $(VENV)/.installed-docs  # a folder of pages that needs no server: site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean
	@echo "site/index.html"

bench: $(VENV)-bench/.installed  # about half an hour; peers live in environments of their own
	$(VENV)-bench/bin/python benchmarks/kernel.py
	$(VENV)-bench/bin/python benchmarks/decompositions.py
	$(VENV)-bench/bin/python benchmarks/private_pca.py --peers $(VENV)-bench-private/bin/python
	$(VENV)-bench/bin/python benchmarks/growth.py

clean:
	rm -rf $(VENV) $(VENV)-bench $(VENV)-bench-private demo-report site

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; set PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -e .
	@touch $@

$(VENV)/.installed-test: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -e '.[test]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -e '.[docs]'
	@touch $@ $(VENV)/.installed

$(VENV)-bench/.installed: pyproject.toml benchmarks/requirements.txt benchmarks/requirements-private.txt
	$(PYTHON) -m venv $(VENV)-bench
	$(VENV)-bench/bin/python -m pip install --quiet --disable-pip-version-check -e . -r benchmarks/requirements.txt
	$(PYTHON) -m venv $(VENV)-bench-private
	$(VENV)-bench-private/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/requirements-private.txt
	@touch $@
