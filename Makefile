# Everything a newcomer needs: Python 3.11+ on the machine, for Spark also Java 17+. The rest is installed here.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := .demo
# Without .pyc files each of the many commands below compiles all modules, numba's too: 1.5 s of CPU.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv java wheel dist demo docs pages test unit spark quick lint types integration test-integration long bench bench-quick clean

help:  ## Show the targets
	@awk -F ':.*## ' '/^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Set up

venv: $(VENV)/.installed $(VENV)/.kernels  ## Make .venv with kip33 and all that its tests need

PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c .ci/requirements.lock

$(VENV)/.installed: $(VENV)/.runs
	$(PIP_INSTALL) --no-build-isolation -e '.[dev]'
	@touch $@

$(VENV)/.runs: pyproject.toml .ci/requirements.lock  # what running needs: enough for a demo
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or later is needed; try: make $(MAKECMDGOALS) PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { echo "Python's venv is missing (Debian: apt-get install python3-venv)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	# An isolated build would install numba once more; setuptools of Python 3.11 cannot build pyspark.
	$(PIP_INSTALL) 'hatchling<2' 'editables<1' 'setuptools>=70.1'
	$(PIP_INSTALL) --no-build-isolation --no-compile -e '.[compile]'  # bytecode of Spark takes long
	@touch $@

$(VENV)/.kernels: $(VENV)/.runs $(wildcard kip33/formats/*.py kip33/formats/*/*.py kip33/rules/*.py)
	@if $(BIN)/python -m kip33.indexing.kernels --target here; then touch $@; \
	  else echo "numba compiles at the first use"; fi  # the next make tries again

# Prints one line if there is no Java.
WHY_NO_JAVA = $(BIN)/python -c 'from kip33.spark.session import require_java; require_java()' 2>&1 \
  | tail -1 | sed 's/^.*JavaMissingError: //'
java:
	@$(WHY_NO_JAVA) | { ! grep . ; }

##@ Send it to a cluster

DIST ?= dist
WHEEL := $(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation
KERNELS_x86_64 := --target x86-64-v4 --target x86-64-v3
KERNELS_aarch64 := --target aarch64
wheel: $(VENV)/.runs  ## Make the wheels for pip: Linux on x86-64 and on aarch64 with kernels, and a pure one
	@rm -rf $(DIST)/kip33-*.whl && mkdir -p $(DIST)
	@make_wheel() { KIP33_WHEEL=$$1 $(WHEEL) --wheel-dir $(DIST) .; }; \
	  make_platform() { \
	    if why=$$($(BIN)/python -m kip33.indexing.kernels $$2 2>&1 >/dev/null); then make_wheel $$1; \
	    else echo "left out: the wheel for Linux on $$1. $$why"; fi; }; \
	  make_platform x86_64 "$(KERNELS_x86_64)" && make_platform aarch64 "$(KERNELS_aarch64)" && \
	  make_wheel pure
	@ls -lh $(DIST)/kip33-*.whl

dist: wheel  ## Make dist/kip33.zip for --py-files and dist/kip33-env.tar.gz for spark.archives
	@rm -rf $(DIST)/all $(DIST)/environment
	@KIP33_WHEEL=all $(WHEEL) --wheel-dir $(DIST)/all .
	@mv $(DIST)/all/kip33-*.whl $(DIST)/kip33.zip  # a wheel is one; Spark takes no other name
	@rmdir $(DIST)/all
	$(PYTHON) -m venv $(DIST)/environment
	$(DIST)/environment/bin/pip install --quiet --disable-pip-version-check \
	  -c .ci/requirements.lock "$$(ls $(DIST)/kip33-*manylinux*_$$(uname -m).whl)[hdfs,s3]"
	@$(DIST)/environment/bin/pip uninstall --quiet --yes pyspark py4j pip  # a cluster has its own
	tar -czf $(DIST)/kip33-env.tar.gz -C $(DIST)/environment .
	@rm -rf $(DIST)/environment
	@ls -lh $(DIST)

##@ See it work

demo: $(VENV)/.kernels  ## A story of one minute: build, verify, search, judge, restore; Spark, if there is Java
	@.ci/demo $(DEMO)

##@ Read it

docs: venv  ## Make the pages of kip33/docs a site in build/docs
	$(BIN)/python -m sphinx -b html -W --keep-going -q kip33/docs build/docs
	@echo "build/docs/index.html"

pages: venv java  ## Run the commands of all pages and write what they print today into them
	$(BIN)/python -m tests.pages

##@ Check it

PYTEST := $(BIN)/pytest -q -n auto --dist loadfile --no-loadscope-reorder
SHORT := not kafka and not integration and not long

test: venv  ## Lint, types and every test that needs no outside service; without Java not those on Spark
	@$(MAKE) --no-print-directory --jobs=4 TOGETHER=yes unit spark lint types

# Several run at once: each line says which one printed it. An interrupt leaves the last lines.
SAID = $(if $(TOGETHER),2>&1 | (trap '' INT TERM; sed -u 's/^/$@: /'))
unit spark lint types: SHELL := /bin/bash
unit spark lint types: .SHELLFLAGS := -o pipefail -c

unit: venv
	@$(PYTEST) -m "$(SHORT) and not spark" $(SAID)

ON_SPARK := $(BIN)/pytest -p no:cacheprovider -m "$(SHORT) and spark"
spark: venv  # one process, which has one session
	@{ why=$$($(WHY_NO_JAVA)); if [ -z "$$why" ]; then $(ON_SPARK); else \
	  echo "$$($(ON_SPARK) --collect-only -q | grep -c ::) tests on Spark are skipped. $$why"; fi; } $(SAID)

quick: venv  ## The pure tests, plain code, few examples: a quarter of a minute
	KIP33_EXAMPLES=quick $(BIN)/pytest -q -n auto tests/formats tests/rules tests/test_layering.py \
	  tests/test_names.py -m "not kafka and not integration and not long and not spark and not slow" -k "not native and not compiled"

lint: venv
	@{ $(BIN)/ruff check && $(BIN)/ruff format --check; } $(SAID)

types: venv
	@$(BIN)/mypy $(SAID)

test-integration: integration

GROUPS ?=
integration: venv java  ## The tests against Kafka's own jars (Maven) and other services; GROUPS=kafka for some
	$(BIN)/python -m tests.integration.groups $(GROUPS)

SEED ?= $(shell date -u +%Y%m%d)
long: venv java  ## Sweeps over random inputs and many examples of each property; the date is the seed
	@echo "seed $(SEED); the same again: make long SEED=$(SEED)"
	KIP33_EXAMPLES=long KIP33_SEED=$(SEED) $(PYTEST) --hypothesis-seed=$(SEED) \
	  -m "long or (hypothesis and not spark)"

bench bench-quick: venv java
	$(PIP_INSTALL) --no-build-isolation -e '.[dev,bench]'
	$(BIN)/python -m tests.benchmarks.bench $(if $(filter bench-quick,$@),--quick)

bench:  ## Measure all, about an hour; writes tests/benchmarks/results/
bench-quick:  ## Measure some of it, in three minutes

clean:  ## Remove what was made here
	rm -rf $(VENV) $(DEMO) $(DIST) kip33/formats/native/kernels build/docs tests/integration/kafka/oracle/target
