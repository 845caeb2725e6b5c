package cases

import (
	"maps"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/depot"
)

// A case has to fail where the gateway refuses everything: then its benign twin
// is refused, too.
func TestBenignTwinsFailWhereAllIsRefused(t *testing.T) {
	all, err := Load(os.DirFS("testdata"))
	if err != nil {
		t.Fatal(err)
	}
	env := Env{Keys: &Keyring{}}
	for _, c := range all {
		t.Run(c.ID, func(t *testing.T) {
			t.Parallel()
			own := env
			own.Dir = func() (string, error) { return os.MkdirTemp(t.TempDir(), "") }
			if problems := refused(c).Run(t.Context(), own); len(problems) == 0 {
				t.Error("the case is content with a gateway that refuses everything")
			}
		})
	}
}

// refused returns the benign part of a case under a policy that allows nothing.
func refused(c *Case) *Case {
	out := &Case{ID: c.ID, World: refusing(c.World), Benign: impatient(c.Benign)}
	for _, s := range c.Scenes {
		if len(s.Benign) == 0 {
			continue
		}
		s.Steps, s.Benign = nil, impatient(s.Benign)
		if s.World != nil {
			world := refusing(*s.World)
			s.World = &world
		}
		out.Scenes = append(out.Scenes, s)
	}
	return out
}

// nothing is a policy that allows nothing.
const nothing = "package mcp.authz\n\nallow := false\n"

func refusing(w World) World {
	w.Policy = nothing
	if w.Depot != nil {
		d := *w.Depot
		d.Bundles = maps.Clone(d.Bundles)
		for name, p := range d.Bundles {
			d.Bundles[name] = hollow(p)
		}
		w.Depot = &d
	}
	return w
}

// hollow is a publication of the policy that allows nothing.
func hollow(p depot.Publication) depot.Publication {
	p.Files = map[string]string{"mcp/authz/authz.rego": nothing}
	return p
}

func impatient(steps []Step) (out []Step) {
	for _, s := range steps {
		s.Until = 0
		if s.Do != nil && s.Do.Publish != nil {
			do, what := *s.Do, hollow(*s.Do.Publish)
			do.Publish = &what
			s.Do = &do
		}
		out = append(out, s)
	}
	return out
}

const whole = `id: X
title: t
source: s
expectation: e
steps: [{list: true, expect: {ok: true}}]
benign: [{list: true, expect: {ok: true}}]
`

func TestLoadRefusesWhatProvesNothing(t *testing.T) {
	for name, c := range map[string]struct{ file, from, to, want string }{
		"no file":               {"", "", "", "no case found"},
		"another id":            {"Y.yaml", "", "", "Y.yaml:1: id: must be the file's name"},
		"an unknown key":        {"X.yaml", "title:", "titel:", "X.yaml:2: titel: unknown key; did you mean title?"},
		"an unknown key inside": {"X.yaml", "ok: true}}]\nbenign", "okay: true}}]\nbenign", "X.yaml:5: steps[0].expect.okay: unknown key"},
		"no source":             {"X.yaml", "source: s\n", "", "source: is missing"},
		"no words":              {"X.yaml", "expectation: e\n", "", "expectation: is missing"},
		"no steps":              {"X.yaml", "steps: [{list: true, expect: {ok: true}}]\n", "", "steps: there is none"},
		"no expectation":        {"X.yaml", "expect: {ok: true}}]\nbenign", "name: x}]\nbenign", "steps[0].expect: is missing"},
		"no twin":               {"X.yaml", "benign: [{list: true, expect: {ok: true}}]\n", "", "benign: no step that must succeed"},
		"a twin that may fail":  {"X.yaml", "benign: [{list: true, expect: {ok: true}}]\n", "benign: [{list: true, expect: {status: 401}}]\n", "benign: no step that must succeed"},
		"two bodies":            {"X.yaml", "{list: true, expect", "{list: true, call: x, expect", "exclude each other"},
		"a status that is none": {"X.yaml", "{ok: true}}]\nbenign", "{status: ok}}]\nbenign", "want a number"},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := fstest.MapFS{}
			if c.file != "" {
				fsys[c.file] = &fstest.MapFile{Data: []byte(strings.Replace(whole, c.from, c.to, 1))}
			}
			if _, err := Load(fsys); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Load says %v, want %s", err, c.want)
			}
		})
	}
	if _, err := Load(fstest.MapFS{"X.yaml": &fstest.MapFile{Data: []byte(whole)}}); err != nil {
		t.Errorf("the whole case: %v", err)
	}
}

// The example that people start from is a whole case.
func TestExampleOfTheReadme(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	example, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("README.md has no example")
	}
	all, err := Load(fstest.MapFS{"B900.yaml": &fstest.MapFile{Data: []byte(example)}})
	if err != nil {
		t.Fatal(err)
	}
	dir := func() (string, error) { return os.MkdirTemp(t.TempDir(), "") }
	for _, problem := range all[0].Run(t.Context(), Env{Keys: &Keyring{}, Dir: dir}) {
		t.Error(problem)
	}
}

func TestProbe(t *testing.T) {
	doc := jsontext.Value(`{"a":{"b/c":[1,9007199254740993,"x"]},"n":null,"e": {"z":1,"y":2}}`)
	for _, c := range []struct {
		probe Probe
		want  string // "" where it holds
	}{
		{Probe{JSON: map[string]any{"/a/b~1c/0": int64(1), "/e": map[string]any{"y": int64(2), "z": int64(1)}, "/n": nil}}, ""},
		{Probe{JSON: map[string]any{"/a/b~1c/0": "1"}}, `/a/b~1c/0 is 1, want "1"`},
		{Probe{JSON: map[string]any{"/nowhere": nil}}, "/nowhere is not there, want null"},
		{Probe{JSON: map[string]any{"/a/b~1c/9": int64(1)}}, "/a/b~1c/9 is not there, want 1"},
		{Probe{JSON: map[string]any{"/a/b~1c/1": int64(9007199254740992)}}, "/a/b~1c/1 is 9007199254740993, want 9007199254740992"},
		{Probe{Raw: map[string]string{"/e": `{"z":1,"y":2}`}}, ""},
		{Probe{Raw: map[string]string{"/e": `{"y":2,"z":1}`}}, `/e is written {"z":1,"y":2}, want {"y":2,"z":1}`},
		{Probe{Like: map[string]string{"/a/b~1c/2": "^x$", "/a/b~1c/1": "3$"}}, ""},
		{Probe{Like: map[string]string{"/a/b~1c/2": "y"}}, `/a/b~1c/2 "x" does not match y`},
		{Probe{Like: map[string]string{"/nowhere": ".*"}}, "/nowhere not there does not match .*"},
		{Probe{Like: map[string]string{"/n": "("}}, "/n null does not match ("},
		{Probe{Lacks: []string{"/nowhere", "/a/x"}}, ""},
		{Probe{Lacks: []string{"/n"}}, "/n is there: null"},
	} {
		if got := strings.Join(c.probe.check(doc), "; "); got != c.want {
			t.Errorf("%+v: %q, want %q", c.probe, got, c.want)
		}
	}
}

func TestCompareArrivals(t *testing.T) {
	list := &arrivals{}
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"read","arguments":{"n":1}}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}`,
	} {
		list.add(arrived{backend: "alpha", body: []byte(body)})
	}
	both := []Arrival{{Call: "alpha/read"}, {Message: "alpha/notifications/cancelled"}}
	cancelled := kinds{set: map[string]bool{"message alpha/notifications/cancelled": true}}
	for name, c := range map[string]struct {
		expect Expect
		but    kinds
		want   string
	}{
		"as expected":       {Expect{Arrived: both}, kinds{}, ""},
		"nothing expected":  {Expect{}, kinds{}, "arrived and should not have: call alpha/read"},
		"one too few":       {Expect{Arrived: append(both, both[0])}, kinds{}, "did not arrive: call alpha/read"},
		"another backend":   {Expect{Arrived: []Arrival{{Call: "beta/read"}, both[1]}}, kinds{}, "did not arrive: call beta/read"},
		"other arguments":   {Expect{Arrived: []Arrival{{Call: "alpha/read", Probe: Probe{Raw: map[string]string{"/params/arguments": "{}"}}}, both[1]}}, kinds{}, `is written {"n":1}, want {}`},
		"silence":           {Expect{Arrived: both, Silent: true}, kinds{}, "arrived and should not have: message alpha/initialize"},
		"one left out":      {Expect{Arrived: both[:1]}, cancelled, ""},
		"only the left out": {Expect{Arrived: both[1:]}, cancelled.inverse(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			problems, _ := compareArrivals(list.since(0), []Step{{Expect: c.expect}}, c.but)
			got := strings.Join(problems, "; ")
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestExpand(t *testing.T) {
	look := func(name string) (string, error) {
		if name == "x" {
			return "X", nil
		}
		return generated(name)
	}
	body := "<<x>>"
	in := Step{Name: "a<<x>>b", Body: &body, Headers: map[string]string{"<<x>>": "<<repeat 3 ab>>"}, Until: time.Second,
		Forge: &Token{Claims: map[string]any{"c": []any{"<<x>>", int64(1), nil}}}, Expect: Expect{Tools: []string{}}}
	out, err := expand(in, look)
	if err != nil {
		t.Fatal(err)
	}
	claims := out.Forge.Claims["c"].([]any)
	if out.Name != "aXb" || *out.Body != "X" || out.Headers["X"] != "ababab" || claims[0] != "X" || claims[1] != int64(1) || claims[2] != nil {
		t.Errorf("%+v %q %v", out, *out.Body, claims)
	}
	if out.Until != time.Second || out.Expect.Tools == nil || out.Expect.Arrived != nil {
		t.Errorf("what holds no text changed: %+v", out)
	}
	if in.Name != "a<<x>>b" || body != "<<x>>" {
		t.Error("the original changed")
	}
	for text, want := range map[string]string{
		"<<y>>": "<<y>> is not known", "<<repeat z a>>": "is not known", "<<x": "has no >>",
	} {
		if _, err := expand(text, look); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("expand(%s): %v, want %s", text, err, want)
		}
	}
}
