package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What is wrong in the store with one bundle is told of that one, with what to do;
// the others are served.
func TestBrokenIndex(t *testing.T) {
	zeros := strings.Repeat("0", 64)
	entry := func(revision, digest, content string, size int) string {
		return fmt.Sprintf(`[{"revision":%q,"digest":%q,"content":%q,"size":%d}]`, revision, digest, content, size)
	}
	for name, text := range map[string]string{
		"empty":             "",
		"cut off":           `[{"revision":`,
		"no list":           `{}`,
		"short digest":      entry("v1", "abc", zeros, 1),
		"capital digest":    entry("v1", strings.Repeat("A", 64), zeros, 1),
		"digest leads away": entry("v1", "../"+zeros[3:], zeros, 1),
		"no content":        entry("v1", zeros, "", 1),
		"no revision":       entry("", zeros, zeros, 1),
		"two lines":         entry("a\nb", zeros, zeros, 1),
		"long revision":     entry(strings.Repeat("v", 257), zeros, zeros, 1),
		"no size":           entry("v1", zeros, zeros, 0),
		"vast":              entry("v1", zeros, zeros, 1<<40),
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, func(c *Config) { c.Bundles["other"] = c.Bundles["authz"] })
			path := d.store.path("authz", indexFile)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			d.restart()
			st, _ := d.look()
			if !strings.HasPrefix(st.StoreProblem, "the index of bundle authz is broken (") || !strings.HasSuffix(st.StoreProblem, "): remove "+path+" to begin anew") ||
				strings.Contains(st.StoreProblem, "\n") || st.ETag != "" {
				t.Errorf("told: %+v", st)
			}
			d.server.look(d.server.served["other"])
			if other := d.server.Status()[1]; other.ETag == "" || other.StoreProblem != "" {
				t.Errorf("the other: %+v", other)
			}
			if err := d.store.Pin("authz", "v1"); err == nil {
				t.Error("pinned in a broken index")
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if st, _ := d.look(); st.ETag == "" || st.StoreProblem != "" {
				t.Errorf("mended: %+v", st)
			}
		})
	}
}

// An archive that is damaged is published again from the source.
func TestDamagedArchive(t *testing.T) {
	for name, damage := range map[string]func(string) error{
		"cut off": func(path string) error { return os.Truncate(path, 10) },
		"changed": func(path string) error { return os.WriteFile(path, []byte("something else"), 0o600) },
		"longer":  func(path string) error { return os.Truncate(path, 1<<20) },
		"gone":    os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, func(c *Config) { c.Bundles["other"] = c.Bundles["authz"] })
			first, _ := d.look()
			d.server.look(d.server.served["other"])
			if err := damage(d.store.path("authz", archive(d.list()[0].Digest))); err != nil {
				t.Fatal(err)
			}
			if st, _ := d.look(); st != first {
				t.Errorf("while it runs: %+v", st)
			}
			d.restart()
			if all := d.server.Status(); all[0].StoreProblem == "" || all[0].ETag != "" || all[1].ETag == "" || all[1].StoreProblem != "" {
				t.Errorf("at the start: %+v", all)
			}
			if st, _ := d.look(); st.ETag != first.ETag || st.StoreProblem != "" || len(d.list()) != 1 {
				t.Errorf("afterwards: %+v", st)
			}
			d.restart()
			if st := d.server.Status()[0]; st.ETag != first.ETag {
				t.Errorf("at the next start: %+v", st)
			}
		})
	}
}

// Source and store have a problem each, which stays until that is mended.
func TestTwoProblems(t *testing.T) {
	d := newDesk(t)
	first, _ := d.look()
	if err := os.WriteFile(d.store.path("authz", pinFile), []byte("gone\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.save("tru(")
	d.restart()
	want := func(what string, source, store, serves bool) {
		t.Helper()
		for range 2 {
			d.server.show(d.b)
			st, _ := d.look()
			if (st.SourceProblem != "") != source || (st.StoreProblem != "") != store || (st.ETag != "") != serves {
				t.Errorf("%s: %+v", what, st)
			}
		}
	}
	want("both", true, true, false)
	d.save("false")
	want("the store's", false, true, false)
	if n := len(d.list()); n != 2 {
		t.Errorf("%d revisions: what was saved is not published", n)
	}
	d.save("tru(")
	if err := d.store.Unpin("authz"); err != nil {
		t.Fatal(err)
	}
	want("the source's", true, false, true)
	d.save("true")
	want("none", false, false, true)
	if st := d.b.status(); st.Revision != first.Revision {
		t.Errorf("%+v", st)
	}
}

// What cannot be kept is told until it can.
func TestStoreDoesNotTakeIt(t *testing.T) {
	d := newDesk(t)
	path := filepath.Join(d.store.dir, "authz")
	if err := os.Symlink(filepath.Join(d.store.dir, "nowhere"), path); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		st, _ := d.look()
		d.server.show(d.b)
		if again := d.b.status(); st.StoreProblem == "" || st.SourceProblem != "" || again.StoreProblem != st.StoreProblem {
			t.Errorf("%+v, then %+v", st, again)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if st, _ := d.look(); st.StoreProblem != "" || st.ETag == "" {
		t.Errorf("mended: %+v", st)
	}
}

func TestPin(t *testing.T) {
	d := newDesk(t)
	fails := func(err error, want string) {
		t.Helper()
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	fails(d.store.Pin("authz", "v1"), `bundle authz has no revision "v1": none is retained yet`)
	st, _ := d.look()
	fails(d.store.Pin("authz", "v1"), `bundle authz has no revision "v1": retained are `+st.Revision)
	fails(d.store.Pin("authz", ""), `bundle authz has no revision "": retained are `+st.Revision)
	const rule = `: want lower-case letters, digits, - and _, at most 64`
	fails(d.store.Pin("../authz", st.Revision), `bundle name "../authz"`+rule)
	fails(d.store.Unpin("../authz"), `bundle name "../authz"`+rule)
	if err := d.store.Unpin("authz"); err != nil {
		t.Errorf("what is not pinned: %v", err)
	}
	// All pins are set at the start, or none.
	d.config.Bundles["other"] = d.config.Bundles["authz"]
	d.config.Pins = map[string]string{"authz": st.Revision, "other": "v1"}
	if _, err := New(d.config); err == nil || !strings.Contains(err.Error(), "bundle other has no revision") {
		t.Errorf("a pin of nothing: %v", err)
	}
	if pin, err := d.store.Pinned("authz"); pin != "" || err != nil {
		t.Errorf("half of the pins: %q %v", pin, err)
	}
	d.config.Pins = map[string]string{"authz": st.Revision}
	d.restart()
	if st := d.server.Status()[0]; !st.Pinned {
		t.Errorf("%+v", st)
	}
	d.config.Pins = map[string]string{"authz": ""}
	d.restart()
	if st := d.server.Status()[0]; st.Pinned {
		t.Errorf("%+v", st)
	}
}

// Of several with the pinned revision's name one is kept beyond the number, the
// newest.
func TestRetention(t *testing.T) {
	store, err := OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	publish := func(revision, content string) {
		t.Helper()
		r := Revision{Revision: revision, Content: digest([]byte(content)), Published: time.Now().UTC()}
		if err := store.Publish("authz", []byte("the bytes of "+content), r, 2); err != nil {
			t.Fatal(err)
		}
	}
	want := func(contents ...string) {
		t.Helper()
		list, err := store.Revisions("authz")
		if err != nil || len(list) != len(contents) {
			t.Fatalf("%+v %v, want %q", list, err, contents)
		}
		for i, c := range contents {
			body, err := store.Read("authz", list[i])
			if err != nil || string(body) != "the bytes of "+c {
				t.Errorf("%d: %q %v, want %q", i, body, err, c)
			}
		}
		entries, err := os.ReadDir(filepath.Join(store.dir, "authz"))
		if err != nil || len(entries) != len(contents)+2 { // index and pin
			t.Errorf("%v %v", entries, err)
		}
	}
	publish("v1", "a")
	publish("v1", "b")
	if err := store.Pin("authz", "v1"); err != nil {
		t.Fatal(err)
	}
	want("a", "b")
	publish("v2", "c")
	want("b", "c")
	publish("v3", "d")
	want("b", "c", "d")
	publish("v4", "e")
	publish("v3", "d") // the same content again is one publication
	want("b", "e", "d")
}
