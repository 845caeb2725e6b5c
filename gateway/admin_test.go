package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/regogate/regogate/gateway"
)

// freeAddress is one that nobody listens on now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Operators see how policy and cache fare, on a listener of their own.
func TestAdmin(t *testing.T) {
	address := freeAddress(t)
	g := newRigWith(t, func(c *gateway.Config) { c.Admin.Listen = address }, nil, bank())
	p := modern(t, g.World, "/mcp", "developer")
	get := func(path string) (body string) {
		t.Helper()
		eventually(t, "the listener for operators", func() bool {
			answer, err := http.Get("http://" + address + path)
			if err != nil {
				return false
			}
			defer answer.Body.Close()
			text, err := io.ReadAll(answer.Body)
			body = string(text)
			return err == nil && answer.StatusCode == http.StatusOK
		})
		return body
	}
	for range 3 {
		if _, answer := p.do("tools/list", "{}"); !strings.Contains(answer, "bank__pay") {
			t.Fatal(answer)
		}
	}
	var s struct {
		Status string
		Policy struct {
			Revision string
			Cache    struct {
				State        string
				Hits, Misses int64
			} `json:"decision_cache"`
		}
		Registry struct {
			Revision, Digest string
			Stale, Serving   bool
			Tools            int
			Cache            any
		}
	}
	if err := json.Unmarshal([]byte(get("/status")), &s); err != nil {
		t.Fatal(err)
	}
	if s.Status != "ready" || s.Policy.Revision != g.revision() || s.Policy.Cache.State != "on" || s.Policy.Cache.Misses == 0 {
		t.Errorf("status: %+v", s)
	}
	known := s.Registry
	if known.Revision == "" || len(known.Digest) != 64 || known.Stale || !known.Serving || known.Cache != nil {
		t.Errorf("status of the registry: %+v", known)
	}
	metrics := get("/metrics")
	for _, line := range []string{
		`regogate_policy_info{revision="` + s.Policy.Revision + `"} 1`, "regogate_policy_problems 0", "regogate_decision_cache_enabled 1",
		"regogate_decision_cache_differences_total 0",
		`regogate_registry_info{digest="` + known.Digest + `",revision="` + known.Revision + `"} 1`, fmt.Sprint("regogate_registry_tools ", known.Tools),
		"regogate_registry_stale 0", "regogate_registry_serving 1", "regogate_registry_problems 0", "regogate_registry_quarantined 0",
	} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("no %q in\n%s", line, metrics)
		}
	}
	if strings.Contains(metrics, "regogate_registry_cache") {
		t.Errorf("metrics of a cache that is not there:\n%s", metrics)
	}
	answer, err := http.Get(g.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusOK {
		t.Error("clients can read the metrics")
	}
}
