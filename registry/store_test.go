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

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/pgserver"
)

// stores are the implementations that the suite is run for.
func stores(t *testing.T) map[string]func(t *testing.T) *truth {
	return map[string]func(t *testing.T) *truth{
		"file":     fileTruth,
		"postgres": postgresTruth(pgserver.Start(t)),
	}
}

func TestStores(t *testing.T) {
	for name, kind := range stores(t) {
		t.Run(name, func(t *testing.T) { testStore(t, kind) })
	}
}

// testStore holds an implementation to the contract of Store.
func testStore(t *testing.T, kind func(t *testing.T) *truth) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, kind func(t *testing.T) *truth)
	}{
		{"quarantine", testStoreQuarantine},
		{"approve", testStoreApprove},
		{"refused", testStoreRefused},
		{"writers", testStoreWriters},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, kind) })
	}
}

func beginStore(t *testing.T, kind func(t *testing.T) *truth) (*truth, Store) {
	t.Helper()
	tr, s := begin(t, kind)
	return tr, s.(Store)
}

func testStoreQuarantine(t *testing.T, kind func(t *testing.T) *truth) {
	tr, s := beginStore(t, kind)
	by := Author{Name: "someone", Note: "a report"}
	before, content := head(t, s), load(t, s).Content
	start := time.Now().Truncate(time.Second)
	for _, q := range []Quarantined{
		{Server: "a", Tool: "tool_00001", Reason: "it leaks: see the log", By: "somebody else"},
		{Server: "not.registered", Reason: "not \u2014 known"},
	} {
		was := head(t, s)
		after, err := s.Quarantine(t.Context(), by, q)
		if err != nil || after == was || after != head(t, s) {
			t.Fatalf("%v, %v", after, err)
		}
	}
	other := tr.open(t)
	defer other.Close()
	for _, s := range []Source{s, other} {
		c := load(t, s)
		for i := range c.Quarantine {
			if since := c.Quarantine[i].Since; since.Before(start) || time.Since(since) > time.Minute || since.Location() != time.UTC || since.Nanosecond() != 0 {
				t.Errorf("since %s", since)
			}
			c.Quarantine[i].Since = time.Time{}
		}
		want := []Quarantined{
			{Server: "a", Tool: "tool_00001", Reason: "it leaks: see the log", By: "someone"},
			{Server: "not.registered", Reason: "not \u2014 known", By: "someone"},
		}
		if !reflect.DeepEqual(c.Quarantine, want) || c.Content != content || len(c.Tools) != 5 {
			t.Errorf("%+v", c)
		}
	}
	if _, err := s.Quarantine(t.Context(), by, Quarantined{Server: "a", Tool: "tool_00001", Reason: "another"}); err != nil {
		t.Fatal(err)
	}
	if c := load(t, s); len(c.Quarantine) != 2 || c.Quarantine[0].Reason != "another" {
		t.Errorf("%+v", c.Quarantine)
	}
	for _, q := range []Quarantined{{Server: "a", Tool: "tool_00001"}, {Server: "not.registered"}} {
		after, err := s.Release(t.Context(), by, q.Server, q.Tool)
		if err != nil || after != head(t, s) {
			t.Errorf("%v, %v", after, err)
		}
	}
	if c := load(t, s); len(c.Quarantine) != 0 || c.Head.Digest != before.Digest {
		t.Errorf("after the releases %+v, before %v", c.Head, before)
	}
}

func testStoreApprove(t *testing.T, kind func(t *testing.T) *truth) {
	tr, s := beginStore(t, kind)
	by := Author{Name: "someone"}
	pins := func() (all []string) {
		for _, tool := range load(t, s).Tools {
			all = append(all, tool.SHA256)
		}
		return all
	}
	for _, sha256 := range []string{strings.Repeat("0", 64), sha} { // the first time, and a new one
		definition := fmt.Sprintf(`{"description":"\u0000 <b> é %s","name":"tool_00001"}`, sha256)
		was := head(t, s)
		after, err := s.Approve(t.Context(), by, "a", "tool_00001", sha256, []byte(definition))
		if err != nil || after == was || after != head(t, s) {
			t.Fatalf("%v, %v", after, err)
		}
		if got := pins(); !reflect.DeepEqual(got, []string{"", sha256, "", "", ""}) {
			t.Errorf("pins %q", got)
		}
		other := tr.open(t).(Store)
		kept, err := other.Definition(t.Context(), "a", "tool_00001", sha256)
		if text := jsontext.Value(kept); err != nil || text.Canonicalize() != nil || !equalJSON(text, definition) {
			t.Errorf("%s, %v", kept, err)
		}
		other.Close()
		again, err := s.Approve(t.Context(), by, "a", "tool_00001", sha256, []byte(definition))
		if err != nil || again != after {
			t.Errorf("the same again: %v, %v, was %v", again, err, after)
		}
	}
}

func equalJSON(canonical jsontext.Value, text string) bool {
	other := jsontext.Value(text)
	return other.Canonicalize() == nil && string(canonical) == string(other)
}

// What is refused changes nothing, and says why in a line.
func testStoreRefused(t *testing.T, kind func(t *testing.T) *truth) {
	tr, s := beginStore(t, kind)
	text := strings.Replace(catalogueYAML("a", 3, "read"), "effect: read", "effect: read\n        suggested: true", 1)
	tr.write(t, "a.yaml", text)
	eventually(t, 5*time.Second, "the change shows", func() bool { return load(t, s).Tools[0].Suggested })
	good := head(t, s)
	by := Author{Name: "someone"}
	for name, c := range map[string]struct {
		do   func() (Head, error)
		is   error
		says string
	}{
		"release of nothing": {func() (Head, error) { return s.Release(t.Context(), by, "a", "tool_00001") }, ErrUnknown,
			"release a/tool_00001: a quarantine of that is not in the registry"},
		"approval of nothing": {func() (Head, error) { return s.Approve(t.Context(), by, "a", "absent", sha, []byte("{}")) }, ErrUnknown,
			"approve a/absent: the tool is not in the registry; give it an entry that is not suggested"},
		"approval of a guess": {func() (Head, error) { return s.Approve(t.Context(), by, "a", "tool_00000", sha, []byte("{}")) }, ErrUnknown,
			"approve a/tool_00000: the tool is not in the registry; give it an entry that is not suggested"},
		"no digest": {func() (Head, error) { return s.Approve(t.Context(), by, "a", "tool_00001", "x", []byte("{}")) }, nil,
			"want 64 lower-case hexadecimal digits"},
		"no reason": {func() (Head, error) { return s.Quarantine(t.Context(), by, Quarantined{Server: "a"}) }, nil,
			"reason: is missing; say why, in a line"},
		"no name": {func() (Head, error) { return s.Quarantine(t.Context(), by, Quarantined{Server: "a b", Reason: "no"}) }, nil,
			ServerRule},
		"a line break": {func() (Head, error) { return s.Quarantine(t.Context(), by, Quarantined{Server: "a", Reason: "x\ny"}) }, nil,
			"contains a character that does not show"},
	} {
		_, err := c.do()
		if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Definition(t.Context(), "a", "tool_00001", sha); !errors.Is(err, ErrUnknown) {
		t.Errorf("a definition that was not kept: %v", err)
	}
	if got := head(t, s); got != good {
		t.Errorf("head %v, was %v", got, good)
	}
}

// Writers at once wait for each other, and none of their changes is lost.
func testStoreWriters(t *testing.T, kind func(t *testing.T) *truth) {
	tr, s := beginStore(t, kind)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			other := tr.open(t).(Store)
			defer other.Close()
			by := Author{Name: fmt.Sprintf("writer %d", i)}
			if _, err := other.Quarantine(t.Context(), by, Quarantined{Server: fmt.Sprintf("s%d", i), Reason: "no"}); err != nil {
				t.Error(err)
			}
			sha256 := fmt.Sprintf("%064d", i)
			if _, err := other.Approve(t.Context(), by, "b", "tool_00001", sha256, []byte(`{"name":"tool_00001"}`)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	eventually(t, 5*time.Second, "the changes show", func() bool { return len(load(t, s).Quarantine) == 8 && load(t, s).Tools[4].SHA256 != "" })
	for i, q := range load(t, s).Quarantine {
		if q.Server != fmt.Sprintf("s%d", i) || q.By != fmt.Sprintf("writer %d", i) {
			t.Errorf("%+v", q)
		}
	}
}
