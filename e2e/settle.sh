# What the install.sh of the directories here have in common. They source it
# from their own directory.

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
