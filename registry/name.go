package registry

import "strings"

// Limits of names, in characters. Some clients refuse tool names above
// ClientName, so an exposed name that is longer deserves a warning.
const (
	MaxServer  = 64
	MaxTool    = 128
	MaxExposed = 128
	ClientName = 64
)

// The rules of names in words, for messages.
const (
	ServerRule = "a server's name is 1 to 64 of A-Z a-z 0-9 . - and single _, begins with a letter or a digit and does not end in _"
	ToolRule   = "a tool's name is 1 to 128 of A-Z a-z 0-9 . - _"
)

const separator = "__"

// ValidServer reports whether name can be a server's: it never contains "__"
// nor ends in "_", which is why an exposed name can be split in only one way.
func ValidServer(name string) bool {
	return len(name) <= MaxServer && wordsOnly(name) &&
		strings.IndexByte("._-", name[0]) < 0 &&
		!strings.Contains(name, separator) && name[len(name)-1] != '_'
}

// ValidTool reports whether name can be a tool's.
func ValidTool(name string) bool { return len(name) <= MaxTool && wordsOnly(name) }

// Exposed returns the name under which clients of all servers see a tool. It
// is injective over valid names; ok is false where a name is not valid or the
// result is longer than MaxExposed.
func Exposed(server, tool string) (name string, ok bool) {
	name = server + separator + tool
	return name, len(name) <= MaxExposed && ValidServer(server) && ValidTool(tool)
}

// SplitExposed undoes Exposed; ok is false for what Exposed never returns.
func SplitExposed(name string) (server, tool string, ok bool) {
	server, tool, _ = strings.Cut(name, separator)
	return server, tool, len(name) <= MaxExposed && ValidServer(server) && ValidTool(tool)
}

// wordsOnly reports whether s is not empty and made of A-Z a-z 0-9 . - _ only.
func wordsOnly(s string) bool {
	for _, c := range []byte(s) {
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '.' && c != '-' && c != '_' {
			return false
		}
	}
	return s != ""
}
