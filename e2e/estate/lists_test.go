package estate_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/replica"
	"github.com/regogate/regogate/e2e/world"
)

// TestListsConverge is B047 for two replicas: to one a backend fails when it looks
// first, to the other it has no tools yet. Both come to show the same ten, and go on
// when the backend fails again.
func TestListsConverge(t *testing.T) {
	t.Parallel()
	warming := &world.Server{Name: "beta"}
	var failing atomic.Bool
	var failed atomic.Int64
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if failing.Load() {
			failed.Add(1)
			http.Error(w, "warming up", http.StatusServiceUnavailable)
			return
		}
		warming.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { served.CloseClientConnections(); served.Close() })
	failing.Store(true)
	e := start(t, options{
		replicas: 2, unready: true, policy: "package mcp.authz\n\ndefault allow := false\n\nallow if input.tool.server == \"beta\"\n",
		config: func(_ *node, at int, config object) {
			config["servers"].(object)["beta"] = object{"url": served.URL}
			if at == 1 {
				replica.Within(t, liveness, "the first replica met a backend that fails", func() bool { return failed.Load() > 0 })
				failing.Store(false)
			}
		},
	})
	replica.Within(t, liveness, "the second replica met a backend without tools", func() bool { return len(warming.Got("tools/list")) > 0 })
	var want []string
	warming.Change(func() {
		for i := range tools {
			warming.Tools = append(warming.Tools, jsontext.Value(fmt.Sprintf(`{"name":"u%d","inputSchema":{"type":"object"}}`, i)))
			want = append(want, fmt.Sprint("beta__u", i))
		}
	})
	show := func(what string) {
		t.Helper()
		for at, n := range e.nodes {
			replica.Within(t, liveness, fmt.Sprintf("replica %d shows all of them %s", at, what), func() bool {
				got, err := n.client.List(t.Context())
				return err == nil && slices.Equal(got, want)
			})
		}
	}
	show("at last")
	failing.Store(true)
	for at, n := range e.nodes {
		out, err := n.client.Call(t.Context(), "beta__u0", nil)
		if err != nil || out.Code != -32603 {
			t.Errorf("replica %d: a call of a backend that is down had %+v, %v", at, out, err)
		}
		if got, err := n.client.List(t.Context()); err != nil || !slices.Equal(got, want) {
			t.Errorf("replica %d lists %q, %v", at, got, err)
		}
	}
	failing.Store(false)
	show("again")
}
