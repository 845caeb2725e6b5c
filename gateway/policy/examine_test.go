package policy

import (
	"bytes"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/bundle"
)

// What allow must not read is refused with the place and the way there, or a
// warning where the operator says so.
func TestExamine(t *testing.T) {
	const arguments = `allow reads input.arguments: allow never gets them: put the condition into call`
	for _, c := range []struct{ name, rego, refused, warned string }{
		{"well", `allow if input.tool.owner == "a"
call if { is_number(input.arguments.n); input.arguments.n < 5 }`, "", ""},
		{"arguments", `allow if input.arguments.n == 5 + count(input.tool.attributes)`, "authz.rego:3: " + arguments, ""},
		{"behind rules", `allow if { input.tool.registered; small }
small if input.arguments.n == 5`, "authz.rego:4: " + arguments +
			"; the way there is data.mcp.authz.allow (authz.rego:3) > data.mcp.authz.small (authz.rego:4)", ""},
		{"request", `allow if input.request.id == input.tool.owner`,
			"authz.rego:3: allow reads input.request.id: it differs between a list and a call: decide on something else", ""},
		{"everything", `allow if count(input) == 4`, "",
			"authz.rego:3: allow may read input.arguments, since it looks at more of the input than can be followed: name what it needs, such as input.tool.attributes\n" +
				"authz.rego:3: allow may read input.request.id, since it looks at more of the input than can be followed: name what it needs, such as input.tool.attributes"},
		{"names", `allow if input.tool.name == "a"`, "",
			"allow looks at nothing that the registry says of a tool: one that is not registered, or in quarantine, is as good as any other; ask for input.tool.registered"},
		{"order", `allow if input.tool.effect == "read"
call if input.arguments.n < 5`, "",
			"authz.rego:4: input.arguments.n is compared by order without a look at its type, and Rego orders values of any types (null < 1000): add is_number(input.arguments.n) or is_string(input.arguments.n)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := Config{FS: files(c.rego, "")}
			if got := Check(config).Error(); got != c.refused {
				t.Errorf("refused %q\nwant    %q", got, c.refused)
			}
			config.Check = CheckWarn
			e, err := New(config, discard())
			if err != nil {
				t.Fatal(err)
			}
			if got, want := e.Status().Warnings.Error(), c.warned+c.refused; got != want {
				t.Errorf("warned %q\nwant   %q", got, want)
			}
		})
	}
}

// The bytes of a bundle are judged as a directory is, and named as they are called.
func TestExamineBundle(t *testing.T) {
	for _, c := range []struct{ name, rego, root, refused, warned string }{
		{"well", `allow if input.tool.registered`, "mcp", "", ""},
		{"every root", `allow if input.tool.registered`, "",
			"", "shop: the bundle claims every root, so that no other can stand beside it: build it with roots mcp, and system/log where it has a mask"},
		{"arguments", `allow if input.arguments.n == 5`, "mcp",
			"shop/authz.rego:3: allow reads input.arguments: allow never gets them: put the condition into call", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := bundle.Bundle{Data: map[string]any{}, Manifest: bundle.Manifest{Revision: "v1", Roots: &[]string{c.root}}}
			raw := files(c.rego, "")["authz.rego"].Data
			b.Modules = []bundle.ModuleFile{{URL: "/authz.rego", Path: "/authz.rego", Raw: raw, Parsed: ast.MustParseModule(string(raw))}}
			var body bytes.Buffer
			if err := bundle.NewWriter(&body).UseModulePath(true).DisableFormat(true).Write(b); err != nil {
				t.Fatal(err)
			}
			r := ExamineBundle("shop", body.Bytes(), Config{})
			if r.Problems.Error() != c.refused || r.Warnings.Error() != c.warned || (r.Revision == "") != (c.refused != "") {
				t.Errorf("%+v", r)
			}
		})
	}
	if r := ExamineBundle("page", []byte("<!DOCTYPE html>"), Config{}); r.Problems.Error() != "page: is no bundle: want a gzipped tar archive" {
		t.Errorf("%+v", r)
	}
}
