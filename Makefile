# make run    train an autoencoder on real digits with 2 ranks (sets itself up first)
# make test   run the tests (sets itself up first)
# make test-long  the tests that take long: thorough runs, the pages' examples whole, tutorials, launches on real data
# make test-thorough  of the laws that make test tries on a few cases all the other cases (half an hour)
# make test-kernels  the mathematics under several kernels of BLAS, numbers of threads, locales; read-only sources
# make test-examples  what needs torch, jax, onnx2torch or hdf5plugin, which the other tests do without
# make test-ranks  every choice of the config on 5 ranks and on 2 or 3, where make test-long takes a cover of pairs
# make mutants  breaks the package in 60 places, and says which tests notice; ONLY="S1 P2" some of them (ten minutes)
# make faults the fault suite: every fault in every phase (tests/faults/README.md); make soak: 200 stops and starts
# make test-slurm  run/batch/slurm.sh under a real Slurm of three nodes inside this machine (root; Debian: slurm-wlm munge)
# make test-nodes  mpiexec over three nodes inside this machine: every method, links that are slow, nodes that die (root)
# make matrix the wheel with Python 3.11 to 3.14, MPICH and Open MPI, the oldest and the newest libraries: CASES="3.12"
# make dist   wheel and source distribution in dist/, the one made of the other, tried in an empty environment
# make lint   style, types, and which way imports go
# make checks each formula against a computation of its own: docs/algorithms/checks.md (minutes)
# make docs   the documentation as a site, in build/site; fails at a link that leads nowhere
# make speedup  speedup against processors: measured, and predicted beyond the cores there are
# make compare   MAC against what one would train with instead (an hour or two; installs PyTorch)
# make bench-defaults   macmpi without tuning against scikit-learn on 23 sets, 21 tables: docs/defaults.md (an hour)
# make paper   the paper's figures 2 to 6 and theorem B.3 again: docs/paper.md; ONLY="fig5 theory" some (an hour)
# make results the benchmarks of docs/results.md; ONLY=speedup one of them (hours; stops and goes on)
# make same-bits COMMIT=main   whether every feature still gives the results of another commit, bit for bit (minutes)
# make fuzz   200 generated data sets: no run may end worse than a constant and say that it is done
# make MPI=openmpi test   any of these with Open MPI, in an environment of its own, .venv-openmpi; MPI=impi: Intel MPI
# make clean  remove the environment and the runs

PYTHON ?= python3
MPI ?= mpich
VENV ?= .venv$(if $(filter-out mpich,$(MPI)),-$(MPI))
RANKS ?= 2
BIN := $(VENV)/bin
WORKERS ?= 2
POOL ?= 4
# Files in the order that they are named: first those that take long, last those that fill the cores to the end.
IN_POOL = -n $(POOL) --dist loadfile --no-loadscope-reorder
PURE := tests/contracts tests/theory tests/unit tests/test_architecture.py

ifeq ($(MPI),openmpi)  # what it wants as root, and with more ranks than cores
export OMPI_ALLOW_RUN_AS_ROOT ?= 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM ?= 1
export PRTE_MCA_rmaps_default_mapping_policy ?= :oversubscribe
endif

# Otherwise every rank of every launch compiles the package.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-long test-examples test-thorough test-ranks test-kernels test-slurm test-nodes matrix mutants faults soak docs
.PHONY: checks dist
.PHONY: speedup compare paper results bench-defaults same-bits fuzz lint clean

$(VENV)/.installed: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(MPI),digits,test,lint]'
	touch $@

run: $(VENV)/.installed
	rm -rf runs/digits_mac
	$(BIN)/mpiexec -n $(RANKS) $(BIN)/python -m macmpi.run run/digits_mac.toml

test: $(VENV)/.installed
	$(BIN)/python -m pytest $(IN_POOL) -m "not long and not examples" tests/spmd tests/launch $(PURE)
	$(BIN)/mpiexec -n 3 $(BIN)/python -m pytest --with-mpi --timeout 60 -p no:cacheprovider tests/mpi

test-long: $(VENV)/.installed
	$(BIN)/python -m pytest $(IN_POOL) -m "long and not examples" tests/unit tests/launch tests/contracts tests/theory
	MACMPI_TEST_CHOSEN=pairs $(BIN)/python -m pytest tests/spmd

$(VENV)/.examples: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(MPI),examples]'
	touch $@

test-examples: $(VENV)/.examples
	$(BIN)/python -m pytest -m examples tests/unit tests/launch

test-thorough: $(VENV)/.installed
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --cases others -m "not examples" $(PURE)

test-ranks: $(VENV)/.installed
	MACMPI_TEST_CHOSEN=all $(BIN)/python -m pytest tests/spmd

test-kernels: $(VENV)/.installed
	WORKERS=$(WORKERS) $(BIN)/python tests/kernels.py

TIMES ?= 1

test-nodes: $(VENV)/.installed
	$(BIN)/python tests/nodes/hydra.py --times $(TIMES)

test-slurm: $(VENV)/.installed
	$(BIN)/python tests/nodes/slurm.py --times $(TIMES)

matrix: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	CASES="$(CASES)" $(BIN)/python tests/matrix.py

dist: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv twine
	rm -rf dist
	$(BIN)/python -m uv build --quiet --out-dir dist
	$(BIN)/python -m twine check --strict dist/*
	CASES="newest $(MPI) $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')" $(BIN)/python tests/matrix.py dist

mutants: $(VENV)/.installed
	$(BIN)/python tests/mutants/run.py --jobs $(WORKERS) --only $(ONLY)

faults: $(VENV)/.installed
	$(BIN)/python -m pytest tests/faults -k "not soak"

soak: $(VENV)/.installed
	$(BIN)/python -m pytest tests/faults -k soak

# Of benchmarks and pages mypy checks that what they call is there: they are run too seldom for a test to tell.
CALLS := --config-file= --python-version 3.11 --ignore-missing-imports --follow-imports=silent \
	$(addprefix --disable-error-code=,arg-type misc var-annotated assignment call-overload)

lint: $(VENV)/.installed
	$(BIN)/ruff check macmpi tests run
	$(BIN)/ruff format --check macmpi tests run
	$(BIN)/mypy
	MYPYPATH=run/bench:run/pages:tests $(BIN)/mypy $(CALLS) run/bench/*.py run/pages/*.py
	$(BIN)/lint-imports --no-cache setup.cfg

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(MPI),docs]'
	touch $@

docs: $(VENV)/.docs
	$(BIN)/python run/pages/refusals_page.py
	$(BIN)/python run/pages/places_page.py
	$(BIN)/python run/pages/constants_page.py
	$(BIN)/python run/pages/checks_page.py
	$(BIN)/python run/pages/cost_page.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build  # not --quiet: that forgives links that lead nowhere

checks: $(VENV)/.installed
	$(BIN)/python run/pages/checks_page.py --measure

speedup: $(VENV)/.installed
	$(BIN)/python run/bench/speedup.py run/usps_mac.toml run/coil_mac.toml synthetic
	$(BIN)/python run/bench/speedup.py run/coil_select.toml --iterations 24
	$(BIN)/python run/bench/speedup.py run/usps_mac.toml synthetic --weak

$(VENV)/.compare: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(MPI),compare]'
	touch $@

compare: $(VENV)/.compare
	$(BIN)/python run/bench/compare.py adam rivals paper batch tasks parallel

paper: $(VENV)/.installed
	$(BIN)/python run/bench/paper.py --only $(ONLY)

# kfac-jax and pcx want different versions of jax.
.venv-family/.installed: setup.cfg
	$(PYTHON) -m venv .venv-family
	.venv-family/bin/python -m pip install --quiet --disable-pip-version-check '.[family]'
	touch $@

results: $(VENV)/.compare $(if $(filter family,$(or $(ONLY),family)),.venv-family/.installed)
	$(BIN)/python run/bench/results.py --only $(ONLY)

$(VENV)/.bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(MPI),bench]'
	touch $@

bench-defaults: $(VENV)/.bench
	$(BIN)/python run/bench/defaults.py --tuned 20 --page docs/defaults.md

same-bits: $(VENV)/.installed
	$(BIN)/python run/bench/same_bits.py $(COMMIT) $(CASES)

fuzz: $(VENV)/.installed
	$(BIN)/python run/bench/fuzz.py

clean:
	rm -rf $(VENV) runs build *.egg-info
