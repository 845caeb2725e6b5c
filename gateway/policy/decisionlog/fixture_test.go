package decisionlog

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/policy"
)

// authz allows what the claims name, and the call of what has no amount.
const authz = `package mcp.authz

default allow := false

allow if input.tool.name in input.claims.tools

allow if input.resource.uri in input.claims.tools

allow if input.prompt.name in input.claims.tools

allow if input.server.name in input.claims.tools

default call := false

call if not input.arguments.amount
`

// snapshot compiles authz with a module of masks; "" is none.
func snapshot(t testing.TB, masks string) *policy.Snapshot {
	t.Helper()
	files := fstest.MapFS{"mcp/authz.rego": {Data: []byte(authz)}}
	if masks != "" {
		files["system/log/mask.rego"] = &fstest.MapFile{Data: []byte(masks)}
	}
	return snapshotOf(t, files)
}

func snapshotOf(t testing.TB, files fstest.MapFS) *policy.Snapshot {
	t.Helper()
	// Machines under load.
	e, err := policy.New(policy.Config{FS: files, Deadline: 10 * time.Second, ListDeadline: time.Minute}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return e.Current()
}

func subject(t testing.TB, claims string) *policy.Subject {
	t.Helper()
	s, err := policy.NewSubject(jsontext.Value(claims))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func toolItem(t testing.TB, server, name string) *policy.Item {
	t.Helper()
	i, err := policy.NewItem(policy.Tool{Server: server, Name: name, ExposedName: server + "__" + name, Registered: true, Labels: map[string]string{"team": "pay"}})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

const claims = `{"sub":"agent-1","iss":"https://idp.example.test","email":"a@example.test","limit":12345678901234567890,"tools":["get"],"nested":{"list":[{"a":1},{"b":[1,2,3]}]}}`

// call is the record of a call.
func call(t testing.TB, s *policy.Snapshot, arguments string) *Record {
	t.Helper()
	r := &Record{
		ID: "d1", Time: time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600)),
		Snapshot: s, RegistryRevision: "7", Rule: "call",
		Question: policy.Question{
			Method: "tools/call", Subject: subject(t, claims), Item: toolItem(t, "stripe", "get"),
			Request: policy.Request{ID: "r1", Route: "/mcp", RemoteAddr: "192.0.2.1:5", Client: policy.Client{Name: "agent", Version: "2"}},
		},
	}
	if arguments != "" {
		r.Argue(jsontext.Value(arguments))
	}
	return r
}

// line encodes the record.
func line(t testing.TB, r *Record) (text string, maskFailed bool) {
	t.Helper()
	return lineWith(t, r, policy.MaskPaths{}, nil)
}

func lineWith(t testing.TB, r *Record, paths policy.MaskPaths, local *policy.Masker) (text string, maskFailed bool) {
	t.Helper()
	b, failed := newEncoder(map[string]string{"version": "1.0"}, newMasking(paths, local)).line(context.Background(), r)
	return string(b), failed
}

// entryOf is a line as a reader gets it.
type entryOf struct {
	DecisionID string          `json:"decision_id"`
	Input      json.RawMessage `json:"input"`
	Result     json.RawMessage `json:"result"`
	Erased     []string        `json:"erased"`
	Masked     []string        `json:"masked"`
	Custom     map[string]any  `json:"custom"`
}

func decode(t testing.TB, text string) (d entryOf) {
	t.Helper()
	if strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
		t.Fatalf("not one line: %.300q", text)
	}
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatalf("%v in %.300q", err, text)
	}
	return d
}

// compact is JSON with sorted keys.
func compact(t testing.TB, text []byte) string {
	t.Helper()
	if text == nil {
		return ""
	}
	dec := json.NewDecoder(strings.NewReader(string(text)))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func numbered(n int) *Record { return &Record{ID: fmt.Sprint(n), Rule: "allow"} }
