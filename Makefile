# Every target makes what it needs. Wanted beforehand: Python 3.10 or later with venv, a package registry that pip
# reaches, and for the tests a C compiler and node.

PYTHON ?= python3
SRC ?= sglang==0.5.9
WORKSPACE ?= .sgltrace
RUNS ?= 0512_base 0512_eagle3_v1 0512_eagle3_v2 0512_standalone_v2 0514_base 0514_eagle3_v2 0514_eagle3_v2_off4 \
  eagle3_v2_tp2
EXPERIMENTS ?= eagle3_v2_b_0.5.12.post1
PYTEST ?=
WORKERS ?= auto
BIN := .venv/bin

.PHONY: report test lint ruff types imports docs format clean

# Index a release of SGLang and say where its report lies, with what was recorded on H200s in it (fixtures/traces).
# Another release, the one that was recorded: make report SRC=sglang==0.5.12.post1
report: .venv/installed
	$(BIN)/sgltrace index "$(SRC)" -o "$(WORKSPACE)" --no-report
	$(BIN)/sgltrace report -w "$(WORKSPACE)" $(addprefix --run fixtures/traces/,$(RUNS)) \
	  $(patsubst %,--experiment fixtures/whatif/%.json,$(EXPERIMENTS))

# Run the tests, a file at a time on each core: many of them wait for processes. Some of them: make test
# PYTEST='-k sources'; in one process, as a debugger wants it: make test WORKERS=0
test: .venv/installed-dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(PYTEST)

lint: ruff types imports

ruff: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Under src/ the folders lie under the names that they are installed under, for checkers and editors.
types: .venv/installed-dev
	$(BIN)/mypy

imports: .venv/installed-dev
	PYTHONPATH=src $(BIN)/lint-imports

# The documentation as a site, in build/site. A link that leads nowhere is an error.
docs: .venv/installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

format: .venv/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv build dist

.venv/installed: pyproject.toml | .venv/made
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

.venv/installed-dev: pyproject.toml tests/constraints.txt | .venv/made
	$(BIN)/python -m pip install --quiet --constraint tests/constraints.txt --editable '.[run,dev]'
	touch $@ .venv/installed

.venv/made:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "sgltrace needs Python 3.10 or later; make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	touch $@
