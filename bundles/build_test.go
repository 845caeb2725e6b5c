package bundles_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/rego"

	"github.com/regogate/regogate/bundles"
	"github.com/regogate/regogate/e2e/keyfile"
	"github.com/regogate/regogate/gateway/policy"
)

func policyFiles() map[string]string {
	return map[string]string{
		"authz.rego":           allow + "\n# kept as it   is\ncall if input.arguments.n < 3\n\nscopes contains \"more\"\n",
		"authz_test.rego":      "package mcp.authz_test\n\ntest_no if not data.mcp.authz.allow\n",
		"lib/z.rego":           "package mcp.lib.z\n\nx := 1\n",
		"lib/a.rego":           "package mcp.lib.a\n\nx := 2\n",
		"mcp/grants/data.yaml": "- alice\n- bob\n",
		"data.json":            `{"mcp": {"limits": {"n": 12345678901234567890, "f": 1.50}}}`,
		".hidden.rego":         "not rego",
		".git/data.json":       "not json",
		"README.md":            "not policy",
	}
}

func TestBuildHoldsWhatAGatewayReads(t *testing.T) {
	files := policyFiles()
	dir := tree(t, files)
	b, err := bundles.Build(dir, bundles.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []entry{
		{"/data.json", `{"mcp":{"grants":["alice","bob"],"limits":{"f":1.50,"n":12345678901234567890}}}` + "\n"},
		{"/authz.rego", files["authz.rego"]},
		{"/lib/a.rego", files["lib/a.rego"]},
		{"/lib/z.rego", files["lib/z.rego"]},
		{"/.manifest", `{"revision":"` + b.Revision + `","roots":["mcp"],"rego_version":1,"metadata":{"entrypoints":["mcp/authz/allow","mcp/authz/call","mcp/authz/scopes"]}}` + "\n"},
	}
	if got := entries(t, b.Bytes); !slices.Equal(got, want) {
		t.Errorf("the bundle holds\n%q\nwant\n%q", got, want)
	}
	if r := policy.Examine(dir, policy.Config{}); b.Revision != r.Revision || r.Revision == "" {
		t.Errorf("revision %q, the gateway calls the directory %q: %v", b.Revision, r.Revision, r.Problems)
	}
	if !slices.Equal(b.Roots, []string{"mcp"}) {
		t.Errorf("roots %q", b.Roots)
	}
	back, err := opa(t, b.Bytes, nil)
	if err != nil || len(back.Modules) != 3 || back.Manifest.Revision != b.Revision {
		t.Errorf("plain OPA reads %d modules, revision %q: %v", len(back.Modules), back.Manifest.Revision, err)
	}
}

func TestBuildIsTheSameForTheSameFiles(t *testing.T) {
	one, other := tree(t, policyFiles()), tree(t, policyFiles())
	past := time.Date(2001, 2, 3, 4, 5, 6, 7, time.UTC)
	if err := os.Chtimes(filepath.Join(other, "authz.rego"), past, past); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(other, "authz.rego"), 0o444); err != nil {
		t.Fatal(err)
	}
	all := keyfile.Pairs(t)
	secret, _ := all[slices.IndexFunc(all, func(p keyfile.Pair) bool { return p.Algorithm == "HS384" })].Keys(t, "k")
	key, _ := all[slices.IndexFunc(all, func(p keyfile.Pair) bool { return p.Algorithm == "RS256" })].Keys(t, "")
	end := time.Unix(4102444800, 0)
	for name, o := range map[string]bundles.Options{
		"unsigned": {}, "HS384": {Key: secret, Claims: bundles.Claims{Scope: "s", Expires: end}}, "RS256": {Key: key},
	} {
		first, err := bundles.Build(one, o)
		if err != nil {
			t.Fatal(name, err)
		}
		for range 3 {
			second, err := bundles.Build(other, o)
			if err != nil || !bytes.Equal(first.Bytes, second.Bytes) {
				t.Errorf("%s: the same files gave other bytes: %v", name, err)
			}
		}
	}
	plain, err := bundles.Build(one, bundles.Options{})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(other, "lib", "a.rego"), "package mcp.lib.a\n\nx := 3\n")
	changed, err := bundles.Build(other, bundles.Options{})
	if err != nil || changed.Revision == plain.Revision || bytes.Equal(changed.Bytes, plain.Bytes) {
		t.Errorf("other files gave the revision %s again: %v", changed.Revision, err)
	}
}

func TestBuildTakesRevisionAndRoots(t *testing.T) {
	files := map[string]string{"a.rego": allow, "mask.rego": "package system.log\n\nmask contains \"/input/x\"\n"}
	for name, c := range map[string]struct {
		roots, want []string
	}{
		"own":        {nil, []string{"mcp", "system/log"}},
		"everything": {[]string{""}, []string{""}},
		"slashes":    {[]string{"/mcp/", "system"}, []string{"mcp", "system"}},
	} {
		b, err := bundles.Build(tree(t, files), bundles.Options{Revision: "v42", Roots: c.roots})
		if err != nil || b.Revision != "v42" || !slices.Equal(b.Roots, c.want) {
			t.Errorf("%s: revision %q, roots %q: %v", name, b.Revision, b.Roots, err)
			continue
		}
		back, err := opa(t, b.Bytes, nil)
		if err != nil || back.Manifest.Revision != "v42" || !slices.Equal(*back.Manifest.Roots, c.want) {
			t.Errorf("%s: plain OPA reads revision %q, roots %q: %v", name, back.Manifest.Revision, *back.Manifest.Roots, err)
		}
	}
	data := map[string]string{"a.rego": allow, "data.json": `{"system": {"log": {"x": 1}}}`}
	if b, err := bundles.Build(tree(t, data), bundles.Options{}); err != nil || !slices.Equal(b.Roots, []string{"mcp", "system/log"}) {
		t.Errorf("data under system.log: %v", err)
	}
}

func TestBuildRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		roots []string
		want  string // the end of the one line
	}{
		"nothing":        {map[string]string{"README.md": ""}, nil, ": no .rego file: there is nothing to make a bundle of"},
		"other JSON":     {map[string]string{"a.rego": allow, "schema.json": "{}"}, nil, "schema.json: only data.json, data.yaml and data.yml are read, but plain opa would read this file too: rename it or move it away"},
		"broken data":    {map[string]string{"a.rego": allow, "data.json": `{"mcp": {`}, nil, "data.json:1: not valid JSON: unexpected EOF"},
		"foreign data":   {map[string]string{"a.rego": allow, "data.json": `{"x": 1}`}, nil, "data.x lies outside mcp and system.log: move it to mcp.x"},
		"narrow roots":   {map[string]string{"a.rego": allow}, []string{"mcp/lib"}, "do not permit 'package mcp.authz' in module '/a.rego': name roots that hold every package and all data, none within another"},
		"narrow data":    {map[string]string{"a.rego": allow, "data.json": `{"mcp": {"grants": []}}`}, []string{"mcp/authz"}, "do not permit data at path '/mcp/grants' (hint: check bundle directory structure): name roots that hold every package and all data, none within another"},
		"nested roots":   {map[string]string{"a.rego": allow}, []string{"mcp", "mcp/authz"}, "overlapped roots: 'mcp' and 'mcp/authz': name roots that hold every package and all data, none within another"},
		"broken policy":  {map[string]string{"a.rego": "package mcp.authz\n\nallow if {"}, nil, "a.rego:3: unexpected eof token"},
		"foreign module": {map[string]string{"a.rego": "package other\n"}, nil, "do not permit 'package other' in module '/a.rego': name roots that hold every package and all data, none within another"},
	} {
		b, err := bundles.Build(tree(t, c.files), bundles.Options{Roots: c.roots})
		switch {
		case err == nil:
			t.Errorf("%s: built %v", name, entries(t, b.Bytes))
		case strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), c.want):
			t.Errorf("%s: %q, want %q", name, err, c.want)
		}
	}
	if _, err := bundles.Build(filepath.Join(t.TempDir(), "none"), bundles.Options{}); err == nil || !strings.Contains(err.Error(), "no such policy directory") {
		t.Errorf("no directory: %v", err)
	}
}

// TestBundleDecidesAsTheDirectory compares all that the policy says, not only allow.
func TestBundleDecidesAsTheDirectory(t *testing.T) {
	dir := filepath.Join("..", "policies")
	built, err := bundles.Build(dir, bundles.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := opa(t, built.Bytes, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	fromBundle, err := rego.New(rego.Query("data.mcp.authz"), rego.ParsedBundle("b", &b), rego.StrictBuiltinErrors(true)).PrepareForEval(ctx)
	if err != nil {
		t.Fatal(err)
	}
	notTests := func(abspath string, _ os.FileInfo, _ int) bool { return strings.HasSuffix(abspath, "_test.rego") }
	fromDir, err := rego.New(rego.Query("data.mcp.authz"), rego.Load([]string{dir}, notTests), rego.StrictBuiltinErrors(true)).PrepareForEval(ctx)
	if err != nil {
		t.Fatal(err)
	}
	allowed := 0
	for _, sub := range []string{"alice", "", "ops"} {
		for _, role := range []any{"support", []any{"developer", "payments"}, nil, 7} {
			for _, attribute := range []string{"payments", "crm", "web", ""} {
				for _, effect := range []string{"read", "write", "destructive"} {
					in := map[string]any{
						"method": "tools/call",
						"claims": map[string]any{"iss": "https://issuer.example", "sub": sub, "roles": role},
						"tool": map[string]any{
							"server": "web", "name": "x", "exposed_name": "web__x", "attributes": []any{attribute}, "effect": effect,
							"data": "internal", "reach": "closed", "env": "production", "owner": "o",
							"registered": true, "definition": map[string]any{"pinned": true, "drifted": false},
						},
					}
					x, err := fromDir.Eval(ctx, rego.EvalInput(in))
					if err != nil {
						t.Fatal(err)
					}
					y, err := fromBundle.Eval(ctx, rego.EvalInput(in))
					if err != nil {
						t.Fatal(err)
					}
					if !reflect.DeepEqual(x[0].Expressions[0].Value, y[0].Expressions[0].Value) {
						t.Errorf("of %v the directory says %v, the bundle %v", in, x[0].Expressions[0].Value, y[0].Expressions[0].Value)
					}
					if says, _ := x[0].Expressions[0].Value.(map[string]any); says["allow"] == true {
						allowed++
					}
				}
			}
		}
	}
	if allowed == 0 {
		t.Error("the policy allowed nothing of this: nothing was compared")
	}
}
