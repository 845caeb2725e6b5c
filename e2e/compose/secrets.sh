#!/bin/sh
# Makes the keys and passwords of docker-compose.yml, those that are missing, in secrets/ beside this file. The containers run as other users:
# the files can be read by all, the directory by its owner alone.
set -eu
cd "$(dirname "$0")"
mkdir -p secrets
chmod 700 secrets
cd secrets
umask 022
make() { # FILE COMMAND...: a file is there whole or not at all
  file=$1; shift
  [ -s "$file" ] || { "$@" >"$file.new"; mv "$file.new" "$file"; }
}
for name in postgres registry-owner registry-gateway redis sessions-key bundles-token; do
  make "$name" openssl rand -base64 32
done
for name in bundles-key issuer-key; do
  make "$name" openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256
done
make bundles-public openssl pkey -in bundles-key -pubout
