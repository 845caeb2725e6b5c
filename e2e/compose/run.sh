#!/usr/bin/env bash
# make test-compose: brings docker-compose.yml up as README.md says, and runs the tests of this directory on it. It uses the engine that runs
# here, or else installs and starts one of its own. Images that cannot be pulled are replaced by stand-ins (standin/images.sh). Nothing stays
# but packages. Building takes about 3 GB where $TMPDIR is, and a few minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."

work=$(mktemp -d -t regogate-compose-XXXXXX)
export COMPOSE_PROJECT_NAME=regogate-test-$$ REGOGATE_VERSION=test-$$ REGOGATE_PORT=$((20000 + RANDOM % 10000))
export REGOGATE_COMPOSE_DIR=$work/checkout
engine='' standins=() bridge='' forward=$(cat /proc/sys/net/ipv4/ip_forward)

say() { echo "test-compose: $*"; }

cleanup() {
  local status=$?
  set +e
  if [ "$status" != 0 ] && [ -n "${COMPOSE:-}" ]; then
    (cd "$REGOGATE_COMPOSE_DIR" && $COMPOSE ps && $COMPOSE logs --tail=30 --no-color)
  fi
  [ -z "${COMPOSE:-}" ] || (cd "$REGOGATE_COMPOSE_DIR" && $COMPOSE --profile try down --volumes --remove-orphans --timeout 5) >"$work/down.log" 2>&1 || cat "$work/down.log"
  if [ -n "$engine" ]; then
    kill "$engine"; wait "$engine" 2>/dev/null
    iptables-restore <"$work/iptables"
    echo "$forward" >/proc/sys/net/ipv4/ip_forward
    [ -n "$bridge" ] || ip link delete docker0 2>/dev/null
  elif [ -n "${DOCKER:-}" ]; then
    $DOCKER image rm -f "regogate:$REGOGATE_VERSION" "${standins[@]}" >/dev/null 2>&1
  fi
  rm -rf "$work"
  exit "$status"
}
trap cleanup EXIT

# An engine, a client and compose.
if ! docker info >/dev/null 2>&1; then
  [ "$(id -u)" = 0 ] || { say "no engine answers, and only root can start one: start Docker, or run as root"; exit 1; }
  command -v dockerd >/dev/null && command -v iptables-save >/dev/null || .ci/apt docker.io iptables
  ip link show docker0 >/dev/null 2>&1 && bridge=kept
  iptables -L -n >/dev/null; iptables -t nat -L -n >/dev/null # so that there is something to save
  iptables-save >"$work/iptables"
  export DOCKER_HOST=unix://$work/docker.sock
  dockerd --data-root "$work/data" --exec-root "$work/exec" -p "$work/docker.pid" -H "$DOCKER_HOST" >"$work/dockerd.log" 2>&1 &
  engine=$!
  for _ in $(seq 120); do
    docker info >/dev/null 2>&1 && break
    kill -0 "$engine" 2>/dev/null || { say "dockerd ended:"; tail -5 "$work/dockerd.log"; exit 1; }
    sleep 0.5
  done
  say "started an engine of its own"
fi
export DOCKER=docker
docker info --format 'test-compose: Docker {{.ServerVersion}}, {{.Driver}}'
compose='docker compose'
if ! docker compose version >/dev/null 2>&1; then
  command -v docker-compose >/dev/null || .ci/apt docker-compose
  compose=docker-compose
fi
say "$($compose version --short 2>/dev/null | sed "s/^/$compose /")"

# The checkout as it is, in a place where a policy may be changed.
mkdir "$REGOGATE_COMPOSE_DIR"
git ls-files -z --cached --others --exclude-standard | tar -c --null --ignore-failed-read -T - 2>/dev/null | tar -x -C "$REGOGATE_COMPOSE_DIR"

# Images that are neither here nor to be had.
for name in "golang:$(sed -n 's/^ARG GO_VERSION=//p' Dockerfile)" $(sed -n 's/^ *image: \([a-z]*:[a-z0-9.-]*\)$/\1/p' docker-compose.yml | sort -u); do
  docker image inspect "$name" >/dev/null 2>&1 || timeout 120 docker pull -q "$name" >/dev/null 2>&1 || standins+=("$name")
done
if [ ${#standins[@]} -gt 0 ]; then
  say "cannot be pulled, a stand-in is made here: ${standins[*]}"
  needed=()
  command -v busybox >/dev/null || needed+=(busybox-static)
  command -v haproxy >/dev/null || needed+=(haproxy)
  command -v redis-server >/dev/null || needed+=(redis-server)
  ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || needed+=(postgresql)
  [ ${#needed[@]} = 0 ] || .ci/apt "${needed[@]}"
  e2e/compose/standin/images.sh "${standins[@]}"
fi

export COMPOSE=$compose
go test -v -count=1 -timeout 40m ./e2e/compose
