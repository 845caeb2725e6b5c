package gateway_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/policy/decisionlog"
	"github.com/regogate/regogate/policies"
	"github.com/regogate/regogate/registry/catalogue"
)

// BenchmarkFrontDoor is requests through the handler, without a network between
// client and gateway: one that the policy lets see all, one that it refuses and
// one that goes through to a server.
func BenchmarkFrontDoor(b *testing.B) {
	w, err := world.Start(b.Context(), world.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	handler := inProcess(b, w)
	for _, c := range []struct{ name, persona, method, tool, params string }{
		{"list", "developer", "tools/list", "", ""},
		{"hidden", "developer", "tools/call", "stripe__create_refund", `"name":"stripe__create_refund","arguments":{},`},
		{"call", "admin", "tools/call", "stripe__list_prices", `"name":"stripe__list_prices","arguments":{},`},
	} {
		body := `{"jsonrpc":"2.0","id":1,"method":"` + c.method + `","params":{` + c.params + `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
		token, err := w.Token(c.persona, time.Hour)
		if err != nil {
			b.Fatal(err)
		}
		serve := func() *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(body))
			for name, value := range map[string]string{
				"Authorization": "Bearer " + token, "Content-Type": "application/json", "Accept": "application/json",
				"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": c.method, "Mcp-Name": c.tool,
			} {
				if value != "" {
					r.Header.Set(name, value)
				}
			}
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, r)
			return answer
		}
		b.Run(c.name, func(b *testing.B) {
			if answer := serve(); answer.Code != http.StatusOK || strings.Contains(answer.Body.String(), `"error"`) != (c.name == "hidden") {
				b.Fatalf("%d %s", answer.Code, answer.Body)
			}
			b.ReportAllocs()
			for b.Loop() {
				serve()
			}
		})
	}
}

// inProcess is the handler of another gateway of the world's configuration.
func inProcess(b *testing.B, w *world.World) http.Handler {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	records := decisionlog.New(decisionlog.Options{Log: log})
	g, err := gateway.New(b.Context(), w.Config, gateway.Options{
		Version: "bench", Log: log, Policies: policies.FS, Catalogue: catalogue.FS,
		Records: records,
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx, l) }()
	b.Cleanup(func() {
		stop()
		if err := errors.Join(<-ended, records.Close(context.Background())); err != nil {
			b.Error(err)
		}
	})
	for range 1000 {
		resp, err := http.Get("http://" + l.Addr().String() + "/readyz")
		if err != nil {
			b.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil && strings.Contains(string(text), `"status":"ready"`) {
			return g.Handler()
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.Fatal("the gateway does not become ready")
	return nil
}
