package plane

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
)

func TestWhatIsJudgedIsWhatTheBundleHolds(t *testing.T) {
	s := newShop(t)
	s.put("authz", good{etag: `"1"`, raw: pack(t, "one", []string{"mcp", "system/log"}, map[string]string{
		"/lib/allow.rego": allowed, "/data.json": `{"mcp": {"teams": {"a": [1, "x"]}}, "system": {"log": {"on": true}}}`,
	})})
	r := start(t, one(s, ""))
	st := r.active("authz", "one")
	if !st.Ready || st.of("authz").FromDisk {
		t.Errorf("status: %+v", st)
	}
	c := r.inForce()
	if len(c.Modules) != 1 || c.Modules[0].Bundle != "authz" || c.Modules[0].Path != "lib/allow.rego" || string(c.Modules[0].Raw) != allowed {
		t.Errorf("modules: %+v", c.Modules)
	}
	if want := ast.MustParseTerm(`{"mcp": {"teams": {"a": [1, "x"]}}, "system": {"log": {"on": true}}}`); want.Value.Compare(c.Data) != 0 {
		t.Errorf("data: %v", c.Data)
	}
	if len(c.Bundles) != 1 || c.Bundles["authz"] != "one" || !c.Complete {
		t.Errorf("bundles: %v, complete %v", c.Bundles, c.Complete)
	}
	s.put("authz", good{etag: `"2"`, raw: pack(t, "two", []string{"mcp"}, map[string]string{"/a.rego": allowed, "/data.json": `{"mcp": {"teams": {"b": 2}}}`})})
	r.active("authz", "two")
	if got := c.Data.String(); strings.Contains(got, `"b"`) {
		t.Errorf("the first candidate changed: %s", got)
	}
	if got := r.inForce().Data.String(); got != `{"mcp": {"teams": {"b": 2}}}` {
		t.Errorf("data of the second: %s", got)
	}
}

func TestWhatTheJudgeRefusesLeavesAllAsItWas(t *testing.T) {
	s := newShop(t)
	s.put("authz", good{etag: `"a"`, raw: pack(t, "one", []string{"mcp"}, map[string]string{"/a.rego": allowed})})
	r := start(t, one(s, ""))
	r.active("authz", "one")
	r.mu.Lock()
	r.judge = func(c *Candidate) error {
		switch c.Bundles["authz"] {
		case "two":
			return errors.New("a.rego:3: not today")
		case "three":
			panic("at the judge")
		}
		return nil
	}
	r.mu.Unlock()
	s.put("authz", good{etag: `"b"`, raw: pack(t, "two", []string{"mcp"}, map[string]string{"/a.rego": allowed})})
	st := r.trouble("authz", "not today")
	if b := st.of("authz"); b.Problem != "a.rego:3: not today" || b.Revision != "one" || !st.Ready {
		t.Errorf("status: %+v", b)
	}
	s.put("authz", good{etag: `"c"`, raw: pack(t, "three", []string{"mcp"}, map[string]string{"/a.rego": allowed})})
	if b := r.trouble("authz", "at the judge").of("authz"); b.Problem != "judging the policy failed: at the judge" || b.Revision != "one" {
		t.Errorf("status: %+v", b)
	}
	for _, q := range s.requests("authz") {
		if tag := q.Header.Get("If-None-Match"); tag != "" && tag != `"a"` {
			t.Errorf("asked with If-None-Match %s", tag)
		}
	}
	// Mended in place, under the ETag of what was refused.
	s.put("authz", good{etag: `"b"`, raw: pack(t, "four", []string{"mcp"}, map[string]string{"/a.rego": allowed})})
	r.active("authz", "four")
	if got := r.inForce().Bundles["authz"]; got != "four" {
		t.Errorf("in force: %s", got)
	}
}

func TestBrokenPolicyNeverComesIntoForce(t *testing.T) {
	s := newShop(t)
	s.put("authz", good{etag: `"good"`, raw: pack(t, "one", []string{"mcp"}, map[string]string{"/a.rego": allowed})})
	r := start(t, one(s, ""))
	r.active("authz", "one")
	manifest := func(m string) entry { return entry{name: "/.manifest", text: m} }
	for name, c := range map[string]struct {
		raw  []byte
		want string
	}{
		"v0":        {tarball(t, entry{name: "/a.rego", text: "package mcp\nallow { input.x }"}), "/a.rego:2: rego_parse_error: `if` keyword is required before rule body"},
		"unsafe":    {tarball(t, entry{name: "/a.rego", text: "package mcp\nallow if x == 1"}), "/a.rego:2: rego_unsafe_var_error: var x is unsafe"},
		"recursion": {tarball(t, entry{name: "/a.rego", text: "package mcp\na if b\nb if a"}), "rego_recursion_error"},
		"builtin":   {tarball(t, entry{name: "/a.rego", text: "package mcp\na if nosuch(1)"}), "undefined function nosuch"},
		"not UTF-8": {tarball(t, entry{name: "/a.rego", text: "package mcp\n# \xff"}), "a.rego: not UTF-8"},
		"version 0": {tarball(t, manifest(`{"rego_version": 0}`), entry{name: "/a.rego", text: "package mcp\nallow { input.x }"}), "the bundle's manifest says rego_version 0; only 1 is taken: rewrite the policy with `opa fmt --v0-v1 -w`"},
		"one old":   {tarball(t, manifest(`{"file_rego_versions": {"/a.rego": 0}}`), entry{name: "/a.rego", text: allowed}), "rego_version 0 for \"/a.rego\""},
		"wasm":      {tarball(t, entry{name: "/policy.wasm", text: "x"}), `the bundle holds "policy.wasm": compiled policy never decides here; build the bundle with ` + "`-t rego`"},
		"plan":      {tarball(t, entry{name: "/plan.json", text: "{}"}), `the bundle holds "plan.json"`},
		"resolvers": {tarball(t, manifest(`{"wasm": [{"entrypoint": "mcp/allow", "module": "/p.wasm"}]}`)), "names wasm modules"},
		"delta":     {tarball(t, manifest(`{}`), entry{name: "/patch.json", text: `{"data": []}`}), "a delta bundle (patch.json) is not taken"},
		"roots":     {tarball(t, manifest(`{"roots": ["mcp"]}`), entry{name: "/data.json", text: `{"other": 1}`}), "manifest roots [mcp] do not permit data at path '/other'"},
		"json":      {tarball(t, entry{name: "/data.json", text: `{"mcp": `}), "data.json: not JSON: unexpected end of JSON input"},
	} {
		s.put("authz", good{etag: `"bad"`, raw: c.raw})
		st := r.trouble("authz", c.want)
		if b := st.of("authz"); b.Revision != "one" || !st.Ready || strings.Contains(b.Problem, "\n") {
			t.Errorf("%s: %+v", name, b)
		}
	}
	n := r.judges()
	if got := r.inForce().Bundles["authz"]; n != 1 || got != "one" {
		t.Errorf("judged %d times, %s in force", n, got)
	}
	s.put("authz", good{etag: `"next"`, raw: pack(t, "three", []string{"mcp"}, map[string]string{"/a.rego": allowed})})
	r.active("authz", "three")
}

func TestUnchangedContentIsNotJudgedAgain(t *testing.T) {
	s := newShop(t)
	raw := pack(t, "one", []string{"mcp"}, map[string]string{"/a.rego": allowed})
	s.put("authz", good{raw: raw})
	r := start(t, one(s, ""))
	r.active("authz", "one")
	served := func(n int) {
		t.Helper()
		had := len(s.requests("authz"))
		r.until("more requests", func(Status) bool { return len(s.requests("authz")) >= had+n })
	}
	served(3)
	for _, q := range s.requests("authz") {
		if got := q.Header.Get("Prefer"); got != "modes=snapshot;wait=30" {
			t.Fatalf("Prefer: %s", got)
		}
	}
	// The same bytes under an ETag, then under a weak one.
	s.put("authz", good{raw: raw, etag: `"x"`})
	r.until("If-None-Match", func(Status) bool { q := s.requests("authz"); return q[len(q)-1].Header.Get("If-None-Match") == `"x"` })
	s.put("authz", good{raw: raw, etag: `W/"x"`})
	r.until("weak If-None-Match", func(Status) bool { q := s.requests("authz"); return q[len(q)-1].Header.Get("If-None-Match") == `W/"x"` })
	if n := r.judges(); n != 1 {
		t.Errorf("judged %d times", n)
	}
	if p := r.Status().of("authz").Problem; p != "" {
		t.Error(p)
	}
}

func TestAnErrorGoesWithTheNextSuccess(t *testing.T) {
	s := newShop(t)
	raw := pack(t, "one", []string{"mcp"}, map[string]string{"/a.rego": allowed})
	s.put("authz", good{raw: raw, etag: `"a"`})
	r := start(t, one(s, ""))
	r.active("authz", "one")
	code := func(n int) http.HandlerFunc { return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(n) } }
	s.put("authz", good{answer: code(500)})
	r.trouble("authz", "server replied with Internal Server Error")
	s.put("authz", good{answer: code(404)})
	r.trouble("authz", "server replied with Not Found")
	s.put("authz", good{answer: code(304)})
	r.active("authz", "one")
	if n := r.judges(); n != 1 {
		t.Errorf("judged %d times", n)
	}
}

func TestA304WithoutAConditionIsNoBundle(t *testing.T) {
	s := newShop(t)
	s.put("authz", good{answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(304) }})
	r := start(t, one(s, ""))
	if st := r.trouble("authz", "the service answered 304 Not Modified to a request without a condition"); st.Ready {
		t.Error("ready without a bundle")
	}
	s.put("authz", good{etag: `"a"`, raw: pack(t, "one", []string{"mcp"}, map[string]string{"/a.rego": allowed})})
	if st := r.active("authz", "one"); !st.Ready {
		t.Error("not ready")
	}
}
