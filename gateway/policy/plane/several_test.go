package plane

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/bundle"
)

func two(s *shop) string {
	return fmt.Sprintf(`{"services": {"shop": {"url": %q}}, "bundles": {"authz": {%s}, "lib": {%s}}}`, s.URL, fast, fast)
}

func TestABundleWaitsForAnother(t *testing.T) {
	s := newShop(t)
	s.put("authz", good{etag: `"a1"`, raw: pack(t, "a1", []string{"mcp"}, map[string]string{"/a.rego": "package mcp\nallow if data.lib.ok(input)"})})
	r := start(t, two(s))
	st := r.trouble("authz", "undefined function data.lib.ok")
	if st.Ready {
		t.Error("ready with half of it")
	}
	asked := len(s.requests("authz"))
	s.put("lib", good{etag: `"l1"`, raw: pack(t, "l1", []string{"lib"}, map[string]string{"/l.rego": "package lib\nok(x) if x"})})
	r.until("both", func(s Status) bool { return s.Ready })
	c := r.inForce()
	if len(c.Bundles) != 2 || c.Bundles["authz"] != "a1" || c.Bundles["lib"] != "l1" || !c.Complete || len(c.Modules) != 2 {
		t.Errorf("candidate: %+v", c)
	}
	// OPA asks for it again, in its own time, and agrees.
	r.until("OPA's agreement", func(st Status) bool {
		return len(s.requests("authz")) > asked && st.of("authz").Problem == "" && st.of("lib").Problem == ""
	})
	n := r.judges()
	// Both change so that neither goes with the other's old version.
	s.put("authz", good{etag: `"a2"`, raw: pack(t, "a2", []string{"mcp"}, map[string]string{"/a.rego": "package mcp\nallow if data.lib.fine(input)"})})
	r.trouble("authz", "undefined function data.lib.fine")
	s.put("lib", good{etag: `"l2"`, raw: pack(t, "l2", []string{"lib"}, map[string]string{"/l.rego": "package lib\nfine(x) if x"})})
	r.active("authz", "a2")
	r.active("lib", "l2")
	// Twice where OPA asks for authz again while lib comes.
	if got := r.judges(); got != n+1 && got != n+2 {
		t.Errorf("judged %d times for one change", got-n)
	}
}

func TestIncompleteCandidatesSayThatTheyAre(t *testing.T) {
	s := newShop(t)
	s.put("authz", good{etag: `"a1"`, raw: pack(t, "a1", []string{"mcp"}, map[string]string{"/a.rego": allowed})})
	r := start(t, two(s))
	r.active("authz", "a1")
	if c := r.inForce(); c.Complete || r.Status().Ready {
		t.Error("half is complete")
	}
	r.trouble("lib", "Not Found")
}

func TestOverlappingRootsAreRefusedWithBothNames(t *testing.T) {
	s := newShop(t)
	s.put("authz", good{etag: `"a1"`, raw: pack(t, "a1", []string{"mcp"}, map[string]string{"/a.rego": allowed})})
	r := start(t, two(s))
	r.active("authz", "a1")
	s.put("lib", good{etag: `"l1"`, raw: pack(t, "l1", []string{"mcp/lib"}, map[string]string{"/l.rego": "package mcp.lib"})})
	want := "detected overlapping roots in manifests for these bundles: [authz, lib] (mcp overlaps mcp/lib)"
	if b := r.trouble("lib", "overlapping").of("lib"); b.Problem != want {
		t.Errorf("got %s", b.Problem)
	}
}

func discovering(s *shop, extra string) string {
	return fmt.Sprintf(`{"services": {"shop": {"url": %q}}, "discovery": {"resource": "bundles/found", "decision": "found", %s}%s}`, s.URL, fast, extra)
}

func found(t *testing.T, revision, config string) []byte {
	return pack(t, revision, []string{"found"}, map[string]string{"/data.json": `{"found": ` + config + `}`})
}

func TestDiscoveryBringsAndTakesBundles(t *testing.T) {
	s := newShop(t)
	s.put("authz", good{etag: `"a1"`, raw: pack(t, "a1", []string{"mcp"}, map[string]string{"/a.rego": allowed})})
	s.put("lib", good{etag: `"l1"`, raw: pack(t, "l1", []string{"lib"}, map[string]string{"/l.rego": "package lib"})})
	both := fmt.Sprintf(`{"bundles": {"authz": {%s}, "lib": {%s}}}`, fast, fast)
	s.put("found", good{etag: `"1"`, raw: found(t, "1", both)})
	r := start(t, discovering(s, ""))
	r.until("both", func(s Status) bool { return s.Ready && len(s.Bundles) == 2 })

	for name, c := range map[string]struct{ config, want string }{
		"nothing":  {`{}`, "the discovered configuration is refused: bundles: none; what was in force stays in force"},
		"removed":  {`{"bundles": {}}`, "bundles: none"},
		"unknown":  {`{"bundles": {"authz": {"servise": "shop"}}}`, "the discovered configuration is refused: bundles.authz.servise: unknown setting; known here: "},
		"nowhere":  {`{"bundles": {"authz": {"service": "other"}}}`, `bundles.authz.service: "other" is not below services; known: shop`},
		"refused":  {`{"bundles": {"authz": {}}, "default_decision": "x/y"}`, "default_decision: decisions are asked of data.mcp alone: remove it"},
		"no shape": {`[1]`, "policy did not produce a processed configuration"},
	} {
		s.put("found", good{etag: `"bad"`, raw: found(t, "bad", c.config)})
		st := r.until(name, func(s Status) bool { return strings.Contains(s.Problem, c.want) })
		if !st.Ready || len(st.Bundles) != 2 {
			t.Errorf("%s: %+v", name, st)
		}
	}
	// The network is not for discovery policies.
	s.put("found", good{etag: `"net"`, raw: pack(t, "net", []string{"found"}, map[string]string{"/f.rego": `package found
x := http.send({"method": "get", "url": "http://127.0.0.1:1"})`})})
	r.until("http.send", func(s Status) bool { return strings.Contains(s.Problem, "undefined function http.send") })

	// The judge does not agree to going without lib: what it has stays.
	r.mu.Lock()
	r.judge = func(c *Candidate) error {
		if len(c.Bundles) == 1 {
			return errors.New("lib is needed")
		}
		return nil
	}
	r.mu.Unlock()
	less := fmt.Sprintf(`{"bundles": {"authz": {%s}}}`, fast)
	s.put("found", good{etag: `"2"`, raw: found(t, "2", less)})
	st := r.until("the refusal", func(s Status) bool {
		return s.Problem != "" && len(s.Bundles) == 1 && !strings.Contains(s.Problem, "http.send")
	})
	if st.Problem != "without lib the policy is refused, so what was in force stays: lib is needed" {
		t.Errorf("problem: %s", st.Problem)
	}
	if c := r.inForce(); len(c.Bundles) != 2 {
		t.Errorf("in force: %v", c.Bundles)
	}
	r.mu.Lock()
	r.judge = nil
	r.mu.Unlock()
	s.put("authz", good{etag: `"a2"`, raw: pack(t, "a2", []string{"mcp"}, map[string]string{"/a.rego": allowed})})
	r.active("authz", "a2")
	if c := r.inForce(); len(c.Bundles) != 1 || !c.Complete {
		t.Errorf("in force: %v", c.Bundles)
	}
	if p := r.Status().Problem; p != "" {
		t.Errorf("still: %s", p)
	}
}

func TestDiscoveredBundlesMustBeSignedToo(t *testing.T) {
	private, public := pair(t)
	s := newShop(t)
	s.put("authz", good{etag: `"a1"`, raw: pack(t, "a1", []string{"mcp"}, map[string]string{"/a.rego": allowed})})
	config := fmt.Sprintf(`{"bundles": {"authz": {%s}}}`, fast)
	s.put("found", good{etag: `"1"`, raw: found(t, "1", config)})
	r := start(t, discovering(s, keysOf(public)))
	r.until("unsigned discovery", func(s Status) bool { return strings.Contains(s.Problem, "bundle missing .signatures.json file") })
	s.put("found", good{etag: `"2"`, raw: pack(t, "2", []string{"found"}, map[string]string{"/data.json": `{"found": ` + config + `}`}, bundle.NewSigningConfig(private, "ES256", ""))})
	r.trouble("authz", "bundle missing .signatures.json file")
	if r.judges() != 0 {
		t.Error("an unsigned bundle was judged")
	}
}

func TestStoppingIsBounded(t *testing.T) {
	s := newShop(t)
	s.put("authz", good{etag: `"a1"`, raw: pack(t, "a1", []string{"mcp"}, map[string]string{"/a.rego": allowed})})
	r := start(t, one(s, ""))
	r.active("authz", "a1")
	done := make(chan struct{})
	go func() { r.stop(); close(done) }()
	select {
	case <-done:
	case <-time.After(15 * time.Second):
		t.Fatal("still running")
	}
	if err := r.manager.Init(context.Background()); err != nil {
		t.Error(err)
	}
}
