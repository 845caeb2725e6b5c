#!/bin/sh
# Run once, when the database is made: the registry, a role that owns it and one for the gateways.
set -eu
psql -q -v ON_ERROR_STOP=1 -U "$POSTGRES_USER" -d postgres -v owner="$(cat /run/secrets/registry-owner)" -v gateway="$(cat /run/secrets/registry-gateway)" <<'SQL'
create role regogate_owner login password :'owner';
create role regogate_gateway login password :'gateway';
create database registry owner regogate_owner;
SQL
