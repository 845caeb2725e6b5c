package policy

import (
	"context"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// Masks stand beside a policy, read an event and not the policy input, and may use
// what the policy brings along.
func TestMasksOfAPolicy(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"authz.rego":       goodModule,
		"lib/secrets.rego": "package mcp.lib.secrets\n\npaths := {\"/input/arguments/password\"}\n",
		"log/mask.rego":    "package system.log\n\nimport data.mcp.lib.secrets\n\nmask contains p if some p in secrets.paths\n\nmask contains \"/input/claims\" if input.input.claims.sub == data.mcp.hidden\n\ndrop if startswith(input.path, \"x\")\n",
		"data.json":        `{"mcp":{"hidden":"s"}}`,
	})
	c := Config{Dir: dir}
	if problems := Check(c); len(problems) > 0 {
		t.Fatal(problems)
	}
	e, err := New(c, discard())
	if err != nil {
		t.Fatal(err)
	}
	m, err := e.Current().Masker(MaskPaths{})
	if err != nil || !m.Masks() || !m.Drops() {
		t.Fatalf("%+v, %v", m, err)
	}
	event := ast.MustParseTerm(`{"path": "xy", "input": {"claims": {"sub": "s"}}}`).Value
	answer, ok, err := m.Mask(context.Background(), event)
	if got, _ := ast.InterfaceToValue(answer); err != nil || !ok || got.String() != `["/input/arguments/password", "/input/claims"]` {
		t.Errorf("%v, %v, %v", answer, ok, err)
	}
	if drop, err := m.Drop(context.Background(), event); !drop || err != nil {
		t.Errorf("%v, %v", drop, err)
	}
	// OPA's index would take the path for one that does not match.
	if drop, err := m.Drop(context.Background(), ast.MustParseTerm(`{"path": 1}`).Value); drop || err == nil || !strings.HasSuffix(err.Error(), "log/mask.rego:9: eval_type_error: startswith: operand 1 is of the wrong type") {
		t.Errorf("%v, %v", drop, err)
	}
	done, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := m.Mask(done, event); err == nil {
		t.Error("nobody waits, and there is an answer")
	}
}

// Data can mask as well as rules, and nothing is no mask.
func TestMaskerFindsWhatMasks(t *testing.T) {
	for name, c := range map[string]struct {
		files       fstest.MapFS
		paths       MaskPaths
		masks, drop bool
	}{
		"nothing":       {files: fstest.MapFS{}},
		"data":          {files: fstest.MapFS{"system/log/data.json": {Data: []byte(`{"mask":["/input/claims"]}`)}}, masks: true},
		"other rules":   {files: fstest.MapFS{"m.rego": {Data: []byte("package system.log\n\nx := 1\n")}}},
		"below":         {files: fstest.MapFS{"m.rego": {Data: []byte("package system.log.mask\n\nx := 1\n")}}, masks: true},
		"dynamic":       {files: fstest.MapFS{"m.rego": {Data: []byte("package system\n\nlog[x] := [] if some x in [\"mask\"]\n")}}},
		"another place": {files: fstest.MapFS{"m.rego": {Data: []byte("package system.log.a\n\nb := true\n")}}, paths: MaskPaths{Drop: "system/log/a/b"}, drop: true},
		"in the policy": {files: fstest.MapFS{"m.rego": {Data: []byte("package mcp.log\n\nb := true\n")}}, paths: MaskPaths{Mask: "/mcp/log/b"}, masks: true},
	} {
		c.files["authz.rego"] = &fstest.MapFile{Data: []byte(goodModule)}
		e, err := New(Config{FS: c.files}, discard())
		if name == "dynamic" { // lies outside
			if err == nil {
				t.Errorf("%s: accepted", name)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		m, err := e.Current().Masker(c.paths)
		if err != nil || m.Masks() != c.masks || m.Drops() != c.drop {
			t.Errorf("%s: masks %v, drops %v, %v", name, m.Masks(), m.Drops(), err)
		}
	}
	e, err := New(Config{FS: fstest.MapFS{"authz.rego": {Data: []byte(goodModule)}}}, discard())
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/"} {
		if _, err := e.Current().Masker(MaskPaths{Mask: path}); err == nil || !strings.Contains(err.Error(), "is no path of a rule: write it like /system/log/mask") {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestBadMasks(t *testing.T) {
	for masks, want := range map[string]string{
		"package system.log\n\nmask contains x\n":                            "m.rego:3: var x is unsafe",
		"package system.log\n\nmask contains http.send({}).x\n":              "m.rego:3: http.send is off: do without it, or name it in insecure_builtins",
		"package system.logs\n":                                              "m.rego:1: package system.logs lies outside mcp and system.log: rename it to mcp.something",
		"package mcp.x\n\ny if \"/input\" in data.system.log.mask\n":         "m.rego:1: reads data.system.log, which is for the decision log alone: move what both need below mcp",
		"package system.log\n\nmask contains \"/input/claims\" if undefined": "m.rego:3: var undefined is unsafe",
	} {
		files := fstest.MapFS{"authz.rego": {Data: []byte(goodModule)}, "m.rego": {Data: []byte(masks)}}
		if strings.Contains(masks, "mcp.x") {
			files["l.rego"] = &fstest.MapFile{Data: []byte("package system.log\n\nmask contains \"/input/x\"\n")}
		}
		if _, err := New(Config{FS: files}, discard()); err == nil || err.Error() != want {
			t.Errorf("%s\ngives %v\nwant  %s", masks, err, want)
		}
	}
	for source, want := range map[string]string{
		"package mcp.log\n":                       "x.rego:1: package mcp.log cannot mask: rename it to system.log",
		"package system.log\n\nmask contains x\n": "x.rego:3: var x is unsafe",
		"package system.log\n\nmask [":            "x.rego:3: rego_parse_error",
	} {
		if _, err := NewMasker("x.rego", []byte(source), MaskPaths{}, 0); err == nil || !strings.HasPrefix(err.Error(), strings.TrimSuffix(want, "rego_parse_error")) {
			t.Errorf("%s\ngives %v\nwant  %s", source, err, want)
		}
	}
}

// Document and Parts are what the policy gets.
func TestDocumentOfAQuestion(t *testing.T) {
	s, err := NewSubject(jsontext.Value(`{"sub":"s","n":1}`))
	if err != nil {
		t.Fatal(err)
	}
	i, err := NewPromptItem(Prompt{Server: "a", Name: "b", ExposedName: "a__b"})
	if err != nil {
		t.Fatal(err)
	}
	q := Question{Method: "prompts/get", Subject: s, Item: i, Request: Request{ID: "r"}}
	const rest = `"claims": {"n": 1, "sub": "s"}, "method": "prompts/get", `
	const prompt = `"prompt": {"exposed_name": "a__b", "name": "b", "registered": false, "server": "a"}, `
	for arguments, want := range map[string]string{
		"":        `{` + rest + prompt + `"request": {"id": "r"}}`,
		`{"x":1}`: `{"arguments": {"x": 1}, ` + rest + prompt + `"request": {"id": "r"}}`,
	} {
		var raw jsontext.Value
		if arguments != "" {
			raw = jsontext.Value(arguments)
		}
		if got, err := q.Document(raw); err != nil || got.String() != want {
			t.Errorf("got  %v, %v\nwant %s", got, err, want)
		}
	}
	if claims, thing, ok := q.Parts(); !ok || claims.String() != `{"n": 1, "sub": "s"}` || thing.String()+", " != strings.TrimPrefix(prompt, `"prompt": `) {
		t.Errorf("%v, %v, %v", claims, thing, ok)
	}
	if got := q.Request.Value().String(); got != `{"id": "r"}` {
		t.Errorf("request: %s", got)
	}
	if q.Item = nil; true {
		if got, err := q.Document(nil); err != nil || got.String() != `{`+rest+`"request": {"id": "r"}}` {
			t.Errorf("of a list: %v, %v", got, err)
		}
	}
	for _, bad := range []Question{{}, {Method: "m"}, {Method: "m", Subject: &Subject{}}, {Subject: s}, {Method: "m", Subject: s, Item: &Item{}}} {
		if _, err := bad.Document(nil); err == nil {
			t.Errorf("%+v has a document", bad)
		}
		if _, _, ok := bad.Parts(); ok {
			t.Errorf("%+v has parts", bad)
		}
	}
	if s.Claim("sub") != "s" || s.Claim("n") != "" || s.Claim("x") != "" || (*Subject)(nil).Claim("sub") != "" {
		t.Error("claims are read wrongly")
	}
}
