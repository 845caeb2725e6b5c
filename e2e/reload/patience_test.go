package reload_test

import (
	"testing"

	"github.com/regogate/regogate/e2e/depot"
)

// TestEarly: a server that does not let requests wait gets no more of them than
// one that is polled would, give or take.
func TestEarly(t *testing.T) {
	r := start(t, options{long: true})
	x := r.run(t, r.join(t, "a", false))
	for name, change := range map[string]func(*depot.Publication){
		"304 at once":      func(p *depot.Publication) { p.Fault = depot.Early },
		"304 to everybody": func(p *depot.Publication) { p.Fault = depot.Unmodified },
		"no ETag":          func(p *depot.Publication) { p.ETag = "none" },
		"changing ETags":   func(p *depot.Publication) { p.ETag = "changing" },
	} {
		p := publication(1)
		change(&p)
		r.put(t, p)
		r.asks(t, 1)
		from := len(r.depot.Requests("main"))
		x.more(t, pace)
		asked := len(r.depot.Requests("main")) - from
		t.Logf("%s: %d requests for the bundle while %d of clients were answered", name, asked, pace)
		if asked > pace/4 {
			t.Errorf("%s: %d requests for a bundle that has not changed", name, asked)
		}
	}
	if got := r.journal.activations(); len(got) != 1 {
		t.Errorf("in force came %v", got)
	}
	r.good(t, 2)
	r.inForce(t, 2)
	x.more(t, answersEach)
}

// TestHang: a server that never answers a long poll is asked again.
func TestHang(t *testing.T) {
	r := start(t, options{long: true, wait: 1})
	x := r.run(t, r.join(t, "a", true))
	p := publication(1)
	p.Fault = depot.Hang
	r.put(t, p) // the request that waits hangs from now on
	r.asks(t, 1)
	x.more(t, answersEach)
	r.good(t, 2)
	r.inForce(t, 2)
}

// TestStop: requests that an orderly end cuts off are no problem of the bundle's.
func TestStop(t *testing.T) {
	r := start(t, options{long: true})
	eventually(t, "a request that waits", func() bool { return len(r.depot.Requests("main")) >= 2 })
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if got := r.journal.problems(0); len(got) > 0 {
		t.Errorf("the end is told of as %q", got)
	}
}
