package main

import (
	"strings"
	"testing"

	"github.com/regogate/regogate/registry"
)

// A number is no digest, whatever digit that begins with.
func TestRevision(t *testing.T) {
	digest := "2" + strings.Repeat("a", 63)
	for name, want := range map[string]string{
		"2":         "revision 2 (digest 2aaaaaaaaaaa)",
		"37":        "revision 37 (digest 2aaaaaaaaaaa)",
		digest[:12]: "revision 2aaaaaaaaaaa",
	} {
		if got := revision(registry.Head{Revision: name, Digest: digest}); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
