package gateway_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/regogate/regogate/e2e/world"
)

// lines keeps a log that a gateway writes while it is read.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// refusals returns the errors of the requests that were refused for where they
// come from.
func (l *lines) refusals(t *testing.T) (list []string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(l.text.Bytes()) {
		var fields map[string]any
		if err := json.Unmarshal(line, &fields); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if fields["outcome"] == "origin_refused" {
			why, _ := fields["error"].(string)
			list = append(list, why)
		}
	}
	return list
}

// TestRefusalsSayHowToAllow: the log names what was refused and the setting,
// whoever asks is told neither.
func TestRefusalsSayHowToAllow(t *testing.T) {
	for name, tt := range map[string]struct {
		host   string
		header http.Header
		want   string
	}{
		"host": {"gateway.example.com:8080", nil,
			`Host "gateway.example.com:8080" is refused: where clients use it, name it in allowed_hosts or public_url`},
		"long host": {strings.Repeat("a", 300), nil,
			`Host "` + strings.Repeat("a", 256) + `…" is refused: where clients use it, name it in allowed_hosts or public_url`},
		"origin": {"", http.Header{"Origin": {"https://app.example.com"}},
			`Origin "https://app.example.com" is refused: where it is to be trusted, name it in allowed_origins`},
		"origins": {"", http.Header{"Origin": {"https://a.example.com", "https://b.example.com"}},
			`Origin "https://a.example.com, https://b.example.com" is refused: where it is to be trusted, name it in allowed_origins`},
		"cross-site": {"", http.Header{"Sec-Fetch-Site": {"cross-site"}}, "a page of another site sent it without an Origin"},
	} {
		t.Run(name, func(t *testing.T) {
			log := &lines{}
			w := start(t, world.Options{Log: slog.New(slog.NewJSONHandler(log, nil))})
			p := &peer{t: t, url: w.URL + "/mcp"}
			r := p.request(http.MethodPost, "{}")
			for key, values := range tt.header {
				r.Header[key] = values
			}
			r.Host = tt.host
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			var body bytes.Buffer
			_, err = body.ReadFrom(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusForbidden || strings.TrimSpace(body.String()) != "Forbidden" {
				t.Errorf("answered %d %q, %v", resp.StatusCode, &body, err)
			}
			// The line is written when the request is over, and all are over then.
			w.StopGateway()
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if got := log.refusals(t); len(got) != 1 || got[0] != tt.want {
				t.Errorf("logged %q, want %q", got, tt.want)
			}
		})
	}
}
