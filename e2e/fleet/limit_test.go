package fleet_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/regogate/regogate/e2e/redisserver"
)

// TestFleetHoldsOneLimit sends more than one principal may to three replicas in
// turn, first with a Redis and then without: together they hold the limit, and
// alone none lets through more than it.
func TestFleetHoldsOneLimit(t *testing.T) {
	const most, replicas = 30, 3
	f := newFleet(t, 0)
	shared := redisserver.Start(t)
	config := maps.Clone(f.config)
	config["limits"] = object{"rate": object{
		"per_principal": object{"rate": fmt.Sprint(most, "/h")},
		"redis":         object{"url": "redis://" + shared.Addr, "timeout": "5s"},
	}}
	for n := range replicas {
		f.replicas = append(f.replicas, f.start(t, fmt.Sprint("limited", n), config))
	}
	// send returns how many of the requests each replica let through.
	send := func(principal string) []int {
		t.Helper()
		c := &client{token: f.token(t, principal)}
		passed := make([]int, replicas)
		for i := range (most + 2) * replicas {
			params := object{"name": "new__echo", "arguments": object{"owner": principal, "mark": fmt.Sprint(principal, i)}}
			switch r := c.modern(f.url(i), "tools/call", "new__echo", params); r.status {
			case http.StatusOK:
				passed[i%replicas]++
			case http.StatusTooManyRequests:
				if r.header.Get("Retry-After") == "" || r.message.Error == nil {
					t.Errorf("refused without a time to wait: %v, %+v", r.header, r.message)
				}
			default:
				t.Fatalf("%d %+v %v", r.status, r.message.Error, r.err)
			}
		}
		return passed
	}
	if got := send("ann"); !slices.Equal(got, []int{most / replicas, most / replicas, most / replicas}) {
		t.Errorf("the replicas let %v through, want %d together", got, most)
	}
	got := 0
	for i := range (most + 2) * replicas {
		got += f.new.count(fmt.Sprint("ann", i))
	}
	if got != most {
		t.Errorf("the server got %d calls, want %d", got, most)
	}
	shared.Kill()
	if got := send("bob"); !slices.Equal(got, []int{most, most, most}) {
		t.Errorf("without Redis the replicas let %v through, want %d each", got, most)
	}
	for n, r := range f.replicas {
		if got := strings.Count(r.Log(), "the Redis of limits cannot be used"); got != 1 || r.Status() != "degraded" {
			t.Errorf("replica %d is %s and says %d times that Redis is away", n, r.Status(), got)
		}
	}
}
