# Cellblock's chores. `make help` lists them; each works twice in a row and goes on after an interruption.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo start test rebuild-sandbox lint unit clients browser bench clean binary prerequisites

BINARY := target/release/cellblock

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

prerequisites:
	@scripts/prerequisites.sh

binary: prerequisites
	@echo "==> Building the release binary (the first time takes some minutes)"
	@cargo build --release --locked

demo: binary ## Set everything up and execute notebooks/quickstart.ipynb for real
	@scripts/environment.sh notebooks/requirements.txt
	@scripts/sandbox-image.sh
	@scripts/get-model.py
	@scripts/demo.sh

start: binary ## Open JupyterLab with both kernels, in this folder
	@scripts/environment.sh notebooks/requirements.txt
	@scripts/sandbox-image.sh
	@scripts/get-model.py
	@scripts/start.sh

rebuild-sandbox: binary ## Build the sandbox image again, from its base
	@scripts/sandbox-image.sh --fresh

test: ## Run all tests: format, lints, docs, unit, integration, notebooks, clients, browser
	@scripts/test.sh

lint: ## Format, clippy, docs and shell checks only
	@scripts/test.sh lint

unit: ## Rust tests only
	@scripts/test.sh rust

clients: ## Jupyter client and notebook tests only
	@scripts/test.sh clients

browser: ## The tests in a real JupyterLab only
	@scripts/test.sh browser

bench: ## Measure both kernels beside ipykernel (README: "How fast")
	@scripts/bench.sh

clean: ## Remove what the chores made in this folder
	@cargo clean; rm -rf .venv .cellblock notebooks/executed tests/artifacts
