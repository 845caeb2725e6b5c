package upstream

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

// TestDigest states the canonical form in full, so that other programs can
// compute it, and is B108 for what counts as a change.
func TestDigest(t *testing.T) {
	base := `{ "name":"send", "inputSchema":{"type":"object","properties":{"to":{"type":"string"},"n":{"maximum":9007199254740993, "minimum":1.0}}}, "description":"caf\u00e9 <b> \ud83d\ude00 \"q\" \u0001\n", "annotations":{"readOnlyHint":true}, "icons":[{"src":"a"}], "_meta":{"v":1} }`
	canonical := `{"annotations":{"readOnlyHint":true},"description":"café <b> 😀 \"q\" \u0001\n","inputSchema":{"properties":{"n":{"maximum":9007199254740993,"minimum":1.0},"to":{"type":"string"}},"type":"object"},"name":"send"}`
	sum := sha256.Sum256([]byte(canonical))
	want := hex.EncodeToString(sum[:])
	digest := func(definition string) string {
		t.Helper()
		got, err := Digest(jsontext.Value(definition))
		if err != nil {
			t.Fatalf("Digest(%s): %v", definition, err)
		}
		return got
	}
	if got := digest(base); got != want {
		t.Fatalf("the digest is %s, want %s", got, want)
	}
	if got, err := Canonical(jsontext.Value(base)); string(got) != canonical || err != nil {
		t.Fatalf("the canonical form is %s, %v, want %s", got, err, canonical)
	}
	for _, tt := range []struct {
		old, new string
		same     bool
	}{
		{`"name":"send", "inputSchema":`, "\n\t\"inputSchema\":", false}, // no name
		{`{"to":{"type":"string"},"n":`, `{"n":{"maximum":9007199254740993,"minimum":1.0},"to":{"type":"string"},"x":`, false},
		{`{"type":"object","properties":`, `{  "properties":`, false},
		{`"icons":[{"src":"a"}], "_meta":{"v":1} `, `"execution":{}`, true},
		{`caf\u00e9`, `café`, true},
		{`\ud83d\ude00`, `😀`, true},
		{`<b>`, `\u003cb\u003e`, true},
		{`{ "name"`, "{\n\n  \"name\"", true},
		{`caf`, `Caf`, false},
		{`9007199254740993`, `9007199254740992`, false},
		{`"minimum":1.0`, `"minimum":1`, false},
		{`"readOnlyHint":true`, `"readOnlyHint":false`, false},
		{`"to":{"type":"string"}`, `"to":{"type":"string"},"bcc":{"type":"string"}`, false},
		{`"icons"`, `"title":"T","icons"`, false},
		{`"icons"`, `"outputSchema":{},"icons"`, false},
		{`"icons"`, `"title":null,"icons"`, false},
		{`"icons"`, `"Description":"Ask nobody.","icons"`, false},
		{`"icons"`, `"de\u017fcription":"Ask nobody.","icons"`, false},
		{`"icons"`, `"descriptions":"Ask nobody.","icons"`, true},
	} {
		changed := strings.Replace(base, tt.old, tt.new, 1)
		if changed == base {
			t.Fatalf("%q does not occur", tt.old)
		}
		if same := digest(changed) == want; same != tt.same {
			t.Errorf("%q for %q: the same digest is %v, want %v", tt.new, tt.old, same, tt.same)
		}
	}
	if digest(`{"name":"a","description":"\ud83d"}`) != digest(`{"name":"a","description":"\ufffd"}`) {
		t.Error("a lone surrogate does not count as U+FFFD")
	}
	for _, bad := range []string{``, `7`, `[]`, `{"a":1,"a":2}`, `{"a":1} {}`, `{"inputSchema":{"b":1,"b":2}}`} {
		if got, err := Digest(jsontext.Value(bad)); err == nil {
			t.Errorf("Digest(%s) is %s", bad, got)
		}
	}
}

// TestDigestWhole: of things other than tools everything counts but what is
// there for looks alone.
func TestDigestWhole(t *testing.T) {
	base := `{ "uri":"file:///a", "name":"caf\u00e9", "size":9007199254740993, "x-vendor":[2,1], "icons":[{"src":"a"}], "_meta":{"v":1} }`
	sum := sha256.Sum256([]byte(`{"name":"café","size":9007199254740993,"uri":"file:///a","x-vendor":[2,1]}`))
	want := hex.EncodeToString(sum[:])
	for _, tt := range []struct {
		old, new string
		same     bool
	}{
		{"{ ", "{", true},
		{`"uri":"file:///a", "name":"caf\u00e9"`, `"name":"café","uri":"file:///a"`, true},
		{`[{"src":"a"}], "_meta":{"v":1}`, `[], "_meta":{"v":2}`, true},
		{`, "icons":[{"src":"a"}], "_meta":{"v":1}`, ``, true},
		{`"icons"`, `"Icons"`, false},
		{`[2,1]`, `[1,2]`, false},
		{`9007199254740993`, `9007199254740992`, false},
		{`, "x-vendor":[2,1]`, ``, false},
		{`"icons"`, `"mimeType":null, "icons"`, false},
	} {
		changed := strings.Replace(base, tt.old, tt.new, 1)
		if changed == base {
			t.Fatalf("%q does not occur", tt.old)
		}
		got, err := digestWhole(jsontext.Value(changed))
		if err != nil || (got == want) != tt.same {
			t.Errorf("%q for %q: the digest is %s, %v; the same as %s is %v", tt.new, tt.old, got, err, want, tt.same)
		}
	}
	if got, err := digestWhole(jsontext.Value(`{"a":1,"a":2}`)); err == nil {
		t.Errorf("duplicate names have the digest %s", got)
	}
}

// TestDigestIgnoresForm: neither white space nor the order of members matters,
// at any depth.
func TestDigestIgnoresForm(t *testing.T) {
	var value func(depth int) *rapid.Generator[string]
	value = func(depth int) *rapid.Generator[string] {
		return rapid.Custom(func(t *rapid.T) string {
			if depth == 0 {
				return rapid.SampledFrom([]string{`1`, `1.50`, `-0`, `"x"`, `"\u00e9"`, `null`, `true`}).Draw(t, "scalar")
			}
			names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-cA-Zé]{1,3}`), 0, 4, rapid.ID[string]).Draw(t, "names")
			var b strings.Builder
			for i, name := range names {
				if i > 0 {
					b.WriteString(",")
				}
				b.WriteString(`"` + name + `":` + value(depth-1).Draw(t, "value"))
			}
			return "{" + b.String() + "}"
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		definition := jsontext.Value(`{"name":"n","inputSchema":` + value(3).Draw(t, "schema") + `}`)
		want, err := Digest(definition)
		if err != nil {
			t.Fatal(err)
		}
		other := definition.Clone()
		if err := other.Format(jsontext.ReorderRawObjects(true), jsontext.Multiline(true), jsontext.PreserveRawStrings(true)); err != nil {
			t.Fatal(err)
		}
		if got, err := Digest(other); err != nil || got != want {
			t.Fatalf("%s has the digest %s, %s has %s (%v)", definition, want, other, got, err)
		}
	})
}
