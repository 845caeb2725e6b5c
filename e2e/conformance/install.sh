#!/bin/sh
# Installs the conformance suite, exactly as locked, and the Go SDK's server and
# client for it, into a cache that checkouts share, and links them here. Does
# nothing where that is done already.
set -eu
cd "$(dirname "$0")"

. ../settle.sh

sdk=v1.8.0

modules() {
	command -v npm >/dev/null || fail "npm is missing: install Node 20 or later, with npm"
	echo "installing npm packages into $cache" >&2
	cp package.json package-lock.json .npmrc "$1"
	(cd "$1" && npm ci --ignore-scripts --loglevel=error >/dev/null)
}

fixtures() {
	echo "building the Go SDK's conformance programs into $cache" >&2
	for program in everything-server everything-client; do
		GOBIN="$1" go install "github.com/modelcontextprotocol/go-sdk/conformance/$program@$sdk"
	done
}

settle modules "$cache/conformance-$(digest package-lock.json)" node_modules /node_modules
settle fixtures "$cache/conformance-go-sdk-$sdk-$(go env GOOS)-$(go env GOARCH)" fixtures
