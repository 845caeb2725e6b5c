package reload_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/regogate/regogate/e2e/depot"
)

// TestDelta: a delta, which only comes where nothing has to be signed, is a
// revision like any other: judged as a whole, and in force as a whole.
func TestDelta(t *testing.T) {
	r := start(t, options{long: true, unsigned: true, first: func(r *rig) { r.unsigned(t, 1) }})
	c := r.join(t, "a", false)
	for n := 2; n <= 20; n++ {
		patch := fmt.Sprintf(`{"data": [{"op": "upsert", "path": "/mcp/number", "value": %d}]}`, n)
		if err := r.depot.Publish("main", depot.Publication{
			Revision: name(n), ETag: etag(n), Files: map[string]string{"patch.json": patch},
		}); err != nil {
			t.Fatal(err)
		}
		r.inForce(t, n)
		a, err := c.call(t.Context(), probe)
		want := []string{fmt.Sprintf("m1_d%d", n)}
		if err != nil || a.Error == nil || !slices.Equal(a.Error.Data.Reasons, want) {
			t.Fatalf("after delta %d: %+v %v, want %q", n, a.Error, err, want)
		}
	}
	r.put(t, depot.Publication{
		Revision: "spoils", ETag: `"spoils"`,
		Files: map[string]string{"patch.json": `{"data": [{"op": "upsert", "path": "/mcp/authz/allow", "value": true}]}`},
	})
	r.refused(t, 1)
	r.operators(t, 20, "authz")
	a, err := c.call(t.Context(), probe)
	if err != nil || a.Error == nil || !slices.Equal(a.Error.Data.Reasons, []string{"m1_d20"}) {
		t.Errorf("after a delta that is refused: %+v %v", a.Error, err)
	}
	r.unsigned(t, 21)
	r.inForce(t, 21)
	names, _, err := c.list(t.Context())
	if err != nil || !slices.Equal(names, visible("a", 21)) {
		t.Errorf("after a whole bundle: %q %v", names, err)
	}
}

// unsigned publishes a good revision without a signature.
func (r *rig) unsigned(t testing.TB, revision int) {
	t.Helper()
	p := publication(revision)
	p.Sign = nil
	r.put(t, p)
}
