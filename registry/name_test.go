package registry

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestValidServer(t *testing.T) {
	for name, want := range map[string]bool{
		"stripe": true, "git": true, "a_b": true, "a.b-c": true, "0": true, "a_.b": true, "A9_-": true,
		strings.Repeat("a", 64): true, strings.Repeat("a", 65): false,
		"": false, "git__hub": false, "_a": false, "a_": false, ".a": false, "-a": false, "a b": false,
		"a/b": false, "a:b": false, "ѕtripe": false, "a\x00": false, "a\n": false, "a___b": false,
	} {
		if got := ValidServer(name); got != want {
			t.Errorf("ValidServer(%q) = %v", name, got)
		}
	}
}

func TestValidTool(t *testing.T) {
	for name, want := range map[string]bool{
		"read": true, "__read": true, "hub__read": true, "_": true, "a.b": true, "get-catalog-entity": true,
		"x__y__z": true, strings.Repeat("a", 128): true, strings.Repeat("a", 129): false,
		"": false, "a.b/c": false, "ns:tool": false, "Has Space": false, "日本": false, "rеad_file": false,
		"read\u200b_file": false, "read_file\u202e": false, "café": false,
	} {
		if got := ValidTool(name); got != want {
			t.Errorf("ValidTool(%q) = %v", name, got)
		}
	}
}

func TestExposed(t *testing.T) {
	for _, c := range []struct {
		server, tool, name string
		ok                 bool
	}{
		{"stripe", "create_refund", "stripe__create_refund", true},
		{"git", "hub__read", "git__hub__read", true},
		{"a", "_x", "a___x", true},
		{"git__hub", "read", "git__hub__read", false},
		{"a", strings.Repeat("b", 125), "a__" + strings.Repeat("b", 125), true},
		{"a", strings.Repeat("b", 126), "a__" + strings.Repeat("b", 126), false},
	} {
		name, ok := Exposed(c.server, c.tool)
		if name != c.name || ok != c.ok {
			t.Errorf("Exposed(%q, %q) = %q, %v", c.server, c.tool, name, ok)
		}
		server, tool, ok := SplitExposed(c.name)
		if c.ok && (server != c.server || tool != c.tool || !ok) {
			t.Errorf("SplitExposed(%q) = %q, %q, %v", c.name, server, tool, ok)
		}
	}
	for _, bad := range []string{"", "__", "a", "a__", "__a", "a_b", "a__" + strings.Repeat("b", 126), "a__b c"} {
		if server, tool, ok := SplitExposed(bad); ok {
			t.Errorf("SplitExposed(%q) = %q, %q, true", bad, server, tool)
		}
	}
}

// The rules agree with their written form, and every pair comes back from its
// exposed name.
func TestNamesProperty(t *testing.T) {
	serverForm := regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9.-]*(_[A-Za-z0-9.-]+)*\z`)
	toolForm := regexp.MustCompile(`\A[A-Za-z0-9_.-]{1,128}\z`)
	rapid.Check(t, func(t *rapid.T) {
		server := rapid.StringOfN(rapid.SampledFrom([]rune("ab0._- é")), 0, 70, -1).Draw(t, "server")
		tool := rapid.StringOfN(rapid.SampledFrom([]rune("ab0._- é")), 0, 130, -1).Draw(t, "tool")
		if ValidServer(server) != (serverForm.MatchString(server) && len(server) <= 64) {
			t.Fatalf("ValidServer(%q) = %v", server, ValidServer(server))
		}
		if ValidTool(tool) != toolForm.MatchString(tool) {
			t.Fatalf("ValidTool(%q) = %v", tool, ValidTool(tool))
		}
		name, ok := Exposed(server, tool)
		s, n, back := SplitExposed(name)
		if ok && (s != server || n != tool || !back) {
			t.Fatalf("%q, %q became %q and came back as %q, %q, %v", server, tool, name, s, n, back)
		}
		if again, _ := Exposed(s, n); back && again != name {
			t.Fatalf("%q came back as %q", name, again)
		}
	})
}

// Every name that real servers give their tools is valid.
func TestRealNames(t *testing.T) {
	data, err := os.ReadFile(filepath.FromSlash("../../shared/data/real-tools.jsonl"))
	if err != nil {
		t.Skipf("the collection of real tools is not beside the repository: %v", err)
	}
	seen := map[string]bool{}
	for line := range bytes.Lines(data) {
		var tool struct{ Server, Name string }
		if err := json.Unmarshal(line, &tool); err != nil {
			t.Fatal(err)
		}
		name, ok := Exposed(tool.Server, tool.Name)
		server, short, back := SplitExposed(name)
		if !ok || !back || server != tool.Server || short != tool.Name || seen[name] {
			t.Errorf("%q of %q is exposed as %q", tool.Name, tool.Server, name)
		}
		seen[name] = true
	}
	if len(seen) < 2000 {
		t.Errorf("only %d tools", len(seen))
	}
}

func BenchmarkSplitExposed(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, _, ok := SplitExposed("stripe__create_refund"); !ok {
			b.Fatal("not split")
		}
	}
}
