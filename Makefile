# Needs only Python >= 3.11 and make; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# A worker per core: more threads only get in each other's way.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

.PHONY: demo check test test-all test-site test-versions package lint docs bench clean

demo: $(VENV)/.installed
	$(BIN)/dpspectral demo --out demo-report

test: $(VENV)/.installed-test lint  # a few minutes: at least one test of every claim
	$(PYTEST) -m "not slow"

test-all: $(VENV)/.installed-test lint  # also kills, exhaustive searches, audits, real data, pages and deployment scripts
	$(PYTEST)

# A quick test of every room, the sensitivities and the same bits: at most a minute and a half on 2 cores.
CHECK := core linalg release models audit methods/test_power.py methods/test_dense.py methods/test_decompose.py \
  methods/test_result.py privacy/test_units.py privacy/test_enforcement.py privacy/test_shares.py \
  privacy/test_popularity.py privacy/test_moments_sensitivity.py privacy/test_budget.py privacy/test_ledger.py \
  privacy/test_runs.py privacy/test_units_adversary.py privacy/test_ledger_file.py methods/test_catalogue.py \
  data/test_same_bits.py data/test_identity.py data/test_datasets.py protocols/test_secure_sum.py \
  protocols/test_simulated.py protocols/test_masks.py protocols/test_ring.py protocols/test_shamir.py \
  protocols/test_refusals.py protocols/test_one_question.py deploy/test_policy.py streams/test_private_stream.py \
  studies/test_bounds.py studies/test_metrics.py studies/test_baselines.py studies/test_claims.py reports/test_pages.py cli/test_cli_map.py
check: $(VENV)/.installed-test lint  # while working; `make test` before a commit
	$(PYTEST) -m "not slow and not statistical" -k "not hostile and not each_warning" $(addprefix tests/,$(CHECK))

lint: $(VENV)/.installed-test
	$(BIN)/ruff check src tests benchmarks docs
	$(BIN)/ruff format --check src tests benchmarks docs
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

docs: $(VENV)/.installed-docs  # a folder of pages that needs no server: site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean
	@echo "site/index.html"

test-site: $(VENV)/.installed-test  # after `make docs`: the built site in Chromium: links, widths, search from a folder; axe-core if named
	DPSPECTRAL_SITE=site $(BIN)/python -m pytest tests/docs/test_site.py -rs

bench: $(VENV)-bench/.installed  # about half an hour; peers live in environments of their own
	$(VENV)-bench/bin/python benchmarks/kernel.py
	$(VENV)-bench/bin/python benchmarks/decompositions.py
	$(VENV)-bench/bin/python benchmarks/private_pca.py --peers $(VENV)-bench-private/bin/python
	$(VENV)-bench/bin/python benchmarks/growth.py

package: $(VENV)-package/.installed  # wheel and sdist in dist/, checked, and tried in an empty environment; dist/sbom.json
	rm -rf dist
	$(VENV)-package/bin/python -m build --outdir dist .
	$(VENV)-package/bin/twine check --strict dist/*
	$(VENV)-package/bin/python tests/deployment/wheel.py dist

test-versions:  # every Python that is here, with the newest and (3.11) the lowest versions of what we depend on
	$(PYTHON) tests/deployment/versions.py

clean:
	rm -rf $(VENV) $(VENV)-* demo-report site dist

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

$(VENV)-package/.installed:
	$(PYTHON) -m venv $(VENV)-package
	$(VENV)-package/bin/python -m pip install --quiet --disable-pip-version-check build twine cyclonedx-bom
	@touch $@
