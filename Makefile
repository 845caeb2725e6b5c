# regogate: what people and CI run. Every target works on a fresh clone.
SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME    ?= 30s
OPA         := bin/regogate opa

.PHONY: build test lint rego go e2e test-compose bench fuzz deps clean

build: ## the binary with the OPA command line inside, in bin/
	CGO_ENABLED=0 go build -trimpath -tags opacli -ldflags "-s -w -X main.version=$(VERSION)" -o bin/regogate ./cmd/regogate

test: deps build lint rego go e2e ## everything

deps: ## what the tests need: redis-server, PostgreSQL, Prometheus, the pinned MCP clients and servers, the conformance suite
	command -v redis-server >/dev/null || .ci/apt redis-server
	command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || .ci/apt postgresql
	command -v pgrep >/dev/null || .ci/apt procps
	command -v promtool >/dev/null && command -v prometheus >/dev/null || .ci/apt prometheus
	e2e/clients/install.sh
	e2e/conformance/install.sh

lint: ## gofmt, vet, staticcheck
	@out=$$(gofmt -l bundles cmd gateway registry policies e2e); test -z "$$out" || { echo "gofmt would change: $$out"; exit 1; }
	go vet -tags opacli ./...
	go run $(STATICCHECK) ./...

rego: build ## the shipped policies: format, strict check against the input schema, tests with full coverage
	$(OPA) fmt --fail --diff policies
	$(OPA) check --strict --schema gateway/policy/schema/input.json policies
	$(OPA) test --timeout 2m policies
	$(OPA) test --timeout 2m --coverage --threshold 100 policies >/dev/null
	@if command -v regal >/dev/null; then regal lint policies; else echo "regal is not on the PATH: its rules were not checked"; fi

go: ## Go tests, with the race detector
	go test -race $$(go list ./... | grep -v /e2e)

e2e: build ## real clients and servers, the cases, the demo, the conformance suite
	REGOGATE_E2E=1 REGOGATE_BIN=$(CURDIR)/bin/regogate go test -race -p 1 ./e2e/...

test-compose: ## docker-compose.yml, up, and one part after the other broken; needs Docker, or root to install and start it
	e2e/compose/run.sh

bench: ## medians and ratios beside direct, a bare proxy and a proxy with JWT
	go run ./e2e/bench

fuzz: ## each fuzz target for half a minute
	@for pkg in ./gateway/mcp ./gateway/auth ./registry ./registry/strictyaml; do \
	  for target in $$(go test -list '^Fuzz' $$pkg | grep ^Fuzz || true); do \
	    echo "$$pkg $$target"; go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5x $$pkg; \
	  done; \
	done

clean:
	rm -rf bin
