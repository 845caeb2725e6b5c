#!/usr/bin/env bash
# Makes images under the names that Dockerfile and docker-compose.yml use, from what is installed here, for machines that cannot pull them.
# They are for the test alone. $DOCKER is the client to use; a name that the engine has already is left alone.
set -euo pipefail
cd "$(dirname "$0")"
docker=${DOCKER:-docker}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

# put copies files and directories, and the libraries that programs among them load, to where they are here.
put() {
  local path lib
  for path in "$@"; do
    mkdir -p "$root$(dirname "$path")"
    cp -aL "$path" "$root$(dirname "$path")/"
    find "$path" -type f \( -perm -u+x -o -name '*.so*' \) -print0 | { xargs -0r -n1 ldd 2>/dev/null || true; } | awk '$2 == "=>" && $3 ~ /^\// {print $3} $1 ~ /^\// && NF == 2 {print $1}' | sort -u |
      while read -r lib; do
        [ -e "$root$lib" ] || { mkdir -p "$root$(dirname "$lib")"; cp -L "$lib" "$root$lib"; }
      done
  done
}

# begin empties the root and gives it a shell and users.
begin() {
  rm -rf "$root"; mkdir -p "$root"/{bin,etc,tmp,root,run/secrets}; chmod 1777 "$root/tmp"
  cp "$(command -v busybox)" "$root/bin/busybox"
  for tool in $("$root/bin/busybox" --list | grep -vx busybox); do ln -s busybox "$root/bin/$tool"; done
  printf '%s\n' root:x:0:0::/root:/bin/sh redis:x:999:999::/data:/bin/sh postgres:x:998:998::/var/lib/postgresql:/bin/sh haproxy:x:99:99::/:/bin/sh >"$root/etc/passwd"
  printf '%s\n' root:x:0: redis:x:999: postgres:x:998: haproxy:x:99: >"$root/etc/group"
}

# end imports the root under a name; what else is given is instructions of a Dockerfile.
end() {
  local name=$1 changes=() c; shift
  for c in "$@"; do changes+=(--change "$c"); done
  tar -C "$root" -c . | "$docker" import "${changes[@]}" - "$name" >/dev/null
  echo "stand-in $name: $("$docker" image inspect --format '{{.Size}}' "$name") bytes"
}

missing() { ! "$docker" image inspect "$1" >/dev/null 2>&1; }

golang() {
  begin
  local goroot modules
  goroot=$(go env GOROOT) modules=$(go env GOMODCACHE)/cache/download
  mkdir -p "$root/usr/local/go" "$root/modules"
  tar -C "$goroot" -c bin src pkg VERSION go.env | tar -C "$root/usr/local/go" -x
  # The modules as a proxy serves them: those of this build whole, of the others what the graph of modules needs.
  (cd ../../.. && go mod download -json) | sed -n 's/^\t"\(Info\|Zip\)": "\(.*\)",\?$/\2/p' | sed "s|^$modules/||" >"$root/modules/list"
  (cd "$modules" && find . -name '*.mod') >>"$root/modules/list"
  tar -C "$modules" -c -T "$root/modules/list" | tar -C "$root/modules" -x
  put /etc/ssl/certs/ca-certificates.crt
  end "$1" "ENV PATH=/usr/local/go/bin:/bin GOPROXY=file:///modules GOSUMDB=off GOTOOLCHAIN=local" "WORKDIR /go"
}

redis() {
  begin
  put /usr/bin/redis-server /usr/bin/redis-cli
  mkdir "$root/data"; chown 999:999 "$root/data"
  end "$1" "ENV PATH=/usr/bin:/bin" "USER 999" "WORKDIR /data" 'CMD ["redis-server", "--protected-mode", "no"]'
}

postgres() {
  begin
  local at
  at=$(ls -d /usr/lib/postgresql/*/bin | tail -1); at=${at%/bin}
  put "$at" "${at/lib/share}"
  rm -rf "$root$at/lib/bitcode" "$root$at/lib/llvmjit"* "$root"{,/usr}/lib/*/libLLVM*
  mkdir -p "$root"/var/lib/postgresql/data "$root"/var/run/postgresql "$root"/docker-entrypoint-initdb.d
  chown -R 998:998 "$root"/var/lib/postgresql "$root"/var/run/postgresql
  chmod 700 "$root/var/lib/postgresql/data"
  chmod 3777 "$root/var/run/postgresql"
  install -m 755 postgres.sh "$root/entrypoint.sh"
  end "$1" "ENV PATH=$at/bin:/bin PGDATA=/var/lib/postgresql/data" "USER 998" 'ENTRYPOINT ["/entrypoint.sh"]' 'CMD ["postgres"]'
}

haproxy() {
  begin
  put /usr/sbin/haproxy
  end "$1" "ENV PATH=/usr/sbin:/bin" "USER 99" 'CMD ["haproxy", "-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"]'
}

for name in "$@"; do
  missing "$name" || continue
  case $name in
    golang:*|redis:*|postgres:*|haproxy:*) "${name%%:*}" "$name" ;;
    *) echo "no stand-in for $name is known: add one to $0" >&2; exit 1 ;;
  esac
done
