# `make demo` and `make test` are all that a fresh machine needs: Python 3.11 or later with `venv`, and make.
SHELL := /bin/sh
PYTHON ?= python3
export PYTHON
# Tests start hundreds of Pythons: without caches of its bytecode each compiles Bowstring anew.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
RUN := $(VENV)/bin/python
PEERS := .venv-peers
GPU := .venv-gpu
ALL := test,bench,compile
FAST := not slow and not gpu
SLOW := (slow or hypothesis) and not gpu and not peers
# Many tests wait for other processes and for deadlines: four at a time fill two cores. A file of tests is run in order,
# by one process; those that take long come first (tests/conftest.py), whatever their number of tests.
# One that crashes is not started anew: pytest-xdist would wait for ever for what it had left.
JOBS ?= 4
SIDE_BY_SIDE = -n $(JOBS) --dist loadfile --no-loadscope-reorder --max-worker-restart=0

.PHONY: help env packages kernels wheel demo test test-fast test-install release-check test-slow test-jit test-peers test-gpu test-gpu-sanitized coverage-public \
    test-cudf-env lint format docs bench bench-full figures bench-gpu constraints clean

help:
	@sed -n 's/^# make /make /p' Makefile

# make env            .venv with all that tests and benchmarks need; nothing where it is already so
env: packages
	@$(call COMPILE,$(VENV))

packages:
	@scripts/env.sh $(VENV) constraints.txt $(ALL) $(ALL),fuzz

# make kernels        compile the kernels for this checkout, for this processor and for GPUs, where they changed; without
#                     a C compiler, they are compiled when they are used
COMPILE = $(1)/bin/python -m bowstring.kernels.build --objects build/kernels || true
kernels: env

# make wheel          dist/: the wheel for this machine, with its kernels compiled, and the one for every machine
wheel: env
	$(RUN) -m hatchling build -t wheel -d dist
	HATCH_BUILD_NO_HOOKS=true $(RUN) -m hatchling build -t wheel -d dist

# make demo           hand real data from process to process, and through Spark and back (brings a Java of its own)
demo:
	@scripts/env.sh $(PEERS) constraints-peers.txt demo test,peers
	@$(call COMPILE,$(PEERS))
	$(PEERS)/bin/bowstring demo
	@printf '\n3. TPC-H: Parquet, Spark, and two processes with a shard each\n\n'
	$(PEERS)/bin/python examples/spark_pipeline.py

# make test           lint, types, floors, and every test that is neither slow nor for a GPU; types are checked meanwhile
test: env
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) scripts/words.py
	@mkdir -p build
	@$(RUN) -m mypy >build/mypy.txt 2>&1 & types=$$!; \
	    echo '$(RUN) -m pytest -m "$(FAST)" $(SIDE_BY_SIDE)'; \
	    $(RUN) -m pytest -m "$(FAST)" $(SIDE_BY_SIDE); status=$$?; \
	    wait $$types || status=$$?; cat build/mypy.txt; exit $$status

# make test-fast      after each edit: the main road (publish, connect, IPC, Variant, Parquet, errors), half a minute of one core
MAIN_ROAD := errors/test_errors.py columnar/test_column.py \
    $(patsubst %,client_server/test_%.py,arguments connect publish release round_trip stream) \
    $(patsubst %,ipc/test_%.py,arguments file metadata reader stream) \
    $(patsubst %,variant/test_%.py,decode from_json get path) \
    $(patsubst %,parquet/test_%.py,read variant write)
test-fast: env
	$(RUN) -m pytest -q -m "$(FAST)" $(SIDE_BY_SIDE) $(MAIN_ROAD:%=tests/%)

# make test-install   plain `pip wheel .` of the last commit, and the README in an environment with that wheel alone
test-install:
	@PIP_CONSTRAINT="$(CURDIR)/constraints.txt" scripts/test_install.sh

# make release-check  dist/: wheels and sources of the last commit, their contents checked, each installed and tried on every Python here
release-check: env
	@$(RUN) -m pip install --quiet 'twine>=6'
	@PIP_CONSTRAINT="$(CURDIR)/constraints.txt" $(RUN) scripts/release_check.py

# make lint           ruff, mypy and the words of scripts/words.py; the floors are a test (tests/test_floors.py)
lint: packages
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) scripts/words.py
	$(RUN) -m mypy

# make format         rewrite what ruff can
format: packages
	$(RUN) -m ruff check --fix
	$(RUN) -m ruff format

# make docs           the documentation as a site in build/site; a warning, such as of a broken link, is an error
docs: packages
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict

# They wait for little but the processor.
test-slow test-jit: JOBS = 2

# make test-slow      live comparisons, long fuzzing, full matrices, and properties tried with other examples each time
test-slow: test-peers test-jit
	@scripts/env.sh $(VENV) constraints.txt $(ALL),fuzz
	@$(call COMPILE,$(VENV))
	$(RUN) -m pytest -m "$(SLOW)" $(SIDE_BY_SIDE) --hypothesis-profile=slow -o faulthandler_timeout=600

# make test-jit       the fast tests of what launches kernels, with the kernels that Numba compiles on first use
test-jit: env
	BOWSTRING_KERNELS=jit $(RUN) -m pytest -m "$(FAST)" $(SIDE_BY_SIDE) tests/kernels tests/columnar tests/variant tests/geo tests/vortex

# make test-peers     comparisons with a live Spark and DuckDB, in .venv-peers (brings a Java of its own)
# make test-peers SPARK=4.1  the same with another Spark than the newest, in .venv-peers-4.1
SPARKS := $(PEERS)$(SPARK:%=-%)
SPARK_CONSTRAINTS := $(if $(SPARK),build/constraints-spark-$(SPARK).txt,constraints-peers.txt)
test-peers: $(SPARK_CONSTRAINTS)
	@scripts/env.sh $(SPARKS) $(SPARK_CONSTRAINTS) test,peers
	@$(call COMPILE,$(SPARKS))
	$(SPARKS)/bin/python -m pytest -m "peers and not gpu" -o faulthandler_timeout=600

build/constraints-spark-%.txt: constraints-peers.txt
	@mkdir -p build
	@sed -e 's/^pyspark==.*/pyspark==$*.*/' -e '/^py4j==/d' $< >$@

# make test-gpu       what needs a CUDA device, in .venv-gpu (with CuPy and NVML, for drivers of CUDA 13)
GPU_ENV := scripts/env.sh $(GPU) constraints-cudf.txt test,bench,cuda13,kernels-cuda13
HAS_CUDA := nvidia-smi >/dev/null 2>&1 || $(PYTHON) -c 'import ctypes; ctypes.CDLL("libcuda.so.1")' 2>/dev/null
test-gpu:
	@if $(HAS_CUDA); then \
	    $(GPU_ENV) && { $(call COMPILE,$(GPU)); } && set -x && $(GPU)/bin/python -m pytest tests/gpu -m gpu; \
	else \
	    echo "no CUDA driver here (neither nvidia-smi nor libcuda.so.1): the GPU tests were not run"; \
	fi

# make test-gpu-sanitized  the kernels' GPU tests under NVIDIA's compute-sanitizer, which finds what they must not touch
SANITIZER ?= compute-sanitizer
SANITIZED := tests/gpu/test_kernels.py
test-gpu-sanitized:
	@if ! command -v $(SANITIZER) >/dev/null 2>&1; then \
	    echo "no $(SANITIZER) here (it comes with the CUDA toolkit): nothing was checked"; \
	elif ! { $(HAS_CUDA); }; then \
	    echo "no CUDA driver here (neither nvidia-smi nor libcuda.so.1): nothing was checked"; \
	else \
	    $(GPU_ENV) && { $(call COMPILE,$(GPU)); } && set -x && for tool in memcheck racecheck initcheck synccheck; do \
	        $(SANITIZER) --tool $$tool --error-exitcode 9 --target-processes all \
	            $(GPU)/bin/python -m pytest -m gpu -p no:faulthandler -k "not ten_million" $(SANITIZED) || exit 1; \
	    done; \
	fi

# make coverage-public  branch coverage by folder of the fast tests that use public interfaces only (docs/testing.md)
coverage-public: env
	@rm -rf build/coverage && mkdir -p build/coverage
	$(RUN) -m coverage run -m pytest -m "public and $(FAST)"
	$(RUN) -m coverage combine --quiet
	$(RUN) -m coverage json --quiet -o build/coverage/report.json
	@$(RUN) scripts/coverage_by_folder.py build/coverage/report.json

# make test-cudf-env  the fast tests with the versions that cuDF 26.10 asks for, in .venv-cudf
test-cudf-env:
	@scripts/env.sh .venv-cudf constraints-cudf.txt test,kernels
	@$(call COMPILE,.venv-cudf)
	.venv-cudf/bin/python -m pytest -m "$(FAST)" $(SIDE_BY_SIDE)

# make bench          every benchmark case, short
bench: env
	$(VENV)/bin/bowstring bench --quick

# make bench-full     every case of the CPU, all sizes, beside every engine that pip installs, in .venv-bench (a Java of its own): an hour or two
BENCH := .venv-bench
bench-full:
	@scripts/env.sh $(BENCH) constraints-peers.txt bench,peers,test
	@$(call COMPILE,$(BENCH))
	$(BENCH)/bin/bowstring bench transport formats variant spark --full --json benchmarks/results --report build/report

# make figures        the plot and the table of docs/benchmarks.md, from a file in benchmarks/results (RESULT=…, or the one it names)
figures: env
	$(RUN) -m bowstring.benchmarks.report.figures $(RESULT)

# make bench-gpu      every case of a GPU, into benchmarks/results/gpu-NAME.json (NAME=h200, say)
NAME ?= $(shell date -u +%Y%m%d)
bench-gpu:
	@if $(HAS_CUDA); then \
	    $(GPU_ENV) && { $(call COMPILE,$(GPU)); } && set -x && $(GPU)/bin/bowstring bench gpu --full --json benchmarks/results/gpu-$(NAME).json; \
	else \
	    echo "no CUDA driver here (neither nvidia-smi nor libcuda.so.1): nothing was measured"; \
	fi

# make constraints    resolve the constraints files anew, for Python 3.11 and later (needs the package index)
RESOLVE = $(RUN) -m uv pip compile --quiet --universal --python-version 3.11 --no-annotate --no-header \
    --system-certs --extra test pyproject.toml -
# Lines for other systems go, and so do conditions on the platform: Bowstring runs on Linux.
TIDY = sed -e '/^colorama/d' -e '/^appnope/d' -e 's/ ; (*platform.*//' -e 's/ ; implementation_name == .pypy. or .*//' -e 's/ ; sys_platform != .*//'
BUILD_TOOLS = printf '%s\n' pip hatchling setuptools
constraints: packages
	$(RUN) -m pip install --quiet uv
	$(BUILD_TOOLS) | $(RESOLVE) --extra bench --extra fuzz --extra compile >.venv/resolved
	$(TIDY) .venv/resolved >constraints.txt
	$(BUILD_TOOLS) 'cudf-cu13==26.10.*' | $(RESOLVE) --extra bench --extra fuzz --extra kernels-cuda13 >.venv/resolved
	$(TIDY) .venv/resolved >constraints-cudf.txt
	$(BUILD_TOOLS) | $(RESOLVE) --extra bench --extra peers >.venv/resolved
	$(TIDY) .venv/resolved >constraints-peers.txt

# make clean          remove the environments and what tools left
clean:
	rm -rf .venv .venv-bench .venv-cudf .venv-gpu .venv-peers* build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
	rm -rf kernels/_native
	find src kernels tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
