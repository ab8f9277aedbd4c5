# Everything a checkout can do. Needs python3 (3.11 or newer), git and make; all else is set up in $(VENV).
#
#   make demo                           set up, then lose a machine of a real training job and watch it come back
#   make test                           set up, then the quick tests
#   make test-all                       every test there is, those before a release too
#   make PYTHON=python3.12 demo         another interpreter
#   make docs                           the documentation as a site: open site/index.html
#   make bench SEEDS=1 BENCH_ARGS='--faults hang'
#   make chaos BENCH_ARGS='--seed 7 --minutes 20'    one job under faults of all kinds
#   make TORCH_INDEX_URL=URL setup      torch from a package index of its own, such as the one with the CPU builds

PYTHON ?= python3
VENV ?= .venv
TORCH_INDEX_URL ?=
PYTEST_ARGS ?=
SEEDS ?= 5
BENCH_ARGS ?=
# One more than there are cores: some tests wait for processes of their own.
WORKERS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) + 1 | awk '{print ($$1 > 8) ? 8 : $$1}')
BIN := $(VENV)/bin
STAMP := $(VENV)/.minder-setup
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: setup demo test test-rest test-all check lint types layers docs reference bench chaos clean
.DEFAULT_GOAL := test

setup: $(STAMP)

# torch comes first and by itself: its index, if one is named, has the right build of torch but not everybody else's newest release.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "minder needs Python 3.11 or newer as '$(PYTHON)': name another one with make PYTHON=/path/to/python3.12" >&2; exit 2; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q $(if $(TORCH_INDEX_URL),--no-deps --index-url $(TORCH_INDEX_URL)) -c constraints.txt torch
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[controller,torch,models,serve,postgres,kubernetes,placement,notebooks,docs,dev,trainers]'
	@touch $@

demo: setup
	$(BIN)/minder demo

# Two threads that print a traceback with carets at once break ast.parse of CPython 3.11 for the rest of the process: without carets none parses.
test test-rest test-all: export PYTHONNODEBUGRANGES := 1

# Without compiled modules every process that a test starts compiles minder anew, and each worker rewrites every test file.
unexport PYTHONDONTWRITEBYTECODE

test: setup
	$(BIN)/python -m pytest -m "not lab and not server and not root and not release" -n $(WORKERS) --dist loadfile --durations=20 $(PYTEST_ARGS)

# Most of them wait: two at a time take little more than half as long, and their labs know nothing of one another.
test-rest: setup
	$(BIN)/python -m pytest -m "(lab or server or root) and not release" -n 2 --dist worksteal --reruns 1 --durations=20 $(PYTEST_ARGS)

test-all: setup
	$(BIN)/python -m pytest $(PYTEST_ARGS)

check: lint types layers

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

layers: setup
	$(BIN)/lint-imports

# docs/reference/ from the code: commands, configuration, the service's API.
reference: setup
	$(BIN)/python docs/tools/generate.py

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# The faults come last: they take hours with five seeds. elastic_baseline.py is started by faults.py.
bench: setup
	@set -e; for script in $(filter-out bench/faults.py bench/elastic_baseline.py,$(wildcard bench/*.py)); do \
		echo "== $$script"; $(BIN)/python "$$script"; done
	$(BIN)/python bench/faults.py --seeds $(SEEDS) $(BENCH_ARGS)

chaos: setup
	$(BIN)/python bench/chaos.py $(BENCH_ARGS)

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
