# Everything starts here: `make demo`, `make test`. Needs Python 3.11 or newer, and make.

PYTHON  ?= python3
WORKERS ?= 2
ARGS    ?=

VENV := .venv
BIN  := $(VENV)/bin
# Errors only: the lines above each call say what goes on.
PIP  := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-input

# Azure's emulator, a program for Node. Newer ones want a newer Node.
AZURITE := 3.35.0
# Extras that have no wheels for some machines.
RARE := servers oracles runtimes learning ranks

PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test lint format soak bench bench-full bench-collections bench-loader bench-rechunk bench-stencil bench-tensors micro lab docs docs-check docs-pictures docs-reference clean

help:  ## show this list
	@echo "Hyperslab: an array store that plans every read."
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)$$/  make \1|\2/p' $(MAKEFILE_LIST) | \
	    while IFS='|' read -r name text; do printf '%-18s %s\n' "$$name" "$$text"; done
	@echo
	@echo "  PYTHON=python3.13  which Python makes .venv     WORKERS=4  test processes"
	@echo "  ARGS='-k budget'   handed on to pytest, the demo or the benchmark"

demo: $(VENV)/.core  ## see what Hyperslab does: no server, no account
	@$(BIN)/python examples/demo.py $(ARGS)

test: lint $(VENV)/.azurite-$(AZURITE) $(BIN)/aws-lambda-rie $(BIN)/redis-server  ## lint, then run all tests, doctests and the docs' Python blocks
	@echo "» tests, $(WORKERS) at a time"
	@$(PYTEST) $(ARGS)

lint: $(VENV)/.test  ## check style, types and the order of rooms
	@echo "» ruff"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check . || { echo "not formatted; 'make format' does it:"; \
	    $(BIN)/ruff format --check .; exit 1; }
	@echo "» mypy"
	@$(BIN)/mypy --no-error-summary
	@echo "» order of rooms"
	@$(BIN)/lint-imports > $(VENV)/.rooms 2>&1 || { cat $(VENV)/.rooms; exit 1; }

format: $(VENV)/.test  ## sort imports and format all files
	@$(BIN)/ruff check --quiet --select I --fix .
	@$(BIN)/ruff format --quiet .

soak: $(VENV)/.test $(VENV)/.azurite-$(AZURITE) $(BIN)/aws-lambda-rie $(BIN)/redis-server  ## the same tests with far more cases; takes hours
	@echo "» soak, $(WORKERS) at a time"
	@HYPERSLAB_SOAK=1 $(PYTEST) --timeout=7200 $(ARGS)

bench: $(VENV)/.peers  ## measure against other systems in a cloud on this machine; ten minutes, one page of figures
	@$(BIN)/python -m bench.peers.programme $(ARGS)

bench-full: $(VENV)/.peers  ## the same with more data, queries and figures; takes far longer
	@$(BIN)/python -m bench.peers.programme --scale full $(ARGS)

bench-collections: $(VENV)/.test $(VENV)/.bench $(BIN)/redis-server  ## measure small arrays against TileDB, h5py, LMDB and shards, and plans against METIS and Mt-KaHyPar
	@$(BIN)/python -m bench.collections $(ARGS)

bench-stencil: $(VENV)/.test $(VENV)/.spark  ## measure functions over neighbours against Dask and Spark
	@SPARK_PYTHON=$(CURDIR)/$(VENV)/spark/bin/python $(BIN)/python -m bench.stencil $(ARGS)
	@$(BIN)/python bench/run.py --only stencil $(ARGS)

bench-tensors: $(VENV)/.test  ## measure tensor tables against files and other stores of tensors
	@$(BIN)/python -m bench.tensors $(ARGS)

bench-rechunk: $(VENV)/.rechunkers  ## measure rechunking against Dask and rechunker; takes ten minutes
	@RECHUNKER_PYTHON=$(VENV)/rechunker/bin/python $(BIN)/python -m bench.rechunk $(ARGS)

bench-loader: $(VENV)/.test $(VENV)/.bench  ## measure training batches against downloading first, zarr-python and xbatcher
	@$(BIN)/python -m bench.loader $(ARGS)

micro: $(VENV)/.bench  ## measure single operations against other libraries on this machine
	@$(BIN)/python bench/run.py $(ARGS)

lab: $(VENV)/.bench  ## measure predictions and plans in a cloud on this machine; takes ten minutes
	@$(BIN)/python -m bench.lab.programme $(ARGS)

docs: $(VENV)/.docs  ## make the site of the documentation in build/docs; a warning is an error
	@$(BIN)/python -m sphinx -q -W --keep-going -j auto -b html -d build/doctrees docs build/docs
	@echo "» build/docs/index.html"

docs-reference: $(VENV)/.test  ## write the reference pages anew from the docstrings
	@$(BIN)/python docs/docstrings.py

docs-pictures: $(VENV)/.test  ## draw the pictures of the pages anew; look at them afterwards
	@$(BIN)/python docs/pictures.py

docs-check: $(VENV)/.test  ## run the Python blocks of README.md and docs/, check their links
	@$(PYTEST) tests/docs $(ARGS)

clean:  ## remove .venv, caches and build output
	@rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@rm -rf /dev/shm/hyperslab-$$(id -u)
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Set-up. Each stamp stands for one set of packages; a newer pyproject.toml installs it again.

$(BIN)/python:
	@command -v $(PYTHON) > /dev/null || { echo "$(PYTHON) is not there; make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Hyperslab needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) -V); try make PYTHON=python3.12"; exit 1; }
	@echo "» creating $(VENV) with $$($(PYTHON) -V)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	    echo "venv failed; on Debian and Ubuntu: apt install python3-venv"; exit 1; }

$(VENV)/.core: pyproject.toml | $(BIN)/python
	@echo "» installing Hyperslab (once, under a minute)"
	@$(PIP) -e .
	@touch $@

# Servers and oracles have no wheels for some machines. There, a person's tests skip; a CI run must have them.
$(VENV)/.test: pyproject.toml | $(BIN)/python
	@echo "» installing Hyperslab and what its tests need (once, a minute or two)"
	@if [ "$(CI)" = true ]; then $(PIP) -e '.[test,lint,servers,oracles,runtimes,learning,ranks]'; \
	else $(PIP) -e '.[test,lint,servers,oracles,runtimes,learning,ranks]' 2> /dev/null || { \
	    $(PIP) -e '.[test,lint]' && for extra in $(RARE); do \
	        $(PIP) -e ".[$$extra]" 2> $(VENV)/.pip-$$extra || \
	            echo "» '$$extra' cannot be installed here: its tests skip (why: $(VENV)/.pip-$$extra)"; \
	    done; }; fi
	@touch $(VENV)/.core $@

# The same for Azurite, which npm installs. Without its stamp it is tried again the next time.
$(VENV)/.azurite-$(AZURITE): | $(BIN)/python
	@if ! command -v npm > /dev/null; then why="npm is not there"; \
	else echo "» installing Azurite, Azure's emulator, for tests (once, under a minute)"; \
	    npm install --prefix $(VENV)/azurite --no-audit --no-fund --loglevel=error azurite@$(AZURITE) \
	        > $(VENV)/.npm 2>&1 && touch $@ || why="npm failed (why: $(VENV)/.npm)"; fi; \
	if [ -z "$$why" ]; then exit 0; fi; \
	echo "» Azurite cannot be installed here: $$why; its tests skip"; [ "$(CI)" != true ]

# AWS's emulator of Lambda, a program inside of a package that is not needed otherwise.
$(BIN)/aws-lambda-rie: | $(BIN)/python
	@echo "» fetching AWS's emulator of Lambda for tests (once, under a minute)"
	@$(BIN)/python -m pip download -qq --disable-pip-version-check --no-deps --dest $(VENV)/rie aws-sam-cli \
	        2> $(VENV)/.pip-rie && \
	    PYTHONPATH=tests $(BIN)/python tests/support/lambda_rie.py $(VENV)/rie/*.whl $@ && rm -r $(VENV)/rie || \
	    { echo "» AWS's emulator cannot be fetched: its tests skip (why: $(VENV)/.pip-rie)"; [ "$(CI)" != true ]; }

# Redis: the machine's own, or Debian's package, unpacked here.
$(BIN)/redis-server: | $(BIN)/python
	@found="$$(command -v redis-server)"; if [ -n "$$found" ]; then ln -sf "$$found" $@; \
	elif ! command -v apt-get > /dev/null || ! command -v dpkg > /dev/null; then \
	    echo "» there is no redis-server: its tests skip"; \
	else echo "» fetching Redis for tests (once, a moment)"; \
	    mkdir -p $(VENV)/redis && cd $(VENV)/redis && \
	    apt-get download -qq redis-tools libjemalloc2 liblzf1 > why 2>&1 && \
	    for package in *.deb; do dpkg -x "$$package" .; done && ln -sf redis-check-rdb usr/bin/redis-server && \
	    { echo '#!/bin/sh'; echo "LD_LIBRARY_PATH='$$(dirname $$PWD/usr/lib/*/libjemalloc.so.2)' exec '$$PWD/usr/bin/redis-server' \"\$$@\""; } > ../bin/redis-server && \
	    chmod +x ../bin/redis-server || echo "» Redis cannot be fetched: its tests skip (why: $(VENV)/redis/why)"; fi

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	@echo "» installing what makes the site (once, under a minute)"
	@$(PIP) -e '.[docs]'
	@touch $(VENV)/.core $@

$(VENV)/.bench: pyproject.toml | $(BIN)/python
	@echo "» installing Hyperslab and the libraries it is measured against (once, a minute or two)"
	@$(PIP) -e '.[bench,function,servers]'
	@touch $(VENV)/.core $@

$(VENV)/.peers: pyproject.toml bench/peers/versions.txt bench/peers/hsds.txt | $(BIN)/python
	@echo "» installing Hyperslab and the systems it is measured against (once, a few minutes)"
	@$(PIP) -r bench/peers/versions.txt -e '.[bench,function,servers,plot]'
	@$(BIN)/python -m venv $(VENV)/hsds
	@$(VENV)/hsds/bin/python -m pip install -qq --disable-pip-version-check --no-input -r bench/peers/hsds.txt
	@touch $(VENV)/.core $(VENV)/.bench $@

$(VENV)/.rechunkers: pyproject.toml bench/rechunker.txt | $(BIN)/python
	@echo "» installing Hyperslab, Dask and rechunker (once, a minute or two)"
	@$(PIP) -e '.[bench,dask]'
	@$(BIN)/python -m venv $(VENV)/rechunker
	@$(VENV)/rechunker/bin/python -m pip install -qq --disable-pip-version-check --no-input -r bench/rechunker.txt
	@touch $(VENV)/.core $@

$(VENV)/.spark: bench/spark.txt | $(BIN)/python
	@echo "» installing Spark (once, a minute or two)"
	@$(BIN)/python -m venv $(VENV)/spark
	@$(VENV)/spark/bin/python -m pip install -qq --disable-pip-version-check --no-input -r bench/spark.txt
	@touch $@
