package reload_test

import (
	"slices"
	"testing"

	"github.com/regogate/regogate/e2e/depot"
)

// TestETags: what is refused is never called known; a server that says that
// nothing changed is believed, and the error is over; what is sent again and
// again under no ETag or another one each time, or weakly, is not judged again.
func TestETags(t *testing.T) {
	r := start(t, options{first: func(r *rig) {
		p := publication(1)
		p.ETag = `W/"a"`
		r.published = 1
		r.put(t, p)
	}})
	c := r.join(t, "a", false)
	x := r.run(t, c, r.join(t, "b", true))

	broken := publication(bad(1))
	broken.ETag, broken.Files[authz] = `"b"`, "package mcp.authz\n\nother := true\n"
	r.put(t, broken)
	r.refused(t, 1)
	r.asks(t, 2)
	x.more(t, answersEach)

	broken.Fault = depot.Unmodified
	r.put(t, broken)
	eventually(t, "the error is over", func() bool { return r.ready(t) == "ready" })

	for _, etag := range []string{"none", "changing", `W/"a"`} {
		again := publication(1)
		again.ETag = etag
		r.put(t, again)
		r.asks(t, 3)
		x.more(t, answersEach)
	}
	if got := r.journal.activations(); !slices.Equal(got, []int{1}) {
		t.Errorf("in force came %v: what is unchanged is judged again", got)
	}

	broken.Fault = ""
	r.put(t, broken)
	r.refused(t, 2)
	mended := publication(2)
	mended.ETag = `"b"`
	r.mu.Lock()
	r.published = 2
	r.mu.Unlock()
	r.put(t, mended)
	r.inForce(t, 2)
	known := r.depot.Known("main")
	if slices.Contains(known, `"b"`) && !r.knewAfter(`"b"`, 2) {
		t.Errorf("known were %q: what was refused is called known", known)
	}
	if !slices.Contains(known, `W/"a"`) {
		t.Errorf("known were %q: a weak ETag is not sent back as it is", known)
	}
	x.more(t, answersEach)
}

// refused waits until so many publications have been refused.
func (r *rig) refused(t testing.TB, n int) {
	t.Helper()
	eventually(t, "the refusal", func() bool { return len(r.journal.problems(0)) >= n })
}

// asks waits for so many requests for the bundle.
func (r *rig) asks(t testing.TB, n int) {
	t.Helper()
	from := len(r.depot.Requests("main"))
	eventually(t, "requests for the bundle", func() bool { return len(r.depot.Requests("main")) >= from+n })
}

// knewAfter reports whether the ETag was only called known once a revision was in
// force.
func (r *rig) knewAfter(etag string, revision int) bool {
	r.journal.mu.Lock()
	since := r.journal.at[revision]
	r.journal.mu.Unlock()
	for _, q := range r.depot.Requests("main") {
		if q.Known == etag && q.Time.Before(since) {
			return false
		}
	}
	return true
}
