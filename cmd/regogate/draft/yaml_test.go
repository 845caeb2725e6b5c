package draft

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"

	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/strictyaml"
)

// anyText draws texts with the characters that YAML and the configuration's
// references give a meaning to.
func anyText() *rapid.Generator[string] {
	return rapid.OneOf(rapid.String(), rapid.StringMatching(`[-a-z0-9 :#{}\[\]"'$\\,&*!|>%@~?.=]{0,20}`),
		rapid.SampledFrom([]string{"yes", "No", "null", "~", "1e3", "0x1", "2026-01-01", "<<", "", " ", "a: b", "- a", "# a", "${A}", "$${A}", "\u202e", "\x7f", "\U0001f600", "\ufeff"}))
}

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(anyText(), 1, 5).Draw(t, "texts")
		quoted := make([]string, len(texts))
		for i, s := range texts {
			quoted[i] = plainDollar(s)
		}
		doc := "list: " + yamlList(quoted) + "\nmap:\n"
		for i, s := range texts {
			if !slices.Contains(texts[:i], s) {
				doc += "  " + yamlText(s) + ": " + yamlText(quoted[i]) + " # " + comment(s) + "\n"
			}
		}
		var got struct {
			List []string          `yaml:"list"`
			Map  map[string]string `yaml:"map"`
		}
		_, problems := strictyaml.Decode([]byte(doc), &got, strictyaml.Options{LookupEnv: os.LookupEnv})
		if len(problems) > 0 || !slices.Equal(got.List, texts) {
			t.Fatalf("%s\nis read as %q: %v", doc, got.List, problems)
		}
		for _, s := range texts {
			if got.Map[s] != s {
				t.Fatalf("%s\nhas %q for %q", doc, got.Map[s], s)
			}
		}
	})
}

func TestACommentIsOneLine(t *testing.T) {
	got := comment("a\nb\r\n c\x1b[31m\u202ed\u2028e" + strings.Repeat("ä", 1000))
	if strings.ContainsAny(got, "\n\r\x1b\u202e\u2028") || len(got) > 410 || !strings.HasPrefix(got, "a b c [31m d e") {
		t.Errorf("comment = %q", got)
	}
}

// TestTheCatalogueIsReadBack gives the catalogue hostile names and problems.
func TestTheCatalogueIsReadBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.StringMatching(`[a-z0-9][a-z0-9.-]{0,5}|yes|null|1|1e3|0x1f`)
		tools := map[string]registry.Tool{}
		var findings []finding
		accept := rapid.Bool().Draw(rt, "accept")
		for _, server := range rapid.SliceOfNDistinct(name, 0, 3, rapid.ID).Draw(rt, "servers") {
			f := finding{name: server, problem: rapid.OneOf(rapid.Just(""), anyText()).Draw(rt, "problem")}
			for _, tool := range rapid.SliceOfNDistinct(rapid.StringMatching(`[A-Za-z0-9_.-]{1,12}|no|~|on`).Filter(registry.ValidTool), 0, 4, rapid.ID).Draw(rt, "tools") {
				s := suggestion{Tool: registry.Tool{
					Server: server, Name: tool, SHA256: strings.Repeat("0", 64), Suggested: true,
					Effect: rapid.SampledFrom(append(registry.Effects(), "")).Draw(rt, "effect"),
					Data:   rapid.SampledFrom(append(registry.DataClasses(), "")).Draw(rt, "data"),
					Reach:  "external", Attributes: []string{rapid.SampledFrom(registry.Attributes()).Draw(rt, "attribute")},
				}, Why: []string{anyText().Draw(rt, "why")}}
				f.tools = append(f.tools, s)
				s.Suggested = !accept || s.Effect == "" || s.Data == ""
				s.Env = "production"
				tools[server+"/"+tool] = s.Tool
			}
			findings = append(findings, f)
		}
		got := readCatalogue(rt, catalogueYAML(findings, accept))
		if !maps.EqualFunc(got, tools, func(a, b registry.Tool) bool { return sameEntry(a, b) }) {
			rt.Fatalf("read %+v, want %+v", got, tools)
		}
	})
}

func sameEntry(a, b registry.Tool) bool {
	return a.Server == b.Server && a.Name == b.Name && slices.Equal(a.Attributes, b.Attributes) && a.Effect == b.Effect &&
		a.Data == b.Data && a.Reach == b.Reach && a.Env == b.Env && a.SHA256 == b.SHA256 && a.Suggested == b.Suggested
}

// TestEveryServerHasAnEntry takes the marks from what can be said of a server.
func TestEveryServerHasAnEntry(t *testing.T) {
	text := string(catalogueYAML([]finding{{name: "prompts"}, {name: "down", problem: "unavailable"}}, false))
	text = strings.NewReplacer("    #attributes: []", "    attributes: [web]", "    #", "    ").Replace(text)
	c := loadCatalogue(t, []byte(text))
	want := []registry.Server{{
		Name: "prompts", Attributes: []string{"web"}, Data: "secret", Reach: "external", Env: "production",
		Owner: "who answers for it",
	}}
	if !reflect.DeepEqual(c.Servers, want) {
		t.Errorf("of\n%s\nthe servers are %+v", text, c.Servers)
	}
}

// failing is a test, or one round of it.
type failing interface {
	Helper()
	Context() context.Context
	Fatalf(format string, args ...any)
}

func loadCatalogue(t failing, text []byte) *registry.Catalogue {
	t.Helper()
	source, err := registry.OpenFS(fstest.MapFS{"written.yaml": {Data: text}}, "written", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	defer source.Close()
	c, err := source.Load(t.Context(), registry.Head{})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return c
}

func readCatalogue(t failing, text []byte) map[string]registry.Tool {
	t.Helper()
	tools := map[string]registry.Tool{}
	for _, tool := range loadCatalogue(t, text).Tools {
		tools[tool.Server+"/"+tool.Name] = tool
	}
	return tools
}
