package strictyaml

import (
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

type issuer struct {
	Issuer   string   `yaml:"issuer"`
	Audience []string `yaml:"audience"`
}

type common struct {
	Owner string `yaml:"owner"`
}

type config struct {
	Listen   string             `yaml:"listen"`
	Port     uint16             `yaml:"port"`
	Level    slog.Level         `yaml:"level"`
	On       bool               `yaml:"enabled"`
	Count    int                `yaml:"count"`
	Ratio    float64            `yaml:"ratio"`
	Timeout  time.Duration      `yaml:"timeout"`
	Body     ByteSize           `yaml:"body"`
	Proxies  []netip.Prefix     `yaml:"proxies"`
	Password Secret             `yaml:"password"`
	Issuers  []issuer           `yaml:"issuers"`
	Servers  map[string]*issuer `yaml:"servers"`
	TLS      *issuer            `yaml:"tls"`
	OPA      any                `yaml:"opa"`
	common   `yaml:",inline"`

	Untagged string
}

// Inlined fields of an unexported embedded struct can still be set.
var _ = config{common: common{Owner: ""}}

func lookup(name string) (string, bool) {
	env := map[string]string{
		"HOST": "h.example", "PORT": "8443", "EMPTY": "", "NASTY": "a: [${HOST}\nb: &x 1",
		"FLAG": "true", "SECRETWORD": "hunter2",
	}
	v, ok := env[name]
	return v, ok
}

func TestDecode(t *testing.T) {
	got := config{Count: 7, Untagged: "kept"}
	_, problems := Decode([]byte(`
listen: "${HOST}:1"
port: ${PORT}
level: WARN
enabled: true
ratio: 0.25
timeout: 1m30s
body: 4MiB
proxies: [10.0.0.0/8]
password: "$${plain} $5"
issuers:
  - issuer: https://a
    audience: ["1", x]
servers: {"a.b": {issuer: https://b}}
owner: payments-team
opa:
  "n": 9007199254740993
  f: 1.5
  list: [true, null, "${HOST}"]
`), &got, Options{File: "c.yaml", LookupEnv: lookup})
	if len(problems) != 0 {
		t.Fatalf("problems: %v", problems)
	}
	want := config{
		Listen: "h.example:1", Port: 8443, Level: slog.LevelWarn, On: true, Count: 7, Ratio: 0.25,
		Timeout: 90 * time.Second, Body: 4 << 20, Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		Password: "${plain} $5", Issuers: []issuer{{Issuer: "https://a", Audience: []string{"1", "x"}}},
		Servers: map[string]*issuer{"a.b": {Issuer: "https://b"}},
		OPA: map[string]any{"n": int64(9007199254740993), "f": 1.5,
			"list": []any{true, nil, "h.example"}},
		common: common{Owner: "payments-team"}, Untagged: "kept",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %#v\nwant %#v", got, want)
	}
}

func TestProblems(t *testing.T) {
	const str = "want a string, this is %s; put it in quotes"
	for _, c := range []struct{ name, in, want string }{
		{"empty", "", "f:1: is empty; write {} where nothing is meant to be set"},
		{"comment only", "# x\n", "f:1: is empty; write {} where nothing is meant to be set"},
		{"two documents", "count: 1\n---\ncount: 2\n", "f:2: a second document begins here; only one is allowed"},
		{"not UTF-8", "listen: a\nowner: \xff\n", "f:2: is not UTF-8 text"},
		{"syntax", "listen: a\nport: [1\n", "f:2: is not valid YAML, here or in what begins here: did not find expected ',' or ']'"},
		{"tab", "issuers:\n\t- a: 1\n", "f:2: is not valid YAML, here or in what begins here: found character that cannot start any token"},
		{"not a mapping", "[1]\n", "f:1: want a mapping of keys to values, this is a list"},
		{"anchor", "owner: &a x\nlisten: *a\n", "f:1: owner: anchors are not allowed; write the value out where it is needed\nf:2: listen: aliases are not allowed; write the value out"},
		{"unknown alias", "owner: x\nlisten: *a\n", "f:2: aliases are not allowed; write the value out"},
		{"merge", "tls: {<<: {issuer: x}}\n", "f:1: tls: merge keys are not allowed; write the values out"},
		{"tag", "owner: !!str 1\n", "f:1: owner: tags are not allowed; remove what begins with !"},
		{"custom tag", "tls: !x {}\n", "f:1: tls: tags are not allowed; remove what begins with !"},
		{"misspelt", "isuers: []\n", "f:1: isuers: unknown key; did you mean issuers?"},
		{"case", "Listen: a\n", "f:1: Listen: unknown key; did you mean listen?"},
		{"unknown", "tls: {zzz: 1}\n", "f:1: tls.zzz: unknown key; known here: issuer, audience"},
		{"untagged field", "Untagged: 1\n", "f:1: Untagged: unknown key; known here: listen, port, level, enabled, count, ratio, timeout, body, proxies, password, issuers, servers, tls, opa, owner"},
		{"duplicate", "count: 1\nowner: a\ncount: 2\n", "f:3: count: duplicate key, first given on line 1"},
		{"duplicate in map", "servers:\n  a: {}\n  \"a\": {}\n", "f:3: servers.a: duplicate key, first given on line 2"},
		{"duplicate in any", "opa: {a: 1, a: 2}\n", "f:1: opa.a: duplicate key, first given on line 1"},
		{"list as key", "servers:\n  [a]: {}\n", "f:2: servers: a key must be a string, this is a list"},
		{"number as key", "servers:\n  1: {}\n", "f:2: servers: this key is a number; put it in quotes"},
		{"old truth as key", "servers:\n  on: {}\n", "f:2: servers: this key is a truth value in older YAML; put it in quotes"},
		{"no value", "owner:\n", "f:1: owner: has no value; give it one or remove the line"},
		{"null section", "tls:\n  # issuer: x\n", "f:1: tls: has no value; give it one or remove the line"},
		{"null list", "issuers: ~\n", "f:1: issuers: has no value; give it one or remove the line"},
		{"string yes", "owner: yes\n", "f:1: owner: " + fmt.Sprintf(str, "a truth value in older YAML")},
		{"string NO", "owner: NO\n", "f:1: owner: " + fmt.Sprintf(str, "a truth value in older YAML")},
		{"string on", "opa: on\n", "f:1: opa: " + fmt.Sprintf(str, "a truth value in older YAML")},
		{"string true", "owner: true\n", "f:1: owner: " + fmt.Sprintf(str, "a truth value")},
		{"string 1.10", "owner: 1.10\n", "f:1: owner: " + fmt.Sprintf(str, "a number")},
		{"string 0o7", "owner: 0o7\n", "f:1: owner: " + fmt.Sprintf(str, "a number")},
		{"string date", "owner: 2026-07-28\n", "f:1: owner: " + fmt.Sprintf(str, "a date")},
		{"secret number", "password: 123456\n", "f:1: password: " + fmt.Sprintf(str, "a number")},
		{"list for string", "owner: [a]\n", "f:1: owner: want a string, this is a list"},
		{"string for list", "issuers:\n  - audience: x\n", "f:2: issuers[0].audience: want a list, this is a string"},
		{"bool yes", "enabled: yes\n", "f:1: enabled: want true or false, this is something else"},
		{"bool True", "enabled: True\n", "f:1: enabled: want true or false, this is something else"},
		{"bool quoted", "enabled: 'true'\n", "f:1: enabled: want true or false, this is a string; remove the quotes"},
		{"int octal", "count: 010\n", "f:1: count: want an integer in plain decimal digits, this is something else"},
		{"int hex", "count: 0x1f\n", "f:1: count: want an integer in plain decimal digits, this is something else"},
		{"int underscores", "count: 1_000\n", "f:1: count: want an integer in plain decimal digits, this is something else"},
		{"int plus", "count: +1\n", "f:1: count: want an integer in plain decimal digits, this is something else"},
		{"int quoted", "count: \"1\"\n", "f:1: count: want an integer in plain decimal digits, this is a string; remove the quotes"},
		{"int range", "port: 65536\n", "f:1: port: is out of range for an integer of 16 bits"},
		{"int64 range", "count: 9223372036854775808\n", "f:1: count: is out of range for an integer of 64 bits"},
		{"unsigned", "port: -1\n", "f:1: port: want an integer in plain decimal digits, not negative, this is something else"},
		{"float nan", "ratio: .nan\n", "f:1: ratio: want a decimal number such as 0.5, this is something else"},
		{"float dot", "ratio: 1.\n", "f:1: ratio: want a decimal number such as 0.5, this is something else"},
		{"float range", "ratio: 1e999\n", "f:1: ratio: is out of range for a number of 64 bits"},
		{"duration", "timeout: 5\n", "f:1: timeout: want a duration with a unit such as 5s or 250ms, this is something else"},
		{"duration quoted", "timeout: \"5\"\n", "f:1: timeout: want a duration with a unit such as 5s or 250ms, this is something else"},
		{"duration zero", "timeout: 0\n", "f:1: timeout: want a duration with a unit such as 5s or 250ms, this is something else"},
		{"size", "body: 4\n", "f:1: body: is not valid: want a size with a unit such as 64KiB or 4MiB"},
		{"size overflow", "body: 99999999999GiB\n", "f:1: body: is not valid: want a size with a unit such as 64KiB or 4MiB"},
		{"unset", "owner: ${NOPE}\n", "f:1: owner: the environment variable NOPE is not set"},
		{"set but empty", "owner: ${EMPTY}\n", "f:1: owner: the environment variable EMPTY is empty"},
		{"bad variable", "owner: ${1A}\n", "f:1: owner: want ${NAME} or ${file:PATH}, where NAME is letters, digits and _; write $${ for a plain ${"},
		{"open variable", "owner: a${HOST\n", "f:1: owner: a variable begins with ${ and has no }; write $${ for a plain ${"},
		{"every variable", "owner: ${NOPE}${EMPTY}\n", "f:1: owner: the environment variable EMPTY is empty\nf:1: owner: the environment variable NOPE is not set"},
		{"value hidden", "count: ${SECRETWORD}\n", "f:1: count: want an integer in plain decimal digits, this is something else"},
		{"value hidden in text", "body: ${SECRETWORD}\n", "f:1: body: is not valid after its variables are filled in"},
		{"no file", "owner: ${file:absent}\n", "f:1: owner: cannot read the file absent: no such file or directory"},
		{"no path", "owner: ${file:}\n", "f:1: owner: ${file:PATH} needs a path"},
		{"all at once, sorted", "zzz: 1\nport: x\nissuers:\n  - {isuer: a}\n", "f:1: zzz: unknown key; known here: listen, port, level, enabled, count, ratio, timeout, body, proxies, password, issuers, servers, tls, opa, owner\nf:2: port: want an integer in plain decimal digits, not negative, this is something else\nf:4: issuers[0].isuer: unknown key; did you mean issuer?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var into config
			_, problems := Decode([]byte(c.in), &into, Options{File: "f", LookupEnv: lookup, Dir: t.TempDir()})
			got := ""
			if err := Err(problems); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
			}
		})
	}
}

func TestExpansionCannotInject(t *testing.T) {
	var got config
	_, problems := Decode([]byte("owner: ${NASTY}\nlisten: x\n"), &got, Options{LookupEnv: lookup})
	if len(problems) != 0 || got.Owner != "a: [${HOST}\nb: &x 1" {
		t.Errorf("owner %q, problems %v", got.Owner, problems)
	}
}

func TestNoExpansionByDefault(t *testing.T) {
	var got config
	_, problems := Decode([]byte("owner: ${HOST} $${x\n"), &got, Options{})
	if len(problems) != 0 || got.Owner != "${HOST} $${x" {
		t.Errorf("owner %q, problems %v", got.Owner, problems)
	}
}

func TestSecretFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"one": "s3cret\n", "two": "s3cret\n\n", "win": "s3cret\r\n", "empty": "\n",
		"big": strings.Repeat("x", maxSecretBytes+1),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string]string{
		"one": "s3cret", "two": "s3cret\n", "win": "s3cret", filepath.Join(dir, "one"): "s3cret",
	} {
		var got config
		_, problems := Decode([]byte("password: ${file:"+file+"}\n"), &got, Options{LookupEnv: lookup, Dir: dir})
		if len(problems) != 0 || string(got.Password) != want {
			t.Errorf("%s: %q, problems %v", file, string(got.Password), problems)
		}
	}
	for file, want := range map[string]string{
		"empty": "1: password: the file empty is empty", "big": "1: password: the file big is larger than 1MiB",
	} {
		var got config
		_, problems := Decode([]byte("password: ${file:"+file+"}\n"), &got, Options{LookupEnv: lookup, Dir: dir})
		if len(problems) != 1 || problems[0].String() != want {
			t.Errorf("%s: %v", file, problems)
		}
	}
}

func TestLimits(t *testing.T) {
	var into any
	_, problems := Decode([]byte("a: 1\n"), &into, Options{MaxBytes: 4})
	if len(problems) != 1 || problems[0].Message != "is larger than 4B" {
		t.Errorf("size: %v", problems)
	}
	_, problems = Decode([]byte(strings.Repeat("[", 5)+strings.Repeat("]", 5)), &into, Options{MaxDepth: 3})
	if len(problems) != 1 || problems[0].Message != "nested deeper than 3 levels" {
		t.Errorf("depth: %v", problems)
	}
	_, problems = Decode([]byte(strings.Repeat("[", 200_000)), &into, Options{})
	if len(problems) != 1 {
		t.Errorf("depth of the parser: %v", problems)
	}
}

func TestPositions(t *testing.T) {
	var into config
	pos, problems := Decode([]byte(`servers:
  "a.b":
    issuer: https://a
issuers:
  - audience:
      - x
`), &into, Options{File: "f"})
	if len(problems) != 0 {
		t.Fatal(problems)
	}
	for path, want := range map[string]int{
		"": 1, "servers": 1, `servers["a.b"]`: 2, `servers["a.b"].issuer`: 3, `servers["a.b"].audience`: 2,
		`servers["c.d"].issuer`: 1, "issuers[0].audience[0]": 6, "issuers[0].issuer": 5, "nowhere.at.all": 1,
	} {
		if got := pos.Line(path); got != want {
			t.Errorf("line of %s: %d, want %d", path, got, want)
		}
	}
	found := []Problem{{Path: "issuers[0].issuer", Message: "b"}, {Path: Field("servers", "a.b"), Message: "a"}}
	pos.Locate(found)
	want := []Problem{
		{File: "f", Path: `servers["a.b"]`, Line: 2, Message: "a"},
		{File: "f", Path: "issuers[0].issuer", Line: 5, Message: "b"},
	}
	if !slices.Equal(found, want) {
		t.Errorf("located %v", found)
	}
	var none *Positions
	none.Locate(found)
	if none.Line("x") != 0 {
		t.Error("nil positions know a line")
	}
}

func TestNearest(t *testing.T) {
	known := []string{"read", "write", "destructive", "admin", "execute"}
	for word, want := range map[string]string{
		"wirte": "write", "READ": "read", "destructiv": "destructive", "reda": "read", "exec": "",
		"x": "", "": "", "public": "", strings.Repeat("read", 100): "",
	} {
		if got := Nearest(word, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestByteSize(t *testing.T) {
	for _, s := range []ByteSize{0, 1, 1023, 1024, 4 << 20, 3 << 30, 1<<20 + 1, math.MaxInt64} {
		var got ByteSize
		if err := got.UnmarshalText([]byte(s.String())); err != nil || got != s {
			t.Errorf("%s came back as %d: %v", s, got, err)
		}
	}
	for _, bad := range []string{"", "4", "MiB", "4mib", "-1B", "1.5MiB", "04B", " 4B", "9223372036854775808B"} {
		var got ByteSize
		if err := got.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q accepted as %d", bad, got)
		}
	}
}

func TestSecretNeverPrints(t *testing.T) {
	c := struct {
		Password Secret
		Empty    Secret
	}{Password: "hunter2"}
	text, _ := c.Password.MarshalText()
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "config", c, "password", c.Password)
	all := fmt.Sprintf("%v %+v %#v %s %q", c, c, c, c.Password, c.Password) + string(text) + log.String()
	if strings.Contains(all, "hunter2") {
		t.Errorf("the secret is in %s", all)
	}
	if c.Empty.String() != "" {
		t.Error("an empty secret does not look empty")
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		"", "listen: a\nissuers:\n- issuer: ${HOST}\n", "a: &x [*x]\n<<: *x", "? [a]\n: b", "{a: b, ? }", "--- |\n x\n...\n---",
		"servers: {a: {audience: [!!binary x]}}", "\ufeffowner: 'x'", "%YAML 1.2\n---\n{}", "opa: {a: [1, .inf, 0o7, 2026-01-01]}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var into config
		opts := Options{File: "f", LookupEnv: lookup, ReadFile: func(string) ([]byte, error) { return nil, os.ErrNotExist }}
		pos, problems := Decode(data, &into, opts)
		lines := 1
		for _, end := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} {
			lines += strings.Count(string(data), end)
		}
		for _, p := range problems {
			if p.Line < 0 || p.Line > lines+1 || p.Message == "" || strings.Contains(p.String(), "hunter2") {
				t.Errorf("bad problem %+v of %d lines", p, lines)
			}
		}
		pos.Line("servers.x")
		var again any
		Decode(data, &again, opts)
	})
}
