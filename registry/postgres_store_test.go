//go:build unix

package registry

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/regogate/regogate/e2e/pgserver"
)

// emptied is a registry with nothing in it, on the given server.
func emptied(t *testing.T, server *pgserver.Server) (PostgresConfig, *Postgres) {
	t.Helper()
	cfg := postgresConfig(t, server)
	return cfg, openPostgres(t, cfg)
}

func small(t testing.TB, signature string, tools ...Tool) *Catalogue {
	t.Helper()
	given := Catalogue{Signature: signature}
	for i := range tools {
		x := &tools[i]
		x.Attributes, x.Data, x.Reach = []string{"web"}, "public", "closed"
		if x.Effect == "" {
			x.Effect = "read"
		}
		given.Servers = []Server{{Name: "a", Owner: "o"}}
	}
	given.Tools = tools
	c, err := NewCatalogue("", given)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// lines is the history as text, but for the times.
func lines(t *testing.T, p *Postgres, f HistoryFilter) (all []string) {
	t.Helper()
	events, err := p.History(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.At.Location() != time.UTC || time.Since(e.At) > time.Hour {
			t.Errorf("at %s", e.At)
		}
		all = append(all, fmt.Sprintf("%s %s (%s) %s %s: %s -> %s", e.Revision, e.By.Name, e.By.Note, e.What, Name(e.Server, e.Tool), e.Old, e.New))
	}
	return all
}

func wantLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("got:\n%s\nwant:\n%s", g, w)
	}
}

// The history says who changed what, when, from what to what, and nothing where
// nothing changed.
func testPostgresHistory(t *testing.T, server *pgserver.Server) {
	_, p := emptied(t, server)
	if h := head(t, p); h.Revision != "0" || h.Digest != small(t, "").Head.Digest {
		t.Errorf("an empty registry's head is %v", h)
	}
	x, y := Tool{Server: "a", Name: "x", SHA256: sha}, Tool{Server: "a", Name: "y"}
	x2 := x
	x2.Effect = "write"
	by := Author{Name: "ann", Note: "first"}
	for i, step := range []struct {
		do      func() (Head, error)
		changes bool
	}{
		{func() (Head, error) {
			return p.Replace(t.Context(), by, head(t, p), small(t, "s.i.g", x, y), ReplaceOptions{})
		}, true},
		{func() (Head, error) {
			return p.Replace(t.Context(), by, head(t, p), small(t, "s.i.g", x, y), ReplaceOptions{})
		}, false},
		{func() (Head, error) {
			return p.Quarantine(t.Context(), Author{Name: "bob"}, Quarantined{Server: "b", Reason: "no"})
		}, true},
		{func() (Head, error) {
			return p.Quarantine(t.Context(), Author{Name: "cid"}, Quarantined{Server: "b", Reason: "no"})
		}, false},
		{func() (Head, error) { return p.Approve(t.Context(), Author{Name: "bob"}, "a", "y", sha, []byte("{}")) }, true},
		{func() (Head, error) { return p.Approve(t.Context(), Author{Name: "cid"}, "a", "y", sha, []byte("{}")) }, false},
		{func() (Head, error) {
			return p.Replace(t.Context(), by, head(t, p), small(t, "", x2), ReplaceOptions{})
		}, true},
		{func() (Head, error) { return p.Release(t.Context(), Author{Name: "bob"}, "b", "") }, true},
	} {
		before := head(t, p)
		after, err := step.do()
		if err != nil || (before != after) != step.changes || after != head(t, p) {
			t.Fatalf("step %d: %v, before %v, %v", i, after, before, err)
		}
	}
	c := load(t, p)
	if c.Head.Revision != "5" || c.Head.Digest != small(t, "", x2).Head.Digest {
		t.Errorf("head %v", c.Head)
	}
	const tool = `{"attributes":["web"],"data":"public","effect":"%s","name":"%s","reach":"closed","server":"a"}`
	const entry = `{"name":"a","owner":"o"}`
	events, err := p.History(t.Context(), HistoryFilter{Server: "b"})
	if err != nil || len(events) != 2 {
		t.Fatal(events, err)
	}
	since := `{"by":"bob","reason":"no","server":"b","since":"` + strings.Split(string(events[1].New), `"since":"`)[1]
	readX, writeX, readY := fmt.Sprintf(tool, "read", "x"), fmt.Sprintf(tool, "write", "x"), fmt.Sprintf(tool, "read", "y")
	wantLines(t, lines(t, p, HistoryFilter{}),
		`5 bob () quarantine b: `+since+` -> null`,
		`4 ann (first) tool a/x: `+readX+` -> `+writeX,
		`4 ann (first) pin a/y: "`+sha+`" -> null`,
		`4 ann (first) tool a/y: `+readY+` -> null`,
		`3 bob () signature : "s.i.g" -> null`,
		`3 bob () pin a/y: null -> "`+sha+`"`,
		`2 bob () quarantine b: null -> `+since,
		`1 ann (first) signature : null -> "s.i.g"`,
		`1 ann (first) server a: null -> `+entry,
		`1 ann (first) pin a/x: null -> "`+sha+`"`,
		`1 ann (first) tool a/x: null -> `+readX,
		`1 ann (first) tool a/y: null -> `+readY,
	)
	wantLines(t, lines(t, p, HistoryFilter{Server: "a", Tool: "x", Limit: 2}),
		`4 ann (first) tool a/x: `+readX+` -> `+writeX, `1 ann (first) pin a/x: null -> "`+sha+`"`)
	wantLines(t, lines(t, p, HistoryFilter{Since: time.Now().Add(time.Hour)}))
}

func testPostgresReplace(t *testing.T, server *pgserver.Server) {
	_, p := emptied(t, server)
	by := Author{Name: "ann"}
	other := strings.Repeat("1", 64)
	x, y, z := Tool{Server: "a", Name: "x"}, Tool{Server: "a", Name: "y", SHA256: other}, Tool{Server: "a", Name: "z", SHA256: other}
	if _, err := p.Replace(t.Context(), by, head(t, p), small(t, "", x, y), ReplaceOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"x", "y"} {
		if _, err := p.Approve(t.Context(), by, "a", tool, sha, []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Quarantine(t.Context(), by, Quarantined{Server: "q", Reason: "no"}); err != nil {
		t.Fatal(err)
	}
	next := small(t, "", x, y, z)
	next.Quarantine = []Quarantined{{Server: "other", Reason: "is not taken over"}}
	pins := func() (all []string) {
		c := load(t, p)
		if len(c.Quarantine) != 1 || c.Quarantine[0].Server != "q" {
			t.Errorf("quarantine %+v", c.Quarantine)
		}
		for _, tool := range c.Tools {
			all = append(all, tool.SHA256)
		}
		return all
	}
	from := head(t, p)
	_, err := p.Replace(t.Context(), by, from, small(t, "s.i.g", x, y, z), ReplaceOptions{KeepPins: true})
	wantError(t, "signed", err, "replace the catalogue: refused: its signature does not cover the pins that the registry keeps; put those into the catalogue and sign it, or do not keep them")
	kept, err := p.Replace(t.Context(), by, from, next, ReplaceOptions{KeepPins: true})
	if got := pins(); err != nil || !reflect.DeepEqual(got, []string{sha, sha, other}) {
		t.Errorf("pins kept: %q, %v", got, err)
	}
	if !reflect.DeepEqual(next.Tools, []Tool{x, y, z}) && next.Tools[0].SHA256 != "" {
		t.Error("the caller's catalogue was changed")
	}
	_, err = p.Replace(t.Context(), by, from, next, ReplaceOptions{})
	if !errors.Is(err, ErrConflict) || head(t, p) != kept {
		t.Errorf("a head of before: %v", err)
	}
	wantError(t, "a head of before", err, "replace the catalogue: the registry was changed by somebody else meanwhile; look again and repeat")
	if _, err = p.Replace(t.Context(), by, kept, next, ReplaceOptions{}); err != nil || !reflect.DeepEqual(pins(), []string{"", other, other}) {
		t.Errorf("pins not kept: %q, %v", pins(), err)
	}
	for what, c := range map[string]struct {
		by   Author
		want string
	}{
		"nobody":        {Author{}, "replace the catalogue: refused: author is missing; say who makes the change"},
		"a long note":   {Author{Name: "x", Note: strings.Repeat("x", 501)}, "replace the catalogue: refused: note is longer than 500 bytes"},
		"a broken name": {Author{Name: "x\x00"}, "replace the catalogue: refused: author contains a character that does not show"},
	} {
		_, err := p.Replace(t.Context(), c.by, head(t, p), small(t, ""), ReplaceOptions{})
		wantError(t, what, err, c.want)
	}
}

// Not even a name that is none makes an error of two lines.
func testPostgresOneLine(t *testing.T, server *pgserver.Server) {
	_, p := emptied(t, server)
	_, err := p.Release(t.Context(), Author{Name: "x"}, "a\nb", "c\r\nd")
	wantError(t, "names", err, "release a b/c d: a quarantine of that is not in the registry")
	_, err = p.Quarantine(t.Context(), Author{Name: "x"}, Quarantined{Server: "a\nb"})
	wantError(t, "names", err, `quarantine a b: refused: quarantine of "a\nb"/"".reason: is missing; say why, in a line; quarantine of "a\nb"/"".server: `+ServerRule)
	if _, err = p.Replace(t.Context(), Author{Name: "x"}, head(t, p), small(t, "", Tool{Server: "a", Name: "x"}), ReplaceOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = p.Approve(t.Context(), Author{Name: "x"}, "a", "x", sha, make([]byte, maxDefinition+1))
	wantError(t, "a definition", err, "approve a/x: refused: the definition is larger than 8388608 bytes")
}

// Of several that replace the same head one succeeds, and the others know that
// they did not.
func testPostgresConflict(t *testing.T, server *pgserver.Server) {
	cfg, p := emptied(t, server)
	const writers = 6
	for round := range 3 {
		from := head(t, p)
		results := make([]error, writers)
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				other := openPostgres(t, cfg)
				defer other.Close()
				tool := Tool{Server: "a", Name: fmt.Sprintf("tool_%d_%d", round, i)}
				_, results[i] = other.Replace(t.Context(), Author{Name: "x"}, from, small(t, "", tool), ReplaceOptions{})
			})
		}
		wg.Wait()
		won := -1
		for i, err := range results {
			switch {
			case err == nil && won < 0:
				won = i
			case err == nil || !errors.Is(err, ErrConflict):
				t.Errorf("writer %d: %v", i, err)
			}
		}
		c := load(t, p)
		if won < 0 || len(c.Tools) != 1 || c.Tools[0].Name != fmt.Sprintf("tool_%d_%d", round, won) || c.Head.Revision != fmt.Sprint(round+1) {
			t.Errorf("writer %d won, the registry has %+v at %s", won, c.Tools, c.Head.Revision)
		}
	}
}

// Whatever is written past the binary is refused, changes on top of it are, and
// a repair puts it right, on record.
func testPostgresEditedByHand(t *testing.T, server *pgserver.Server) {
	x, y := Tool{Server: "a", Name: "x", SHA256: sha}, Tool{Server: "a", Name: "y"}
	for _, sql := range []string{
		`update tools set attributes = attributes || '{"effect": "write"}' where name = 'x'`,
		`update tools set attributes = attributes || '{"command": "sh"}' where name = 'x'`,
		`update tools set attributes = attributes || '{"effect": "nonsense"}' where name = 'x'`,
		`delete from tools where name = 'y'`,
		`insert into tools (attributes) values ('{"server": "hidden", "name": "x", "attributes": ["web"], "effect": "read", "data": "public", "reach": "closed"}')`,
		`update servers set attributes = '{"name": "a", "data": "public"}'`,
		`update servers set attributes = '[]'`,
		`delete from pins`,
		`update pins set sha256 = repeat('2', 64)`,
		`delete from quarantine`,
		`update quarantine set reason = 'fine'`,
		`update quarantine set reason = '', by = e'\\t'`,
		`update quarantine set since = 'infinity'`,
		`update quarantine set since = '20000-01-01'`,
		`update quarantine set since = '0003-01-01 BC'`,
		`insert into quarantine (server, reason) values ('no name', 'no')`,
		`update head set digest = ''`,
		`update head set digest = '', revision = 0`,
		`update head set signature = 'not a signature'`,
		`update head set digest = repeat('0', 64)`,
		`update head set signature = 's.i.g'`,
	} {
		cfg, p := emptied(t, server)
		by := Author{Name: "ann"}
		catalogue := small(t, "", x, y)
		if _, err := p.Replace(t.Context(), by, head(t, p), catalogue, ReplaceOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Quarantine(t.Context(), by, Quarantined{Server: "q", Reason: "no"}); err != nil {
			t.Fatal(err)
		}
		if n := len(load(t, p).Tools); n != 2 {
			t.Fatalf("%d tools", n)
		}
		server.Exec("postgres", "set search_path = "+cfg.Schema, sql)
		fresh := openPostgres(t, cfg)
		from := head(t, fresh)
		_, err := fresh.Load(t.Context(), from)
		if !errors.Is(err, errTampered) || !strings.HasSuffix(err.Error(), errTampered.Error()) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: Load: %v", sql, err)
		}
		if _, err := fresh.Quarantine(t.Context(), by, Quarantined{Server: "a", Reason: "no"}); !errors.Is(err, errTampered) {
			t.Errorf("%s: Quarantine: %v", sql, err)
		}
		if _, err := fresh.Replace(t.Context(), by, from, catalogue, ReplaceOptions{}); !errors.Is(err, errTampered) {
			t.Errorf("%s: Replace: %v", sql, err)
		}
		after, err := fresh.Replace(t.Context(), by, from, catalogue, ReplaceOptions{Repair: true})
		if err != nil || after.Revision != "3" {
			t.Errorf("%s: repair: %v, %v", sql, after, err)
			continue
		}
		fresh.Close()
		fresh = openPostgres(t, cfg)
		if c := load(t, fresh); c.Head != after || c.Content != catalogue.Content || len(c.Quarantine) > 1 {
			t.Errorf("%s: after the repair %+v", sql, c)
		}
		if got := load(t, p); got.Head != after { // which had the parts of before
			t.Errorf("%s: after the repair %v", sql, got.Head)
		}
		p.Close()
		fresh.Close()
	}
}

// A load reads only the servers that changed.
func testPostgresLoadsWhatChanged(t *testing.T, server *pgserver.Server) {
	cfg, p := emptied(t, server)
	both, err := NewCatalogue("", Catalogue{Tools: append(small(t, "", Tool{Server: "a", Name: "x"}).Tools, small(t, "", Tool{Server: "b", Name: "tool_00001"}).Tools...)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Replace(t.Context(), Author{Name: "x"}, head(t, p), both, ReplaceOptions{}); err != nil {
		t.Fatal(err)
	}
	load(t, p)
	writer := openPostgres(t, cfg)
	if _, err := writer.Approve(t.Context(), Author{Name: "x"}, "b", "tool_00001", sha, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	want := load(t, writer)
	// What is not read is not missed.
	server.Exec("postgres", "set search_path = "+cfg.Schema, "delete from tools where server = 'a'")
	if got := load(t, p); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if _, err := openPostgres(t, cfg).Load(t.Context(), want.Head); !errors.Is(err, errTampered) {
		t.Errorf("a load of everything: %v", err)
	}
}

// What people write comes back as they wrote it, to the byte.
func testPostgresKeepsText(t *testing.T, server *pgserver.Server) {
	cfg, p := emptied(t, server)
	text := "\"\\/' -- $1 %s é e\u0301 😀 <b> \\u0000 {\"a\":1}"
	tool := Tool{Server: "a", Name: "x", Description: text, Owner: text, Labels: map[string]string{"": "", "bb": text, text: "b", "A": "1.0", "c": "1e400"}}
	catalogue := small(t, "", tool)
	catalogue.Servers[0].Description = text
	if _, err := p.Replace(t.Context(), Author{Name: text, Note: text}, head(t, p), catalogue, ReplaceOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Quarantine(t.Context(), Author{Name: text}, Quarantined{Server: "a", Tool: "x", Reason: text}); err != nil {
		t.Fatal(err)
	}
	c := load(t, openPostgres(t, cfg))
	if got := c.Tools[0]; !reflect.DeepEqual(got, catalogue.Tools[0]) {
		t.Errorf("got  %+v\nwant %+v", got, catalogue.Tools[0])
	}
	if q := c.Quarantine[0]; c.Servers[0].Description != text || q.Reason != text || q.By != text {
		t.Errorf("%+v, %+v", c.Servers, q)
	}
	events, err := p.History(t.Context(), HistoryFilter{})
	if err != nil || events[0].By.Name != text || events[2].By.Note != text {
		t.Errorf("%+v, %v", events, err)
	}
}
