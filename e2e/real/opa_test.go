package real_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// facts is what a catalogue says of a tool, or of all tools of a server.
type facts struct {
	Attributes []string          `yaml:"attributes" json:"attributes,omitempty"`
	Effect     string            `yaml:"effect" json:"effect,omitempty"`
	Data       string            `yaml:"data" json:"data,omitempty"`
	Reach      string            `yaml:"reach" json:"reach,omitempty"`
	Env        string            `yaml:"env" json:"env,omitempty"`
	Owner      string            `yaml:"owner" json:"owner,omitempty"`
	Labels     map[string]string `yaml:"labels" json:"labels,omitempty"`
}

type catalogueEntry struct {
	facts       `yaml:",inline"`
	Description string `yaml:"description"`
	SHA256      string `yaml:"sha256"`
	Suggested   bool   `yaml:"suggested"`
}

// readCatalogue reads catalogue files; what a server says holds for its tools
// that do not say it themselves. The keys are exposed names.
func readCatalogue(t testing.TB, paths ...string) map[string]catalogueEntry {
	t.Helper()
	all := map[string]catalogueEntry{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Servers map[string]struct {
				facts `yaml:",inline"`
				Tools map[string]catalogueEntry
			}
		}
		if err := yaml.Unmarshal(text, &file); err != nil {
			t.Fatal(err)
		}
		for server, common := range file.Servers {
			for name, entry := range common.Tools {
				entry.facts = entry.or(common.facts)
				all[server+"__"+name] = entry
			}
		}
	}
	if len(all) == 0 {
		t.Fatalf("no tools in %v", paths)
	}
	return all
}

// or fills in what f leaves open.
func (f facts) or(common facts) facts {
	if f.Attributes == nil {
		f.Attributes = slices.Clone(common.Attributes)
	}
	slices.Sort(f.Attributes)
	labels := maps.Clone(common.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, f.Labels)
	f.Labels = labels
	for _, pair := range []struct{ own, common *string }{
		{&f.Effect, &common.Effect}, {&f.Data, &common.Data}, {&f.Reach, &common.Reach}, {&f.Env, &common.Env}, {&f.Owner, &common.Owner},
	} {
		if *pair.own == "" {
			*pair.own = *pair.common
		}
	}
	return f
}

// toolInput is input.tool as the policy contract has it.
type toolInput struct {
	Server      string `json:"server"`
	Name        string `json:"name"`
	ExposedName string `json:"exposed_name"`
	facts
	Registered bool            `json:"registered"`
	Definition definitionInput `json:"definition"`
}

type definitionInput struct {
	SHA256      string          `json:"sha256"`
	Pinned      bool            `json:"pinned"`
	Drifted     bool            `json:"drifted"`
	Annotations json.RawMessage `json:"annotations,omitempty"`
}

// describe joins what a server says of its tool with what the catalogue says.
func describe(t testing.TB, o offered, entries map[string]catalogueEntry) toolInput {
	t.Helper()
	var own struct{ Annotations json.RawMessage }
	if err := json.Unmarshal(o.raw, &own); err != nil {
		t.Fatal(err)
	}
	in := toolInput{Server: o.server, Name: o.name, ExposedName: o.exposed()}
	in.Definition = definitionInput{SHA256: digest(t, o.raw), Annotations: own.Annotations}
	entry, ok := entries[o.exposed()]
	if !ok || entry.Suggested {
		return in
	}
	in.facts, in.Registered = entry.facts, true
	in.Definition.Pinned = entry.SHA256 != ""
	in.Definition.Drifted = in.Definition.Pinned && entry.SHA256 != in.Definition.SHA256
	return in
}

// digest is the digest that pins a definition, as the catalogue's documentation
// has it: of the canonical form of these members.
func digest(t testing.TB, raw json.RawMessage) string {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(members, func(name string, _ json.RawMessage) bool {
		return !slices.Contains([]string{"annotations", "description", "inputSchema", "name", "outputSchema", "title"}, name)
	})
	text, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	canonical := jsontext.Value(text)
	if err := canonical.Canonicalize(); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])
}

// query asks for each tool of the input whether the policy allows it. The inner
// input has a name of its own because a reference in the value of `with` would
// itself be read from that value.
const query = `[tool.exposed_name |
	some tool in input.tools
	question := {"method": "tools/call", "claims": input.claims, "tool": tool, "request": {"route": "/mcp"}}
	data.mcp.authz.allow == true with input as question
]`

// opaEval has OPA's command line evaluate the policies in dir, and returns the
// exposed names of the tools that are allowed, in the order given.
func opaEval(t testing.TB, dir string, claims json.RawMessage, tools []toolInput) []string {
	t.Helper()
	input, err := json.Marshal(map[string]any{"claims": claims, "tools": tools})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "input.json")
	if err := os.WriteFile(path, input, 0o600); err != nil {
		t.Fatal(err)
	}
	out := regogate(t, "opa", "eval", "--strict-builtin-errors", "--format", "json", "--data", dir, "--input", path, query)
	var answer struct {
		Result []struct {
			Expressions []struct{ Value []string }
		}
	}
	if err := json.Unmarshal(out, &answer); err != nil || len(answer.Result) != 1 {
		t.Fatalf("opa eval: %v: %s", err, out)
	}
	return answer.Result[0].Expressions[0].Value
}
