package draft

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/strictyaml"
)

func lookupNothing(string) (string, bool) { return "", false }

// TestNoValueIsWritten: whatever the values of env, headers, query and secret
// flags are, none is in what is written, and what is connected with has all.
func TestNoValueIsWritten(t *testing.T) {
	secret := rapid.StringMatching(`[a-zA-Z0-9/+=_-]{8,30}`)
	rapid.Check(t, func(t *rapid.T) {
		var values []string
		draw := func(label string) string {
			v := "!" + secret.Draw(t, label)
			values = append(values, v)
			return v
		}
		command := client{
			name: "s", command: "run",
			env:  map[string]string{"A": draw("env"), "PATH": draw("path")},
			args: []string{"--api-key", draw("flag"), "--token=" + draw("assigned"), "-e", "B=" + draw("setting"), "--header", "X-Key: " + draw("header")},
		}
		remote := client{
			name: "r", url: "https://mcp.example.com/mcp?key=" + draw("query"),
			headers: map[string]string{"Authorization": "Bearer " + draw("bearer"), "X": draw("x")},
		}
		vs := &variables{lookup: lookupNothing}
		list := drafts([]client{remote, command}, vs, "/")
		text := serversYAML(list, nil)
		for _, v := range values {
			if strings.Contains(text, v) {
				t.Fatalf("%q is written in\n%s", v, text)
			}
			if vs.redact("it said "+v) == "it said "+v {
				t.Fatalf("%q is not redacted", v)
			}
		}
		for _, d := range list {
			if d.out != "" || d.unset != "" {
				t.Fatalf("%s is left out: %s%s", d.name, d.out, d.unset)
			}
		}
		if !slices.Equal(list[1].config.Args, command.args) || string(list[1].config.Env["A"]) != command.env["A"] ||
			list[0].config.URL != remote.url || string(list[0].config.Headers["Authorization"]) != remote.headers["Authorization"] {
			t.Fatalf("connects with %+v", list)
		}
	})
}

// TestWhatIsWrittenMeansWhatIsUsed reads what is written for a value back, with
// the variables set to what they stand for.
func TestWhatIsWrittenMeansWhatIsUsed(t *testing.T) {
	part := rapid.OneOf(anyText(), rapid.SampledFrom([]string{"${SET}", "${env:SET}", "${UNSET:-x}", "${input:a b}", "$", "Bearer ", "{", "}"}))
	rapid.Check(t, func(t *rapid.T) {
		raw := strings.Join(rapid.SliceOfN(part, 0, 4).Draw(t, "parts"), "")
		vs := &variables{lookup: func(name string) (string, bool) {
			if name == "SET" || strings.HasPrefix(name, "S_INPUT") {
				return "value of " + name, true
			}
			return "", false
		}}
		plain, _ := vs.text("s", "p", raw)
		for _, v := range []value{plain, vs.hidden("s", "BASE", "p", raw), vs.credential("s", "X", "p", raw)} {
			var got struct {
				V string `yaml:"v"`
			}
			env := func(name string) (string, bool) { v := vs.find(name); return v.value, true }
			_, problems := strictyaml.Decode([]byte("v: "+yamlText(v.yaml)), &got, strictyaml.Options{LookupEnv: env})
			if v.missing == "" && (len(problems) > 0 || got.V != v.real) {
				t.Fatalf("%q is written as %s, which is read as %q and not %q: %v", raw, yamlText(v.yaml), got.V, v.real, problems)
			}
		}
	})
}

func TestArguments(t *testing.T) {
	env := func(name string) (string, bool) {
		if name == "SET" {
			return "value-of-set", true
		}
		return "", false
	}
	for _, tt := range []struct {
		args []string
		want string
		real string
	}{
		{[]string{"-y", "@example/server-everything@2026.8.31"}, `["-y", "@example/server-everything@2026.8.31"]`, "-y|@example/server-everything@2026.8.31"},
		{[]string{"--port", "8080", "/home/me/files"}, `["--port", "8080", "/home/me/files"]`, "--port|8080|/home/me/files"},
		{[]string{"--api-key", "--verbose", "x"}, `["--api-key", "--verbose", x]`, "--api-key|--verbose|x"},
		{[]string{"--apiKey=abc"}, `["--apiKey=${S_APIKEY}"]`, "--apiKey=abc"},
		{[]string{"--token", "${SET}"}, `["--token", "${SET}"]`, "--token|value-of-set"},
		{[]string{"--token=${env:SET}"}, `["--token=${SET}"]`, "--token=value-of-set"},
		{[]string{"--who", "${NOT_SET:-nobody}"}, `["--who", "${NOT_SET}"]`, "--who|nobody"},
		{[]string{"-H", "Authorization: Bearer abc"}, `["-H", "Authorization: Bearer ${S_TOKEN}"]`, "-H|Authorization: Bearer abc"},
		{[]string{"--header", "Authorization:${SET}"}, `["--header", "Authorization:${SET}"]`, "--header|Authorization:value-of-set"},
		{[]string{"-e", "KEY=abc", "--env=KEY2=def", "-e", "KEY3"}, `["-e", "KEY=${KEY}", "--env=KEY2=${KEY2}", "-e", KEY3]`, "-e|KEY=abc|--env=KEY2=def|-e|KEY3"},
		{[]string{"postgresql://me:pw@db/x"}, `["${S_ARG_1}"]`, "postgresql://me:pw@db/x"},
		{[]string{"https://mcp.example.com/mcp"}, `["https://mcp.example.com/mcp"]`, "https://mcp.example.com/mcp"},
		{[]string{"https://mcp.example.com/mcp?key=1"}, `["${S_ARG_1}"]`, "https://mcp.example.com/mcp?key=1"},
		{[]string{"ghp_abcdefghijklmnop"}, `["${S_ARG_1}"]`, "ghp_abcdefghijklmnop"},
		{[]string{"8f14e45f-ceea-467f-a0e6-0123456789ab"}, `["${S_ARG_1}"]`, "8f14e45f-ceea-467f-a0e6-0123456789ab"},
		{[]string{"host=db password=pw"}, `["${S_ARG_1}"]`, "host=db password=pw"},
		{[]string{"sha256:0123456789abcdef0123456789abcdef"}, `["sha256:0123456789abcdef0123456789abcdef"]`, "sha256:0123456789abcdef0123456789abcdef"},
		{[]string{"a ${ b $x"}, `["a $${ b $x"]`, "a ${ b $x"},
	} {
		d := &drafter{draft: &draft{name: "s"}, vs: &variables{lookup: env}, at: "servers.s"}
		real := strings.Join(d.args(tt.args), "|")
		if got := strings.Join(d.draft.yaml, "\n"); got != "args: "+tt.want || real != tt.real {
			t.Errorf("%q is written as\n%s and used as %s, want\nargs: %s and %s", tt.args, got, real, tt.want, tt.real)
		}
	}
}

func TestURLs(t *testing.T) {
	for _, tt := range []struct{ raw, want, out string }{
		{"https://mcp.example.com/mcp", "https://mcp.example.com/mcp", ""},
		{"https://mcp.example.com/api/s/0123456789abcdef01234567/mcp", "https://mcp.example.com/api/s/${S_URL_PATH}/mcp", ""},
		{"https://mcp.example.com/mcp?a=1&b=&c", "https://mcp.example.com/mcp?a=${S_A}&b=&c=", ""},
		{"https://${HOST}/mcp?key=${env:KEY}", "https://${HOST}/mcp?key=${KEY}", ""},
		{"https://me:pw@mcp.example.com/mcp", "", "url: is not a URL, or holds a user or a password: put what it needs into headers"},
		{"://", "", "url: is not a URL, or holds a user or a password: put what it needs into headers"},
		{"ftp://mcp.example.com", "ftp://mcp.example.com", "url: must begin with http:// or https://"},
	} {
		vs := &variables{lookup: func(name string) (string, bool) { return strings.ToLower(name), name == "HOST" || name == "KEY" }}
		d := drafts([]client{{name: "s", url: tt.raw}}, vs, "/")[0]
		got := strings.TrimSuffix(strings.TrimPrefix(strings.Join(d.yaml, "\n"), "url: \""), "\"")
		if got != tt.want || d.out != tt.out {
			t.Errorf("%s is written as %q (%s), want %q (%s)", tt.raw, got, d.out, tt.want, tt.out)
		}
	}
}

func TestDirectories(t *testing.T) {
	dir := t.TempDir()
	for raw, want := range map[string]string{".": dir, dir: dir, "${HERE}": dir, "${env:HERE}/.": dir + "/."} {
		vs := &variables{lookup: func(name string) (string, bool) { return dir, name == "HERE" }}
		if d := drafts([]client{{name: "s", command: "x", cwd: raw}}, vs, dir)[0]; d.config.Dir != want || d.out != "" {
			t.Errorf("%s is %s (%s), want %s", raw, d.config.Dir, d.out, want)
		}
	}
}

func TestVariablesOfDifferentValuesHaveDifferentNames(t *testing.T) {
	vs := &variables{lookup: lookupNothing}
	for _, tt := range []struct{ server, base, value, want string }{
		{"a", "KEY", "1", "KEY"}, {"b", "KEY", "1", "KEY"}, {"b", "KEY", "2", "B_KEY"}, {"b", "KEY", "3", "B_KEY_2"},
		{"c-d", "KEY", "4", "C_D_KEY"}, {"a", "PATH", "5", "A_PATH"}, {"1", "not a name", "6", "MCP_1_NOT_A_NAME"}, {"é", "é", "7", "MCP_"},
	} {
		if got := vs.add(tt.server, tt.base, "servers."+tt.server, tt.value, true); got != tt.want || !variableName.MatchString(got) {
			t.Errorf("%s of %s with %s is called %s, want %s", tt.base, tt.server, tt.value, got, tt.want)
		}
	}
}

// TestAReferenceKeepsItsName: another value never takes the name that a value
// of the file refers to.
func TestAReferenceKeepsItsName(t *testing.T) {
	vs := &variables{lookup: func(name string) (string, bool) { return "from the environment", name == "KEY" }}
	list := drafts([]client{
		{name: "a", command: "x", env: map[string]string{"KEY": "literal"}},
		{name: "b", command: "x", env: map[string]string{"OTHER": "${KEY}"}},
	}, vs, "/")
	if a, b := list[0].yaml[2], list[1].yaml[2]; a != `  KEY: "${A_KEY}"` || b != `  OTHER: "${KEY}"` {
		t.Errorf("written as %s and %s", a, b)
	}
}

func TestServerNames(t *testing.T) {
	long := strings.Repeat("x", 80)
	got := serverNames([]client{{name: ""}, {name: "My Server!"}, {name: "My-Server"}, {name: "My?Server"}, {name: "a__b"}, {name: "_a"}, {name: "日本"}, {name: long}, {name: long + "y"}, {name: "ok_1.x"}})
	want := map[string]string{
		"": "server", "My Server!": "My-Server-2", "My-Server": "My-Server", "My?Server": "My-Server-3", "a__b": "a-b", "_a": "a",
		"日本": "server-2", long: strings.Repeat("x", 60), long + "y": strings.Repeat("x", 60) + "-2", "ok_1.x": "ok_1.x",
	}
	for from, name := range want {
		if got[from] != name || !registry.ValidServer(got[from]) {
			t.Errorf("%q is called %q, want %q", from, got[from], name)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		var clients []client
		for _, name := range rapid.SliceOfNDistinct(rapid.String(), 0, 10, rapid.ID).Draw(t, "names") {
			clients = append(clients, client{name: name})
		}
		names, taken := serverNames(clients), map[string]bool{}
		for _, c := range clients {
			if name := names[c.name]; !registry.ValidServer(name) || taken[name] {
				t.Fatalf("%q is called %q", c.name, name)
			}
			taken[names[c.name]] = true
		}
	})
}
