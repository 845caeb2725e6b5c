package upstream

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

func TestWebEra(t *testing.T) {
	plain := func(status int, kind, body string) func(*webDouble) {
		return func(d *webDouble) {
			d.first = func(w http.ResponseWriter, s seen) bool {
				if s.message == nil || s.message.Method != discover {
					return false
				}
				w.Header().Set("Content-Type", kind)
				w.WriteHeader(status)
				io.WriteString(w, strings.ReplaceAll(body, "ID", string(s.message.ID.Raw())))
				return true
			}
		}
	}
	discovery := `{"jsonrpc":"2.0","id":ID,"result":{"supportedVersions":["2025-11-25"],"capabilities":{}}}`
	refusal := `{"jsonrpc":"2.0","id":ID,"error":{"code":-32022,"message":"no","data":{"supported":["2025-06-18"]}}}`
	future := `{"jsonrpc":"2.0","id":ID,"error":{"code":-32022,"message":"no","data":{"supported":["2031-01-01"]}}}`
	headers := `{"jsonrpc":"2.0","id":null,"error":{"code":-32020,"message":"no"}}`
	for _, tt := range []struct {
		name     string
		script   func(*webDouble)
		protocol string
		version  string // "" is down
		problem  string
	}{
		{"legacy", nil, "", "2025-06-18", ""},
		{"modern", func(d *webDouble) { d.modern = true }, "", "2026-07-28", ""},
		{"400 without a body", plain(400, "", ""), "", "2025-06-18", ""},
		{"404", plain(404, "text/plain", "not found"), "", "2025-06-18", ""},
		{"405", plain(405, "text/html", "<html>"), "", "2025-06-18", ""},
		{"406", plain(406, "application/json", `{"error":"x"}`), "", "2025-06-18", ""},
		{"500", plain(500, "text/plain", "oops"), "", "2025-06-18", ""},
		{"200 with an unknown method", plain(200, "application/json", `{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"?"}}`), "", "2025-06-18", ""},
		{"200 with HTML", plain(200, "text/html", "<html>"), "", "2025-06-18", ""},
		{"202", plain(202, "", ""), "", "2025-06-18", ""},
		{"discovers legacy versions only", plain(200, "application/json", discovery), "", "2025-06-18", ""},
		{"supports legacy versions only", plain(400, "application/json", refusal), "", "2025-06-18", ""},
		{"supports unknown versions only", plain(400, "application/json", future), "", "", `broken: it speaks only protocol versions that we do not: ["2031-01-01"]`},
		{"modern, and objects to our headers", plain(400, "application/json", headers), "", "", "broken: server/discover was refused with code -32020: no"},
		{"401", plain(401, "text/plain", ""), "", "", "unavailable: it answered with HTTP status 401: it turns the gateway's credentials away"},
		{"503", plain(503, "text/html", "<html>"), "", "", "unavailable: it answered with HTTP status 503"},
		{"legacy by configuration", func(d *webDouble) { d.modern = true }, "legacy", "", "broken: initialize was refused with code -32022: unsupported"},
		{"modern by configuration", nil, "modern", "", "broken: it does not answer server/discover as a modern server does"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newWebDouble(t, tt.script)
			c := d.config()
			c.Protocol = tt.protocol
			s := running(t, map[string]Config{"alpha": c}, quick(nil)).Current().Server("alpha")
			if s.Version != tt.version || s.Up != (tt.version != "") || s.Problem != tt.problem {
				t.Errorf("up %v, version %q, problem %q; want version %q, problem %q", s.Up, s.Version, s.Problem, tt.version, tt.problem)
			}
		})
	}
}

// TestWebEraChanges: a server that is replaced by one of the other era.
func TestWebEraChanges(t *testing.T) {
	var modern atomic.Bool
	modern.Store(true)
	d := newWebDouble(t, nil)
	d.first = func(w http.ResponseWriter, s seen) bool {
		if modern.Load() {
			d.serveModern(w, s)
		}
		return modern.Load()
	}
	p := running(t, alpha(d), quick(nil))
	if v := p.Current().Server("alpha").Version; v != "2026-07-28" {
		t.Fatalf("version is %q", v)
	}
	modern.Store(false)
	until(t, p, "the legacy version", func(s *State) bool { return s.Server("alpha").Version == "2025-06-18" })
	m, err := callTool(t.Context(), p, "alpha", "a", "read", "{}")
	must(t, m, err)
}

// TestWebVersion is B023: each server gets the version that it negotiated.
func TestWebVersion(t *testing.T) {
	for _, version := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"} {
		d := newWebDouble(t, func(d *webDouble) { d.version = version })
		p := running(t, alpha(d), quick(nil))
		m, err := callTool(t.Context(), p, "alpha", "a", "read", "{}")
		must(t, m, err)
		if got := p.Current().Server("alpha").Version; got != version {
			t.Errorf("version is %q, want %q", got, version)
		}
	}
	for _, version := range []string{"", "2099-01-01", "2026-07-28"} {
		d := newWebDouble(t, func(d *webDouble) { d.version = version })
		s := running(t, alpha(d), quick(nil)).Current().Server("alpha")
		if s.Up || !strings.Contains(s.Problem, "a protocol version that we do not speak") {
			t.Errorf("%q: up %v, problem %q", version, s.Up, s.Problem)
		}
	}
}
