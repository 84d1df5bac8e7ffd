# Everything here works on a fresh Debian or Ubuntu machine with Go, git and make.
# `make demo` and `make test` install what else they need (hack/setup says what).

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules
.NOTPARALLEL:

# One way to compile for tests, images and tools, so that a package is compiled
# once. Without -trimpath another clone would compile everything again.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo v0.0.0-dev)
OUT     := out
TOOL    := go tool -modfile=hack/tools/go.mod

# The pure packages compile in seconds, so a broken rule is known before the
# Kubernetes libraries are built.
PURE := ./api/... ./internal/engine/... ./internal/drain/... ./internal/mutate/... ./internal/validate/... ./internal/manifest/... ./internal/withdraw/... ./internal/retire/...
UNIT  = $(shell go list ./... | grep -vE '/test/(cluster|envtest|e2e|kueue)(/|$$)')

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ For users

.PHONY: demo
demo: setup ## Delete busy engines on a real node, with and without lastcall; writes out/demo
	go run ./test/demo -out $(OUT)/demo

.PHONY: test
test: test-unit verify lint test-envtest test-e2e ## Everything that must pass, fast suites first

.PHONY: build
build: ## The binaries, into out/bin
	go build -ldflags '-s -w -X main.version=$(VERSION)' -o $(OUT)/bin/ ./cmd/...

.PHONY: images
images: ## Container images as archives, into out/images (no registry or daemon needed)
	go run ./hack/images -version $(VERSION) -out $(OUT)/images
	go run ./test/engine/image -o $(OUT)/images
	go run ./test/router/image -o $(OUT)/images

##@ Suites

.PHONY: test-unit
test-unit: setup ## Rules, parsers, the hook under python3, admission: no cluster
	go vet $(PURE)
	go test $(PURE)
	go vet ./...
	go test $(UNIT)

.PHONY: test-envtest
test-envtest: setup ## Against a real API server that has what the chart renders
	go run ./test/cluster binaries etcd kube-apiserver kubectl
	$(TOOL) helm version --short
	go test -timeout 20m ./test/envtest/...

.PHONY: test-e2e
test-e2e: setup ## Against a real kubelet; on the cluster of KUBECONFIG if that is set
	go run ./test/cluster binaries
	go test -timeout 15m ./test/cluster/...
	go test -timeout 60m -parallel 4 ./test/e2e/...

.PHONY: test-kueue
test-kueue: setup ## Beside Kueue's own controllers, which take minutes to compile; apart from test
	go run ./test/cluster binaries
	go test -timeout 60m -count 1 ./test/kueue/...

.PHONY: sim
sim: setup ## The retirement protocol in a million seeded worlds; less than an hour
	SIMULATION_SEEDS=1000000 go test -timeout 4h -run Simulation -v ./internal/retire

.PHONY: bench
bench: setup ## The figures of bench/README.md, each beside its yardstick
	go run ./bench

##@ For developers

.PHONY: generate
generate: ## Regenerate what is made from the API types
	$(TOOL) controller-gen object paths=./api/v1alpha1
	$(TOOL) controller-gen crd paths=./api/v1alpha1 output:crd:stdout > charts/lastcall/files/modeldeployments.yaml

.PHONY: verify
verify: ## Fail if generated files, go.mod or the format are not up to date
	@gofmt -l $$(git ls-files '*.go') | (! grep .) || { echo "run gofmt on these" >&2; exit 1; }
	go mod tidy -diff
	@fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
	$(TOOL) controller-gen object paths=./api/v1alpha1 output:object:dir="$$fresh"; \
	$(TOOL) controller-gen crd paths=./api/v1alpha1 output:crd:stdout > "$$fresh/modeldeployments.yaml"; \
	diff -u api/v1alpha1/zz_generated.deepcopy.go "$$fresh/zz_generated.deepcopy.go" && \
	diff -u charts/lastcall/files/modeldeployments.yaml "$$fresh/modeldeployments.yaml" || { echo "run make generate" >&2; exit 1; }

.PHONY: lint
lint: ## golangci-lint, helm lint
	$(TOOL) golangci-lint run
	$(TOOL) helm lint --strict charts/lastcall

.PHONY: setup
setup:
	@hack/setup

.PHONY: clean
clean: ## Stop the test cluster and remove out/
	-go run ./test/cluster down
	rm -rf $(OUT)
