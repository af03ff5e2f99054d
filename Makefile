# Needs python3 (3.11 or newer) with its venv module, and make. Everything else is installed into .venv.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
EXTRAS := atari,classic,image,video,tb,peers,dev
# Two processes, each takes the tests of a file in their order; threads that wait give their core away
SIDE_BY_SIDE := OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n 2 --dist loadfile

.PHONY: demo test test-slow lint format tables report clean help

help:
	@echo "make demo       train a snake from nothing in three minutes, evaluate it, film it"
	@echo "make test       the test suite (at most 5 minutes on 2 cores)"
	@echo "make test-slow  the longer tests (at most 20 minutes on 2 cores)"
	@echo "make lint       ruff and mypy"
	@echo "make tables     write the tables of README and docs from the records in benchmarks/records"
	@echo "make report     one page with all records: report.html"

# The stamp is newer than what it was made from, so a second run of any target installs nothing
$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv, once: a minute or a few, depending on the network ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"
	@touch $@

demo: $(STAMP)
	@$(BIN)/python -m fastdqn demo

test: $(STAMP)
	$(SIDE_BY_SIDE) -m "not slow"

test-slow: $(STAMP)
	$(SIDE_BY_SIDE) -m "slow and not alone"
	$(BIN)/python -m pytest -m "slow and alone"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

tables: $(STAMP)
	$(BIN)/python -m fastdqn.report.markdown README.md docs/results.md docs/seeds.md

report: $(STAMP)
	$(BIN)/python -m fastdqn report benchmarks/records --out report.html

clean:
	rm -rf .venv build dist src/*.egg-info
