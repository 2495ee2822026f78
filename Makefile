# Every target makes what it needs: a virtual environment in the project, from nothing but Python >= 3.11 and make.
#
#   make test       the tests, without the long ones        make demo      the worked example, about a minute
#   make test-all   all of them                             make examples  the small examples
#   make lint       style, types, layers                    make bench     jaxchunk beside its peers (ARGS="--rows chain")
#   make conformance  the array API standard's own suite (EXAMPLES=200, CHUNKS=3 for tiny chunks)

PYTHON ?= python3
VENV   ?= .venv
JOBS   ?= 2
ARGS   ?=
EXAMPLES ?= 20
CHUNKS ?=
BIN    := $(VENV)/bin

.DELETE_ON_ERROR:
.PHONY: help test test-all conformance doctest lint format examples demo bench clean

help:
	@sed -n 's/^#   //p' Makefile

test: $(VENV)/.test
	$(BIN)/python -m pytest -n $(JOBS) $(ARGS)

# The long tests measure the memory of child processes: one at a time.
test-all: $(VENV)/.test
	$(BIN)/python -m pytest -n $(JOBS) $(ARGS)
	$(BIN)/python -m pytest -m long $(ARGS)

# The suite's checkout is the one in ARRAY_API_TESTS_DIR, or else a clone below out/.
conformance: $(VENV)/.conformance
	$(BIN)/python -m conformance --workers $(JOBS) --examples $(EXAMPLES) $(if $(CHUNKS),--chunks $(CHUNKS)) $(ARGS)

doctest: $(VENV)/.test
	$(BIN)/python -m pytest -q --doctest-modules jaxchunk

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

examples: $(VENV)/.demo
	for file in examples/[a-z]*.py; do echo "== $$file"; $(BIN)/python "$$file" || exit 1; done

demo: $(VENV)/.demo
	$(BIN)/python examples/sst_climatology.py $(ARGS)

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks run $(ARGS)

clean:
	rm -rf out build dist

# One environment, one stamp for each set of extras in it.
$(VENV)/.test $(VENV)/.conformance $(VENV)/.demo $(VENV)/.bench: $(VENV)/.%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "jaxchunk needs Python 3.11 or newer; name one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
