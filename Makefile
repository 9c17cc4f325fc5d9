# make run    train an autoencoder on real digits with 2 ranks (sets itself up first)
# make test   run the tests (sets itself up first)
# make lint   style and types
# make compare   MAC against what one would train with instead (an hour or two; installs PyTorch)
# make clean  remove the environment and the runs

PYTHON ?= python3
VENV ?= .venv
MPI ?= mpich
RANKS ?= 2
BIN := $(VENV)/bin
WORKERS ?= 2
PURE := tests/contracts tests/theory tests/unit tests/test_architecture.py

.PHONY: run test lint compare clean

$(VENV)/.installed: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(MPI),digits,test,lint]'
	touch $@

run: $(VENV)/.installed
	rm -rf runs/digits_mac
	$(BIN)/mpiexec -n $(RANKS) $(BIN)/python -m macmpi.run run/digits_mac.toml

test: $(VENV)/.installed
	$(BIN)/python -m pytest -n $(WORKERS) $(PURE)
	$(BIN)/python -m pytest tests/launch tests/spmd

lint: $(VENV)/.installed
	$(BIN)/ruff check macmpi tests run
	$(BIN)/ruff format --check macmpi tests run
	$(BIN)/mypy

$(VENV)/.compare: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(MPI),compare]'
	touch $@

compare: $(VENV)/.compare
	$(BIN)/python run/compare.py adam paper batch tasks parallel

clean:
	rm -rf $(VENV) runs build *.egg-info
