# Two commands for a newcomer: `make demo` and `make test`. Each makes its own environment first.

PYTHON ?= python3
VENV ?= .venv
# Python compiles a module when it is first imported; pip would compile everything, which takes a minute more.
PIP = $(VENV)/bin/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
SETUP = setup.py constraints.txt
EVERYTHING = pymarlzoo,test,dask,ray,qd,check
# PyMARLzoo+ declares torchvision, transformers and more that it does not need to run here.
define INSTALL
	$(PIP) torch==2.13.0 "setuptools<81" wheel
	$(PIP) --no-build-isolation -e ".[$(1)]"
	$(PIP) --no-deps pymarlzooplus==1.1.0
endef

# Where bytecode may not be written, each start of Python compiles the whole package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow check format bench docs results results-full clean

demo: $(VENV)/.demo  ## test a shipped team, then train a small one with fairtest=True and test it
	$(VENV)/bin/fairtest demo --out build/demo

PYTEST = $(VENV)/bin/python -m pytest --dist loadfile --no-loadscope-reorder

test: $(VENV)/.test  ## run the tests, some minutes
	$(PYTEST) -n auto -m "not slow"

test-slow: $(VENV)/.test  ## run the slow ones: Ray and Dask, browser, crashes, documentation, long trainings
	$(PYTEST) -n $$(($$(getconf _NPROCESSORS_ONLN) + 2)) -m slow  # two more than cores: hosts and clusters make it wait

check: $(VENV)/.test  ## format, lint and types
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

format: $(VENV)/.test
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

bench: $(VENV)/.test  ## what docs/performance.md says: speed, memory, growth and overhead, some 25 minutes
	$(VENV)/bin/python -m benchmarks.engine
	$(VENV)/bin/python -m benchmarks.run --repeat 3
	$(VENV)/bin/python -m benchmarks.paper
	-$(VENV)/bin/python -m benchmarks.growth
	$(VENV)/bin/python -m benchmarks.large
	$(VENV)/bin/python -m benchmarks.overhead

docs: $(VENV)/.docs  ## the documentation as a site in build/site; a warning is an error
	$(VENV)/bin/python tools/site.py

results: $(VENV)/.test  ## every table of docs/results.md and docs/tables.md, from the committed rows
	$(VENV)/bin/python tools/results_page.py

results-full: $(VENV)/.test  ## run the studies behind them: days
	$(VENV)/bin/python tools/run_studies.py

clean:
	rm -rf build $(VENV)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(VENV)/bin/python $(SETUP)
	@echo "Installing FairTest and PyMARLzoo+ into $(VENV) (a few minutes)"
	$(call INSTALL,pymarlzoo)
	@$(VENV)/bin/python -c "import torch, sklearn.ensemble, numba, matplotlib.figure, pettingzoo"  # compiled once
	@touch $@

# Everything that `test`, `test-slow` and `check` need, at once. Tests start Python often: what they import is compiled,
# which packages' own tests and Ray's learning are not; some files are templates.
$(VENV)/.test: $(VENV)/bin/python $(SETUP)
	@echo "Installing FairTest, PyMARLzoo+ and the tools for tests and checks into $(VENV) (a few minutes)"
	$(call INSTALL,$(EVERYTHING))
	@$(VENV)/bin/python -m compileall -q -j 0 -x '/(tests?|rllib|tune|mypyc)/' $(VENV)/lib > /dev/null || true
	@touch $@ $(VENV)/.demo

$(VENV)/.docs: $(VENV)/.demo $(SETUP)
	$(PIP) --no-build-isolation -e ".[docs]"
	@touch $@
