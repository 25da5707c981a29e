# What people and CI run. `make help` lists it.

# Cases that people met in the wild; they live beside the repository, where they are at all.
CASES ?= ../shared/cases

UI_SOURCES := $(shell find ui/src -type f) ui/index.html ui/vite.config.ts ui/tsconfig.json

.DEFAULT_GOAL := help
.PHONY: help run test check fmt ui setup install cases bench memory deb deb-test screenshots

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Set up, build and start Traygate; without a display, or with HEADLESS=1, it serves headless
	@scripts/run.sh

test: ## Set up, build and run all tests
	@scripts/setup.sh test
	@scripts/test.sh

check: ## Formatting, lints and types, as CI asks for them
	@scripts/setup.sh test
	@$(MAKE) --no-print-directory ui
	cd ui && npm run check
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings

fmt: ## Format the Rust code
	cargo fmt --all

ui: ui/dist/index.html ## Build the window's page

setup: ## Install what is missing for all of the above
	@scripts/setup.sh test
	@$(MAKE) --no-print-directory ui/node_modules/.package-lock.json

install: ## Build the command line optimised, and put it where cargo puts programs
	@scripts/setup.sh serve
	cargo install --locked --path src-tauri/cli

cases: ## Run the cases that lie beside the repository (CASES=directory)
	@if [ ! -d "$(CASES)/servers" ]; then \
	    echo "no cases in $(CASES): name their directory with CASES=…" >&2; exit 1; \
	fi
	@scripts/setup.sh serve
	cargo build --locked -p traygate
	TRAYGATE_CASES="$(abspath $(CASES))" cargo test --locked -p traygate-tests --test cases

bench: ## Measure an optimised build beside the barest hop; takes minutes, and wants an idle machine
	@scripts/setup.sh serve
	cargo build --locked --release -p traygate -p traygate-tests
	target/release/bench

memory: ui ## Measure what an idle desktop costs, optimised; takes minutes, and wants an idle machine
	@scripts/setup.sh test
	cargo build --locked --release -p traygate-desktop
	cargo build --locked -p traygate-tests
	TRAYGATE_DESKTOP="$(CURDIR)/target/release/traygate-desktop" \
	    cargo test --locked -p traygate-desktop --test shell what_an_idle -- --ignored --nocapture

deb: ## Build a Debian package of the desktop and the command line, optimised; takes minutes
	@scripts/setup.sh package
	@packaging/deb.sh

deb-test: deb ## Install, use, upgrade and remove that package in a Debian of its own; wants root
	@packaging/deb-test.sh target/release/bundle/deb/*.deb

screenshots: ui ## Take the pictures of docs/screenshots, with a real panel
	@scripts/setup.sh test
	cargo build --locked -p traygate -p traygate-desktop
	scripts/screenshots.sh

# npm writes this file last.
ui/node_modules/.package-lock.json: ui/package.json ui/package-lock.json
	cd ui && npm ci --no-audit --no-fund
	@touch $@

ui/dist/index.html: ui/node_modules/.package-lock.json $(UI_SOURCES)
	cd ui && npm run build
