#!/bin/sh
# Run when the tables are there: what a gateway may do with them, which is to read those that it decides by.
set -eu
PGPASSWORD=$(cat /run/secrets/registry-owner) exec psql -q -v ON_ERROR_STOP=1 -h postgres -U regogate_owner -d registry <<'SQL'
grant usage on schema regogate to regogate_gateway;
grant select on regogate.schema_version, regogate.head, regogate.servers, regogate.tools, regogate.pins, regogate.quarantine
  to regogate_gateway;
SQL
