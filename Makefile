# Every target makes .venv and installs what it needs by itself: `make run` only what users need.
PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed
RUNTIME := $(VENV)/.installed-to-run

.PHONY: run test test-slow test-all test-versions dist conformance interop-suites public-servers check bench docs tables mutants evidence clean format

run: $(RUNTIME)  ## serve everything that is configured here, or two demo servers, as one
	@$(BIN)/fairlead up $(ARGS)

# Compiled tests are kept, so that only the first run has to compile them.
export PYTHONDONTWRITEBYTECODE :=

PYTEST := $(BIN)/python -m pytest -n 4 --dist worksteal

test: $(STAMP)  ## the tests that take seconds, in four processes; ARGS="-n 0 ..." for one
	@$(PYTEST) -m "not slow" $(ARGS)

test-slow: $(STAMP)  ## the others: peers, chaos, and what takes long
	@$(PYTEST) -m slow $(ARGS)

test-all: $(STAMP)  ## all tests, with more examples than `make test` tries
	@$(PYTEST) $(ARGS)

# In PATH and in the folders of pyenv and uv; each version is tested, even if another one fails.
test-versions:  ## `make test` on every supported interpreter of this machine
	@versions=$$($(PYTHON) scripts/interpreters.py) || exit 1; \
	$(MAKE) --no-print-directory -k $$(printf 'test-on-%s ' $$versions)

test-on-%:
	@echo "Python $*:"
	@test -x .cache/python$*/bin/python || "$$($(PYTHON) scripts/interpreters.py $*)" -m venv .cache/python$*
	@.cache/python$*/bin/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	@.cache/python$*/bin/python -m pytest -n 4 --dist worksteal -m "not slow" $(ARGS)

dist: $(STAMP)  ## wheel and source distribution, into dist/
	@rm -rf dist
	@$(BIN)/python -m build --outdir dist .

conformance: $(STAMP)  ## the official conformance suite, with Node from npm if need be
	@$(BIN)/python tests/conformance/run.py $(ARGS)

interop-suites: $(STAMP)  ## other SDKs' tests through Fairlead; ARGS="--sample 60" for a part
	@$(BIN)/python tests/suites/run.py $(ARGS)

public-servers: $(STAMP)  ## published servers, raw and behind the proxy
	@$(BIN)/python tests/suites/public_servers.py $(ARGS)

check: $(STAMP)  ## format, lint and types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/mypy tests/typing

format: $(STAMP)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(STAMP)  ## ratios against the other runtimes, in one interleaved run
	@$(BIN)/python -m bench $(ARGS)

mutants: $(STAMP)  ## change one line at a time and check that a test fails; ARGS="--seed 7 --count 20"
	@PYTHONPATH=scripts $(BIN)/python -m mutants $(ARGS)

tables: $(STAMP)  ## write the tables of the documentation that come from code and tests
	@$(BIN)/python scripts/generate_docs.py

evidence: $(STAMP)  ## run everything that docs/evidence.md reports, and write it down; two hours
	@$(BIN)/python tests/conformance/run.py --record evidence/conformance.json
	@$(BIN)/python tests/suites/run.py --record evidence/interop.json
	@$(BIN)/python tests/suites/public_servers.py --record evidence/public-servers.json
	@$(BIN)/python scripts/record_tests.py evidence/chaos.json tests/chaos tests/attacks
	@PYTHONPATH=scripts $(BIN)/python -m mutants --record evidence/mutants.json
	@$(BIN)/python -m bench.attack_load --json evidence/attack-load.json
	@$(BIN)/python -m bench.token_flood --json evidence/token-flood.json
	@$(BIN)/python -m bench.known_tokens --json evidence/known-tokens.json
	@$(BIN)/python -m bench
	@$(BIN)/python scripts/generate_docs.py

docs: $(VENV)/.docs  ## the documentation site, into site/; broken links and anchors are errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@$(BIN)/python -m pytest tests/test_docs.py tests/test_generated_docs.py

INSTALL = $(BIN)/python -m pip install --disable-pip-version-check

# What users need, without the tools of developers; pip shows how far it is.
$(RUNTIME): pyproject.toml
	@echo "Installing Fairlead and the libraries it needs into $(VENV), once:"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) -e .
	@touch $@

$(STAMP): pyproject.toml
	@echo "Installing Fairlead and the development tools into $(VENV), once; this takes a minute or two ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) -q -e '.[dev]'
	@touch $@ $(RUNTIME)

$(VENV)/.docs: $(STAMP)
	@$(INSTALL) -q -e '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) bench/.env .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage site build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
