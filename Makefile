# Two commands: `make quickstart` and `make test`. They need Python ≥ 3.11 with pip, no more;
# uv is used where it is installed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: quickstart test check lint types imports clean

quickstart: $(STAMP)  ## the main job: theory against networks on handwritten digits
	$(BIN)/largen quickstart

test: $(STAMP)  ## every test, the slow ones too
	$(BIN)/pytest -n 2 --dist worksteal -q

check: test lint types imports  ## what CI runs

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

clean:
	rm -rf $(VENV)
