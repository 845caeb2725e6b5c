package registry

import (
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/regogate/regogate/registry/strictyaml"
)

const goodCatalogue = `
version: 1
servers:
  stripe:
    description: Takes payments.
    owner: payments-team
    env: production
    data: financial
    reach: external
    attributes: [payments]
    labels: {tier: "1", freeze: "false"}
    tools:
      create_refund:
        description: Pays a charge back.
        effect: destructive
        attributes: [payments, commerce]
        labels: {freeze: "true"}
        sha256: 0000000000000000000000000000000000000000000000000000000000000abc
      list_prices: {effect: read, data: public, owner: shop-team}
      new_tool: {suggested: true}
  a.b:
    tools:
      read: {effect: read, data: public, reach: closed, attributes: [web]}
  only-prompts: {attributes: [web, ai], data: internal}
  nothing: {}
`

func TestCatalogueFile(t *testing.T) {
	found, err := readCatalogue(fstest.MapFS{"c.yaml": {Data: []byte(goodCatalogue)}}, "dir", []string{"c.yaml"})
	if err != nil || len(found.problems) > 0 {
		t.Fatalf("error %v, problems %v", err, found)
	}
	c, err := NewCatalogue("", found.catalogue())
	if err != nil {
		t.Fatal(err)
	}
	want := []Tool{
		{Server: "a.b", Name: "read", Attributes: []string{"web"}, Effect: "read", Data: "public", Reach: "closed"},
		{Server: "stripe", Name: "create_refund", Description: "Pays a charge back.",
			Attributes: []string{"commerce", "payments"}, Effect: "destructive", Data: "financial", Reach: "external",
			Env: "production", Owner: "payments-team", Labels: map[string]string{"tier": "1", "freeze": "true"},
			SHA256: strings.Repeat("0", 61) + "abc"},
		{Server: "stripe", Name: "list_prices", Attributes: []string{"payments"}, Effect: "read", Data: "public",
			Reach: "external", Env: "production", Owner: "shop-team", Labels: map[string]string{"tier": "1", "freeze": "false"}},
		{Server: "stripe", Name: "new_tool", Attributes: []string{"payments"}, Data: "financial", Reach: "external",
			Env: "production", Owner: "payments-team", Labels: map[string]string{"tier": "1", "freeze": "false"}, Suggested: true},
	}
	if !reflect.DeepEqual(c.Tools, want) {
		t.Errorf("got  %+v\nwant %+v", c.Tools, want)
	}
	servers := []Server{
		{Name: "a.b"},
		{Name: "nothing"},
		{Name: "only-prompts", Attributes: []string{"ai", "web"}, Data: "internal"},
		{Name: "stripe", Description: "Takes payments.", Attributes: []string{"payments"}, Data: "financial", Reach: "external",
			Env: "production", Owner: "payments-team", Labels: map[string]string{"tier": "1", "freeze": "false"}},
	}
	if !reflect.DeepEqual(c.Servers, servers) {
		t.Errorf("got  %+v\nwant %+v", c.Servers, servers)
	}
}

func TestCatalogueProblems(t *testing.T) {
	tool := func(fields string) string {
		return "version: 1\nservers:\n  s:\n    tools:\n      t: {" + fields + "}\n"
	}
	const rest = "effect: read, data: public, reach: closed"
	for _, c := range []struct{ name, in, want string }{
		{"version", "servers: {}\n", "d/c.yaml:1: version: want version: 1"},
		{"version 2", "servers: {}\nversion: 2\n", "d/c.yaml:2: version: want version: 1"},
		{"misspelt effect", tool("effect: wirte, attributes: [web], data: public, reach: closed"),
			`d/c.yaml:5: servers.s.tools.t.effect: unknown value "wirte"; did you mean write?`},
		{"unknown effect", tool("effect: explode, attributes: [web], data: public, reach: closed"),
			`d/c.yaml:5: servers.s.tools.t.effect: unknown value "explode"; want one of: read, write, destructive, admin, execute`},
		{"unknown data", tool("effect: read, attributes: [web], data: financal, reach: closed"),
			`d/c.yaml:5: servers.s.tools.t.data: unknown value "financal"; did you mean financial?`},
		{"unknown reach", tool("effect: read, attributes: [web], data: public, reach: open"),
			`d/c.yaml:5: servers.s.tools.t.reach: unknown value "open"; want one of: closed, external`},
		{"unknown attribute", tool("attributes: [paymens, web], " + rest),
			`d/c.yaml:5: servers.s.tools.t.attributes[0]: unknown value "paymens"; did you mean payments?`},
		{"empty attribute", tool(`attributes: [""], ` + rest),
			`d/c.yaml:5: servers.s.tools.t.attributes[0]: unknown value ""; want one of: ` + strings.Join(Attributes(), ", ")},
		{"attribute twice", tool("attributes: [web, web], " + rest), "d/c.yaml:5: servers.s.tools.t.attributes[1]: is listed twice"},
		{"nothing said", tool(""),
			"d/c.yaml:5: servers.s.tools.t.attributes: is missing; want one or more of: " + strings.Join(Attributes(), ", ") +
				"\nd/c.yaml:5: servers.s.tools.t.data: is missing; want one of: public, internal, personal, financial, secret" +
				"\nd/c.yaml:5: servers.s.tools.t.effect: is missing; want one of: read, write, destructive, admin, execute" +
				"\nd/c.yaml:5: servers.s.tools.t.reach: is missing; want one of: closed, external"},
		{"sha256 short", tool("attributes: [web], sha256: abc, " + rest), "d/c.yaml:5: servers.s.tools.t.sha256: want 64 lower-case hexadecimal digits"},
		{"sha256 upper case", tool("attributes: [web], sha256: " + strings.Repeat("A", 64) + ", " + rest),
			"d/c.yaml:5: servers.s.tools.t.sha256: want 64 lower-case hexadecimal digits"},
		{"env", tool("attributes: [web], env: Pro Duction, " + rest), "d/c.yaml:5: servers.s.tools.t.env: want a short word of a-z 0-9 -, such as production"},
		{"bidi in description", tool("attributes: [web], description: \"a\u202eb\", " + rest),
			"d/c.yaml:5: servers.s.tools.t.description: contains a character that does not show"},
		{"long owner", tool("attributes: [web], owner: " + strings.Repeat("o", 129) + ", " + rest),
			"d/c.yaml:5: servers.s.tools.t.owner: is longer than 128 bytes"},
		{"label", tool(`attributes: [web], labels: {k: "a\nb"}, ` + rest), "d/c.yaml:5: servers.s.tools.t.labels.k: contains a character that does not show"},
		{"label yes", tool("attributes: [web], labels: {k: yes}, " + rest),
			"d/c.yaml:5: servers.s.tools.t.labels.k: want a string, this is a truth value in older YAML; put it in quotes"},
		{"unknown key", tool("atributes: [web], " + rest), "d/c.yaml:5: servers.s.tools.t.atributes: unknown key; did you mean attributes?"},
		{"command", "version: 1\nservers: {s: {command: sh}}\n",
			"d/c.yaml:2: servers.s.command: unknown key; known here: description, attributes, data, reach, env, owner, labels, tools"},
		{"effect for all", "version: 1\nservers: {s: {effect: read}}\n",
			"d/c.yaml:2: servers.s.effect: unknown key; known here: description, attributes, data, reach, env, owner, labels, tools"},
		{"a server's attributes", "version: 1\nservers:\n  s:\n    attributes:\n      - web\n      - paymens\n",
			`d/c.yaml:6: servers.s.attributes[1]: unknown value "paymens"; did you mean payments?`},
		{"a server's reach", "version: 1\nservers:\n  s: {}\n  t:\n    reach: open\n",
			`d/c.yaml:5: servers.t.reach: unknown value "open"; want one of: closed, external`},
		{"a server's description", "version: 1\nservers:\n  s:\n    description: \"a\\u202eb\"\n",
			"d/c.yaml:4: servers.s.description: contains a character that does not show"},
		{"a server's label", "version: 1\nservers:\n  s:\n    labels:\n      k: \"a\\nb\"\n",
			"d/c.yaml:5: servers.s.labels.k: contains a character that does not show"},
		{"a server's pin", "version: 1\nservers: {s: {sha256: abc}}\n",
			"d/c.yaml:2: servers.s.sha256: unknown key; known here: description, attributes, data, reach, env, owner, labels, tools"},
		{"bad default, once", "version: 1\nservers:\n  s:\n    data: publik\n    tools:\n      a: {effect: read, reach: closed, attributes: [web]}\n      b: {effect: read, reach: closed, attributes: [web]}\n",
			`d/c.yaml:4: servers.s.data: unknown value "publik"; did you mean public?`},
		{"tool without value", "version: 1\nservers: {s: {tools: {t: }}}\n", "d/c.yaml:2: servers.s.tools.t: has no value; give it one or remove the line"},
		{"duplicate tool", "version: 1\nservers:\n  s:\n    tools:\n      t: {suggested: true}\n      t: {suggested: true}\n",
			"d/c.yaml:6: servers.s.tools.t: duplicate key, first given on line 5"},
		{"server name", "version: 1\nservers:\n  git__hub: {}\n", "d/c.yaml:3: servers.git__hub: " + ServerRule},
		{"tool name", "version: 1\nservers:\n  s:\n    tools:\n      a/b: {}\n", `d/c.yaml:5: servers.s.tools["a/b"]: ` + ToolRule},
		{"no expansion", tool("attributes: [web], owner: \"${HOME}\", " + rest), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			found, err := readCatalogue(fstest.MapFS{"c.yaml": {Data: []byte(c.in)}}, "d", []string{"c.yaml"})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := strictyaml.Err(found.problems); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
			}
		})
	}
}

func TestServerInTwoFiles(t *testing.T) {
	fsys := fstest.MapFS{
		"a.yaml": {Data: []byte("version: 1\nservers:\n  s: {}\n")},
		"b.yaml": {Data: []byte("version: 1\nservers:\n  t: {}\n  s: {}\n")},
	}
	found, err := readCatalogue(fsys, "d", []string{"a.yaml", "b.yaml"})
	want := "d/b.yaml:4: servers.s: the server is already in d/a.yaml:3"
	if err != nil || len(found.problems) != 1 || found.problems[0].String() != want {
		t.Errorf("error %v, found %v", err, found)
	}
}

func FuzzCatalogueFile(f *testing.F) {
	f.Add([]byte(goodCatalogue))
	f.Add([]byte("version: 1\nservers: {s: {tools: {t: {labels: {a: b}}}}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		found, err := readCatalogue(fstest.MapFS{"c.yaml": {Data: data}}, "", []string{"c.yaml"})
		if err != nil {
			t.Fatal(err)
		}
		if len(found.problems) > 0 {
			return
		}
		c, err := NewCatalogue("", found.catalogue())
		if err != nil {
			t.Fatalf("the file is accepted, its catalogue is not: %v", err)
		}
		index, parts := encoded(t, c)
		if _, err := decoded(c.Head, index, parts); err != nil {
			t.Fatal(err)
		}
	})
}
