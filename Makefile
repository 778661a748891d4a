# Two commands do everything on a fresh machine: `make demo` and `make test`.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help env demo test lint clean

IN_ENV = set -e; . ./env.sh;

help:
	@echo "make demo   run a video-action policy on a simulated bimanual YAM rig; results in demo_out/"
	@echo "make test   lint, type-check and run every test"
	@echo "make env    only set up .venv (then: source env.sh)"
	@echo "make lint   ruff and mypy alone"
	@echo "make clean  remove what the other targets made"

env:
	@bash scripts/setup_env.sh

demo: env
	@$(IN_ENV) VAG_STARTER=$$PPID exec vag demo --out demo_out $${INSTRUCTION:+--instruction "$$INSTRUCTION"} $(DEMO_ARGS)

lint: env
	@$(IN_ENV) ruff check . && ruff format --check . && mypy

test: env lint
	@$(IN_ENV) python -m pytest $(TEST_ARGS)

clean:
	rm -rf .venv build install log demo_out .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
