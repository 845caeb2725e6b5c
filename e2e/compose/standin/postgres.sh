#!/bin/sh
# What the official image does at its first start, as far as docker-compose.yml uses it.
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  initdb --username=postgres --pwfile="$POSTGRES_PASSWORD_FILE" --auth-local=trust --auth-host=scram-sha-256 -E UTF8 --locale=C >/dev/null
  echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
  pg_ctl -w start -o "-c listen_addresses=''" >/dev/null
  export POSTGRES_USER=postgres
  for f in /docker-entrypoint-initdb.d/*.sh; do sh "$f"; done
  pg_ctl -w -m fast stop >/dev/null
fi
exec "$@" -c listen_addresses='*'
