# Herald's commands. Bare `make` explains them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

tool := go tool -modfile=$(CURDIR)/tools/go.mod
FUZZTIME ?= 30s
BENCH ?= full
DIR ?= /tmp/herald

.PHONY: help run build test check fmt lint unit controlplane containerd e2e bench fuzz update rules

help: ## this list
	@echo 'Herald: the pods of a node, and what the cluster is told about them.'
	@echo
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo '  FUZZTIME=30s    how long make fuzz spends on each target'
	@echo '  BENCH=short     a quick make bench'
	@echo '  DIR=/tmp/herald where make controlplane and make containerd keep what they have, while they run'

run: ## the main job: an agent and four pods as plain processes, live, until Ctrl-C; no root, no containers
	@hack/build
	@.build/herald demo

build: ## the herald command, as .build/herald
	@hack/build

test: ## everything: sets up what is missing, then unit, API server and container tests
	@hack/test

check: fmt lint unit ## the inner loop: formatting, lint, the plan of the house, unit tests

fmt: ## fail on unformatted code
	@$(tool) golangci-lint fmt --diff ./... && cd parity && $(tool) golangci-lint fmt --diff ./...

lint: ## the rules of .golangci.yml, on both modules
	@$(tool) golangci-lint run ./...
	@cd parity && $(tool) golangci-lint run --config ../.golangci.yml ./...

unit: ## the lean module's tests, with the race detector
	@go test -race -shuffle=on ./...

controlplane: ## a real etcd and kube-apiserver in the foreground, until Ctrl-C
	@cd parity && go build -o ../.build/controlplane ./cmd/controlplane && ../.build/controlplane -dir $(DIR)/controlplane

containerd: ## a real containerd of its own in the foreground, until Ctrl-C; needs root
	@hack/install-containers
	@cd parity && go build -o ../.build/containerd ./cmd/containerd && ../.build/containerd -dir $(DIR)/containerd

e2e: ## the tests against real parts only
	@hack/install-containers
	@PATH=$$PATH:$$(hack/install-kubectl); cd parity && go test -p 1 -shuffle=on -count=1 ./...

bench: ## beside the kubelet's own code, in one run: tables and RATIO lines
	@cd parity && go run ./cmd/bench -mode=$(BENCH)

fuzz: ## every fuzz target, FUZZTIME each
	@hack/fuzz $(FUZZTIME)

update: ## rewrite what is generated: docs/deps.txt, the table of rooms, docs/rules.md, config.md, differences.md
	@go test ./internal/arch -update
	@go test ./internal/rules -update
	@go test ./cmd/herald/internal/cli -update
	@cd parity && go test ./diff -run Document -update

rules: ## the rules of docs/behaviour.md that no test names
	@go test -count=1 -v -run TheListOfRules ./internal/rules | grep 'not named'
