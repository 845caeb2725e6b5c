#!/bin/sh
# Installs the clients and servers that README.md lists, exactly as locked, into
# a cache that checkouts share, and links them here. Does nothing where that is
# done already.
set -eu
cd "$(dirname "$0")"

. ../settle.sh

modules() {
	node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null || fail "Node is missing or older than 20: install Node 20 or later, with npm"
	echo "installing npm packages into $cache" >&2
	cp package.json package-lock.json .npmrc "$1"
	(cd "$1" && npm ci --ignore-scripts --loglevel=error >/dev/null)
}

venv() {
	echo "installing Python packages into $cache" >&2
	python3 -m venv "$1"
	"$1/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements.txt
}

python=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(sys.version_info < (3, 11))' 2>/dev/null) || fail "Python is missing or older than 3.11: install Python 3.11 or later, with venv"
settle modules "$cache/npm-$(digest package-lock.json)" node_modules /node_modules
settle venv "$cache/py-$python-$(digest requirements.txt)" .venv
