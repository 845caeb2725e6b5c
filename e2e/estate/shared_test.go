package estate_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/regogate/regogate/e2e/redisserver"
	"github.com/regogate/regogate/e2e/replica"
)

// perAgent shows ann and bob two tools each.
const perAgent = `package mcp.authz

default allow := false

allow if {
	input.tool.registered
	input.tool.name in {"ann-of-accounts": {"t0", "t1"}, "bob-of-billing": {"t2", "t3"}, "agent": {"t0"}}[input.claims.sub]
}

reasons contains "quarantined" if input.tool.quarantined
`

const (
	sealKey       = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
	backendSecret = "backend-secret-8c1f04"
	longestKey    = 256 // in Redis, in bytes
)

// startShared runs two replicas that keep sessions in the same Redis as the
// registry's cache, and that have a credential of the backend.
func startShared(t *testing.T) *estate {
	return start(t, options{
		replicas: 2, policy: perAgent, redis: redisserver.Durable(), bad: []string{"panic", "DATA RACE"},
		config: func(n *node, _ int, config object) {
			config["sessions"] = object{"redis": object{"url": "redis://" + n.redis.Addr, "prefix": "sessions-of-ours", "timeout": "1s"}, "key": sealKey}
			alpha := config["servers"].(object)["alpha"].(object)
			alpha["headers"] = object{"Authorization": "Bearer " + backendSecret}
		},
	})
}

// TestShared is B100: what two agents leave behind in Redis, on its disk and in
// PostgreSQL holds no token, session, credential or list of theirs. Each sees its own
// tools alone, at either replica.
func TestShared(t *testing.T) {
	t.Parallel()
	e := startShared(t)
	secrets := map[string]string{
		"the backend's credential": backendSecret, "the backend's credential, encoded": base64.StdEncoding.EncodeToString([]byte(backendSecret)),
		"the key of sessions": sealKey,
	}
	for subject, tools := range map[string][]int{"ann-of-accounts": {0, 1}, "bob-of-billing": {2, 3}} {
		a := e.enter(t, 0, subject)
		for _, n := range e.nodes {
			want := []string{fmt.Sprint("alpha__t", tools[0]), fmt.Sprint("alpha__t", tools[1])}
			if got := a.list(t, n); !slices.Equal(got, want) {
				t.Errorf("%s sees %q, want %q", subject, got, want)
			}
			for tool := range 4 {
				if got := a.call(t, n, tool); strings.Contains(got, `"result"`) != slices.Contains(tools, tool) {
					t.Errorf("%s calls t%d: %s", subject, tool, got)
				}
			}
		}
		secrets["a token of "+subject], secrets["a session of "+subject], secrets[subject] = a.token, a.session, subject
		for i, part := range strings.Split(a.token, ".")[1:] {
			secrets[fmt.Sprint("part ", i+1, " of a token of ", subject)] = part
		}
	}
	if calls := e.backend.Calls(); len(calls) != 8 || calls[0].Header.Get("Authorization") != "Bearer "+backendSecret {
		t.Errorf("%d calls reached the backend", len(calls))
	}
	search := func(where, text string) {
		for what, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%s holds %s", where, what)
			}
		}
	}
	kinds := map[string]int{}
	for key, value := range e.redisDump(t) {
		search("a key in Redis", key)
		search("a value in Redis", value)
		kind, _, _ := strings.Cut(key, ":")
		kinds[kind]++
		if len(key) > longestKey {
			t.Errorf("a key of %d bytes: %s", len(key), key)
		}
	}
	if len(kinds) != 2 || kinds["regogate"] != 2 || kinds["sessions-of-ours"] < 4 {
		t.Errorf("keys in Redis by what they begin with: %v", kinds)
	}
	disk := e.redisDisk(t)
	if !strings.Contains(disk, "regogate:v3:index:") {
		t.Error("the disk of Redis was not read")
	}
	search("the disk of Redis", disk)
	tables := e.pgDump()
	if !strings.Contains(tables, "t9") {
		t.Error("the tables were not read")
	}
	search("PostgreSQL", tables)
}

// redisDump returns every value in Redis, as text, by its key.
func (e *estate) redisDump(t *testing.T) map[string]string {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: e.redis.Addr})
	defer c.Close()
	all := map[string]string{}
	for _, key := range c.Keys(t.Context(), "*").Val() {
		switch kind := c.Type(t.Context(), key).Val(); kind {
		case "string":
			all[key] = c.Get(t.Context(), key).Val()
		case "zset":
			all[key] = fmt.Sprint(c.ZRangeWithScores(t.Context(), key, 0, -1).Val())
		default:
			t.Errorf("%s is a %s, which this test cannot read", key, kind)
		}
	}
	return all
}

// redisDisk returns everything that Redis keeps on disk.
func (e *estate) redisDisk(t *testing.T) string {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: e.redis.Addr})
	defer c.Close()
	var all strings.Builder
	err := filepath.WalkDir(c.ConfigGet(t.Context(), "dir").Val()["dir"], func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all.Write(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// pgDump returns every row of every table.
func (e *estate) pgDump() string {
	var all strings.Builder
	tables := e.pg.Exec("postgres", "select format('%I.%I', schemaname, tablename) from pg_tables where schemaname not in ('pg_catalog', 'information_schema')")
	for _, table := range strings.Fields(tables) {
		all.WriteString(e.pg.Exec("postgres", "select x::text from "+table+" x"))
	}
	return all.String()
}

// TestQuarantineLasts puts a tool into quarantine and restarts everything: it stays
// there, is on record as that, and comes back with its release.
func TestQuarantineLasts(t *testing.T) {
	t.Parallel()
	e := startShared(t)
	all := func(kind string) {
		t.Helper()
		for _, n := range e.nodes {
			n.calls(t, 0, kind)
		}
	}
	all(allowed)
	if err := e.quarantine(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	all(unknown)
	head, err := e.store.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for what, again := range map[string]func(){
		"the replicas": func() {
			for _, n := range e.nodes {
				n.restart(t)
			}
		},
		"PostgreSQL": func() { e.pg.Kill(); e.pg.Start() },
		"Redis":      func() { e.redis.Kill(); e.redis.Start() },
	} {
		again()
		all(unknown)
		for at, n := range e.nodes {
			replica.Within(t, liveness, fmt.Sprintf("replica %d is ready after a restart of %s", at, what), func() bool { return n.Status() == "ready" })
			ann := e.enter(t, at, "ann-of-accounts")
			if got := ann.list(t, n); !slices.Equal(got, []string{"alpha__t1"}) {
				t.Errorf("after a restart of %s the list is %q", what, got)
			}
			if got, absent := ann.call(t, n, 0), strings.ReplaceAll(ann.call(t, n, tools), fmt.Sprint("t", tools), "t0"); got != absent {
				t.Errorf("in quarantine: %s\nnot there: %s", got, absent)
			}
			if got := n.metrics(t); got["regogate_registry_quarantined"] != 1 || got["regogate_registry_tools"] != tools {
				t.Errorf("after a restart of %s replica %d tells operators %v", what, at, got)
			}
		}
	}
	replica.Within(t, liveness, "it is on record", func() bool { return e.recorded(t, head.Revision) })
	if err := e.release(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	all(allowed)
	e.audit(t)
}

// recorded reports whether a call of t0 is on record as in quarantine at a revision.
func (e *estate) recorded(t *testing.T, revision string) bool {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(e.dir, "decisions0.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var event struct {
			Input struct {
				Method string
				Tool   map[string]any
			}
			Custom struct {
				Reasons  []string
				Revision string `json:"registry_revision"`
			}
			Result any
		}
		if !strings.HasSuffix(line, "\n") || json.Unmarshal([]byte(line), &event) != nil {
			continue
		}
		if event.Input.Method == "tools/call" && event.Input.Tool["name"] == "t0" && event.Input.Tool["registered"] == false &&
			event.Input.Tool["quarantined"] == true && slices.Equal(event.Custom.Reasons, []string{"quarantined"}) &&
			event.Custom.Revision == revision && event.Result == false {
			return true
		}
	}
	return false
}
