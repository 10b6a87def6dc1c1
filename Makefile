# Two commands: `make quickstart` and `make test`. They need Python ≥ 3.11 with pip, no more;
# uv is used where it is installed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# The commit since which changes count; without one, that of the last record, .ci/last_passed.json.
SINCE = $(if $(BASE),$(BASE),$$($(BIN)/python -m tools.selection --base))

.PHONY: quickstart test test-slow test-changed test-all test-daily test-oldest test-newest test-recipes check lint types imports docs docs-check paper clean

quickstart: $(STAMP)  ## the main job: theory against networks on handwritten digits
	$(BIN)/largen quickstart

test: $(STAMP)  ## what a change is held against; SHAPES=1 checks shapes at every call as well
	$(BIN)/pytest -n 2 --dist worksteal -q -m "not slow" $(if $(SHAPES),,--without-shapes) \
	  $(if $(BASE),--changed-since $(BASE))

test-slow: $(STAMP)  ## statistical checks and long computations, each of them seconds to minutes
	$(BIN)/pytest -n 2 --dist worksteal -q -m slow $(if $(WITHIN),--within $(WITHIN)) \
	  $(if $(BASE),--changed-since $(BASE))

test-changed: $(STAMP)  ## quick and slow tests that can reach a change since BASE=HEAD~3
	$(BIN)/pytest -n 2 --dist worksteal -q --changed-since "$(SINCE)" $(if $(BASE),,--record)

test-all: $(STAMP)  ## every test, with shapes; if they pass, the commit is written down
	$(BIN)/pytest -n 2 --dist worksteal -q --daily --record

test-daily: $(STAMP)  ## long draws of data, networks and calls, by a seed of the day
	$(BIN)/pytest -q -m daily --daily tests/ordinary

# With the lowest versions that pyproject.toml claims, and on the newest Python that is there: the
# packages that reach furthest into others, in about two minutes each.
PART := tests/test_import.py tests/cli tests/files tests/runs tests/architectures tests/expectations/test_closed_forms.py \
  tests/networks/test_training.py tests/regression/test_given_kernels.py tests/regression/large \
  tests/regression/estimators/test_parameters.py tests/theories/test_select.py
FOR_PART := pytest hypothesis beartype mpmath
NEWEST ?= $(shell for p in python3.14 python3.13 python3.12 \
  $$(ls -rd $$HOME/.pyenv/versions/3.1[2-9]*/bin/python3 2>/dev/null); do \
  $$p -c "" 2>/dev/null && echo $$p && break; done)

test-oldest:  ## a part of the tests with the lowest versions of all that largen needs
	$(PYTHON) -m venv $(VENV)-uv && $(VENV)-uv/bin/python -m pip install -q uv
	$(VENV)-uv/bin/uv venv -q --allow-existing --python $(PYTHON) $(VENV)-oldest
	$(VENV)-uv/bin/uv pip install -q --python $(VENV)-oldest/bin/python --resolution lowest-direct -e '.[large]'
	$(VENV)-uv/bin/uv pip install -q --python $(VENV)-oldest/bin/python $(FOR_PART)
	$(VENV)-oldest/bin/python -m pytest -q --default-compiler -m "not slow" $(PART)

test-newest:  ## the same part on the newest Python of this machine, with the newest versions
	@if [ -z "$(NEWEST)" ]; then echo "test-newest: not run, there is no Python from 3.12 on"; else \
	  $(NEWEST) -m venv $(VENV)-newest && \
	  $(VENV)-newest/bin/python -m pip install -q -e '.[large]' $(FOR_PART) && \
	  $(VENV)-newest/bin/python --version && \
	  $(VENV)-newest/bin/python -m pytest -q --default-compiler -m "not slow" $(PART); fi

test-recipes:  ## recipes of the transfer guide with the newest trainers of other libraries
	$(PYTHON) -m venv $(VENV)-recipes
	$(VENV)-recipes/bin/python -m pip install -q -e '.[torch]' $(FOR_PART) transformers peft accelerate lightning optuna
	$(VENV)-recipes/bin/python -m pytest -q -rs -m "slow or not slow" tests/transfer/torch/test_recipes.py

check: test-all lint types imports  ## what CI runs, and tests that no change can reach

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/pyright --pythonpath $(BIN)/python

imports: $(STAMP)
	$(BIN)/lint-imports

$(STAMP): pyproject.toml
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv -q --allow-existing --python '>=3.11' $(VENV) && \
	  uv pip install -q --python $(BIN)/python -e . --group dev; \
	else \
	  $(PYTHON) -m venv $(VENV) && \
	  $(BIN)/python -m pip install -q --upgrade 'pip>=25.1' && \
	  $(BIN)/python -m pip install -q -e . --group dev; \
	fi
	@touch $(STAMP)

# The site, with nothing in it that is fetched when it is read; pages are executed.
docs: $(VENV)/.docs  ## the documentation, docs/_build/html/index.html
	$(PAGES)
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html
	$(BIN)/python docs/check_site.py docs/_build/html

PAGES = for page in reference equations by_seed gallery evidence; do \
  PYTHONPATH=. $(BIN)/python docs/make_$$page.py || exit 1; done

docs-check: $(VENV)/.docs  ## the site without running its code, which the slow tests do
	$(PAGES)
	$(BIN)/python -m sphinx -q -W --keep-going -D nb_execution_mode=off \
	  -D suppress_warnings=myst-nb.lexer -b html docs docs/_build/check
	$(BIN)/python docs/check_site.py docs/_build/check

paper: $(STAMP)  ## the manuscript, with numbers from what commands wrote
	PYTHONPATH=. $(BIN)/python paper/make_paper.py

$(VENV)/.docs: $(STAMP)
	@if command -v uv >/dev/null 2>&1; then \
	  uv pip install -q --python $(BIN)/python --group docs; \
	else $(BIN)/python -m pip install -q --group docs; fi
	@touch $(VENV)/.docs

clean:
	rm -rf $(VENV) $(VENV)-uv $(VENV)-oldest $(VENV)-newest
