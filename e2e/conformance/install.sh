#!/bin/sh
# Installs the conformance suite, exactly as locked, and the Go SDK's server and
# client for it, into a cache that checkouts share, and links them here. Does
# nothing where that is done already.
set -eu
cd "$(dirname "$0")"

sdk=v1.8.0
cache=${REGOGATE_CLIENTS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/regogate/clients}
mkdir -p "$cache"

fail() {
	echo "install.sh: $1" >&2
	exit 1
}

# digest prints the SHA-256 of the file.
digest() {
	if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -c1-64
}

# settle FUNCTION DIRECTORY LINK [PATH] has FUNCTION fill the directory unless it
# exists, then links to it, or to a path in it. It is filled under another name
# and moved, so that neither a broken installation nor one beside this one
# leaves half a directory.
settle() {
	if [ ! -d "$2" ]; then
		part=$(mktemp -d "$cache/part.XXXXXX")
		trap 'rm -rf "$part"' EXIT
		trap 'exit 1' INT TERM
		"$1" "$part"
		[ -d "$2" ] || mv "$part" "$2"
		rm -rf "$part"
	fi
	[ "$(readlink "$3" || true)" = "$2${4-}" ] || ln -sfn "$2${4-}" "$3"
}

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
