# make run: environment + quickstart; make test: all tests; make lint: ruff and mypy; make docs: the site, in site/
PYTHON ?= python3
BIN := .venv/bin

.PHONY: run test lint docs report clean

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

run: .venv/ready
	$(BIN)/engram quickstart

test: .venv/dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal
	$(BIN)/engram report --check

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

report: .venv/ready
	$(BIN)/engram report

clean:
	rm -rf .venv quickstart runs site
