# make run: environment + quickstart; make test: all tests; make lint: ruff and mypy; make docs: the site, in site/
# make test-extras: the tests that need ONNX, Ray or the page, in an environment of their own
# make test-cluster: two Ray nodes on this machine, one killed in the middle of a grid (minutes)
# make pythons: the wheel on each Python from 3.11 on that is on this machine; TORCH=2.11.0 with that version of PyTorch
# make test-slow: five trainings, each by one process and by two
# make test-faults: kills, failing disks and changed bytes for every kind of file, of which make test tries a few;
# a table of what was tried and what failed is printed and kept in results/faults
PYTHON ?= python3
BIN := .venv/bin
EXTRAS := .venv-extras/bin

.PHONY: run test test-extras test-cluster pythons test-slow test-faults lint docs report clean

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/dev: .venv/ready
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

.venv/docs: .venv/ready
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

.venv-cluster/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-cluster
	.venv-cluster/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,ray]'
	touch $@

.venv-extras/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-extras
	$(EXTRAS)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,export,ray,page,encoders]' playwright
	touch $@

run: .venv/ready
	$(BIN)/engram quickstart

test: .venv/dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not extras and not slow"
	$(BIN)/engram report --check

test-extras: .venv-extras/ready
	OMP_NUM_THREADS=1 ENGRAM_RECORDS=results/faults $(EXTRAS)/python -m pytest -m extras -rs

test-cluster: .venv-cluster/ready
	OMP_NUM_THREADS=1 .venv-cluster/bin/python -m pytest -m extras -rs --durations=3 tests/reproduction/test_cluster.py

pythons:
	$(PYTHON) .ci/pythons.py $(if $(TORCH),--torch $(TORCH)) $(if $(ONLY),--only $(ONLY))

test-slow: .venv/dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow

test-faults: .venv/dev
	OMP_NUM_THREADS=1 ENGRAM_FAULTS=0 ENGRAM_RECORDS=results/faults $(BIN)/python -m pytest tests/faults

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

report: .venv/ready
	$(BIN)/engram report

clean:
	rm -rf .venv .venv-cluster .venv-extras .pythons quickstart runs site
