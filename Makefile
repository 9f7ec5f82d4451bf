# Bare `make` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

tool := go tool -modfile=$(CURDIR)/tools/go.mod
FUZZTIME ?= 30s
BENCH ?= full
DIR ?= /tmp/herald
export HERALD_TEST_CONTAINERD := $(CONTAINERD)

.PHONY: help run build test check fmt lint unit site browser metricsserver controlplane containerd e2e systemd vm packages packagetest bench tokens versus conformance fuzz update rules

help: ## list the targets
	@echo 'Herald runs the pods of a node and reports their status.'
	@echo
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo '  FUZZTIME=30s    duration of each target of make fuzz'
	@echo '  BENCH=short     a quick make bench'
	@echo '  DIR=/tmp/herald data of make controlplane and make containerd while they run'
	@echo '  CONTAINERD=2    make test, e2e and containerd with containerd 2.x instead of the installed one'

run: ## show what Herald does: an agent and four pods as host processes until Ctrl-C; no root, no containers
	@hack/build
	@.build/herald demo

build: ## build .build/herald
	@hack/build

test: ## run all tests; installs what is missing
	@hack/test

check: ## format, lint and short tests of the main module: the inner loop
	@$(tool) golangci-lint fmt --diff ./...
	@$(tool) golangci-lint run ./...
	@go test -short ./...

fmt: ## fail on unformatted code, in both modules
	@$(tool) golangci-lint fmt --diff ./... && cd parity && $(tool) golangci-lint fmt --diff ./...

lint: ## run the linters of .golangci.yml, on all modules
	@$(tool) golangci-lint run ./...
	@cd parity && $(tool) golangci-lint run --config ../.golangci.yml ./...
	@cd browser && $(tool) golangci-lint run --config ../.golangci.yml ./...
	@cd site && $(tool) golangci-lint run --config ../.golangci.yml ./...
	@cd packaging && $(tool) golangci-lint run --config ../.golangci.yml --build-tags packages ./...

unit: ## run all tests of the main module with the race detector
	@go test -race -shuffle=on ./...

site: ## render README and docs to static pages with search, in .build/site
	@cd site && go run . -root .. -out ../.build/site

browser: ## test the page in Chromium, and write its screenshots to docs
	@export HERALD_TEST_BROWSER=$$(hack/install-browser); cd browser && go test -count=1 -v -screenshots ../.build/page . && cp ../.build/page/list.png ../docs/page.png

metricsserver: ## let a real metrics-server scrape Herald, and ask it with kubectl top; needs root; building it takes minutes
	@hack/install-containers
	@PATH=$$PATH:$$(hack/install-kubectl); cd parity && go test -count=1 -v -tags metricsserver ./metricsserver

controlplane: ## run etcd and kube-apiserver in the foreground until Ctrl-C
	@cd parity && go build -o ../.build/controlplane ./cmd/controlplane && ../.build/controlplane -dir $(DIR)/controlplane

containerd: ## run a separate containerd in the foreground until Ctrl-C; needs root
	@hack/install-containers
	@cd parity && go build -o ../.build/containerd ./cmd/containerd && ../.build/containerd -dir $(DIR)/containerd

e2e: ## run the tests against real components only
	@hack/install-containers
	@PATH=$$PATH:$$(hack/install-kubectl); prometheus=$$(hack/install-prometheus); alertmanager=$$(hack/install-alertmanager); shells=$$(hack/install-shells); PATH=$$PATH$${prometheus:+:$$prometheus}$${alertmanager:+:$$alertmanager}$${shells:+:$$shells}; cd parity && go test -p 1 -shuffle=on -count=1 ./...

systemd: ## test the systemd unit on a real systemd in a container: restarts, crashes, reboots; needs root
	@hack/systemd

vm: ## test cgroup v2, both drivers and power cuts in an emulated machine: about ten minutes; needs root
	@hack/vm

packages: ## build the Debian and RPM packages of the latest release in CHANGELOG.md: .build/packages; ARCH=arm64
	@cd packaging && go run ./cmd/packages $(if $(ARCH),-arch $(ARCH))

packagetest: ## build packages twice, inspect them, and install, upgrade and remove the deb on a real systemd: minutes; needs root
	@hack/install-packages rpm=rpm cpio=cpio groff=groff-base
	@cd packaging && go test -count=1 -v -timeout 60m -tags packages . -output "$(CURDIR)/.build/packagetest"
	@hack/systemd packages .build/packagetest

bench: ## benchmark against the kubelet's code in one run: tables and RATIO lines
	@cd parity && go run ./cmd/bench -mode=$(BENCH)

tokens: ## start pods with service account tokens on Herald and the kubelet ten times; writes docs/benchmarks-tokens.md
	@hack/install-containers
	@cd parity && go run ./cmd/bench -only=tokens

versus: ## compare alerts with Prometheus and kube-state-metrics on the same events: about ten minutes; needs root; writes docs/alerts.md
	@hack/install-containers
	@prometheus=$$(hack/install-prometheus); PATH=$$PATH$${prometheus:+:$$prometheus}; cd parity && go run ./cmd/versus

conformance: ## run Kubernetes' own tests of a node: about 20 minutes; needs root; writes docs/conformance.md; ARGS=-help
	@hack/install-containers
	@shells=$$(hack/install-shells); cd parity && go run ./cmd/conformance -shells "$$shells" $(ARGS)

fuzz: ## run every fuzz target for FUZZTIME
	@hack/fuzz $(FUZZTIME)

update: ## regenerate docs: deps.txt, the package table, rules.md, config.md, commands.md, process.md, pod-fields.md, explain.md, differences.md
	@go test ./internal/arch -update
	@go test ./internal/rules -update
	@go test ./cmd/herald/internal/cli -update
	@go test ./process -update
	@go test ./cri/criconfig -run Document -update
	@go test ./explain -update
	@cd parity && go test ./diff -run Document -update

rules: ## list the rules that no test names
	@go test -count=1 -v ./internal/rules | grep 'not named'
