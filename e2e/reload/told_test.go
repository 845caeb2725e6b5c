package reload_test

import (
	"io"
	"net/http"
	"regexp"
	"slices"
	"testing"
	"time"
)

// told compares what open streams were told with what changed for them.
type told struct {
	listeners []*listener
	want      []int           // list_changed so far, by listener
	enforced  []time.Duration // from publishing to being in force
	heard     []time.Duration // from publishing to each stream's list_changed
}

func newTold(listeners []*listener) *told {
	return &told{listeners: listeners, want: make([]int, len(listeners))}
}

// expect waits until exactly those know of a new revision who see another list.
func (x *told) expect(t *testing.T, r *rig, before, after int) {
	t.Helper()
	r.mu.Lock()
	published := r.at[name(after)]
	r.mu.Unlock()
	r.journal.mu.Lock()
	x.enforced = append(x.enforced, r.journal.at[after].Sub(published))
	r.journal.mu.Unlock()
	for i, l := range x.listeners {
		if !changed(l.group, before, after) {
			continue
		}
		x.want[i]++
		eventually(t, l.String()+" is told", func() bool { return len(l.times()) >= x.want[i] })
		x.heard = append(x.heard, l.times()[x.want[i]-1].Sub(published))
	}
	x.nothingMore(t)
}

// nothingMore compares the numbers.
func (x *told) nothingMore(t *testing.T) {
	t.Helper()
	for i, l := range x.listeners {
		if got := len(l.times()); got != x.want[i] {
			t.Errorf("%s was told %d times, want %d", l, got, x.want[i])
			x.want[i] = got
		}
	}
}

func (x *told) log(t *testing.T, r *rig) {
	how := "polling"
	if r.depot.Long {
		how = "long polling"
	}
	t.Logf("%s, from publishing to being in force: %s", how, spread(x.enforced))
	t.Logf("%s, from publishing to list_changed at a stream: %s", how, spread(x.heard))
}

// spread describes times.
func spread(d []time.Duration) string {
	if len(d) == 0 {
		return "none"
	}
	d = slices.Sorted(slices.Values(d))
	at := func(q float64) string { return d[int(q*float64(len(d)-1))].Round(100 * time.Microsecond).String() }
	return "median " + at(0.5) + ", p95 " + at(0.95) + ", most " + at(1)
}

var statusMember = regexp.MustCompile(`"status":"([a-z_]+)"`)

// ready is the word that readiness says.
func (r *rig) ready(t testing.TB) string {
	t.Helper()
	resp, err := http.Get(r.URL + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if m := statusMember.FindSubmatch(body); m != nil {
		return string(m[1])
	}
	return string(body)
}

// arrivals holds what reached the servers to what was answered with a result.
func (r *rig) arrivals(t *testing.T, x *traffic) {
	t.Helper()
	var arrived int64
	for _, s := range r.Servers {
		for _, c := range s.Calls() {
			if c.Tool == "probe" {
				t.Error("a call of what nobody may call arrived")
			}
			arrived++
		}
	}
	if arrived != x.allowed.Load() {
		t.Errorf("%d calls arrived, %d were answered with a result", arrived, x.allowed.Load())
	}
}
