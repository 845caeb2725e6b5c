package real_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regogate/regogate/e2e/clients"
)

// TestClients has every client, in every era that it speaks, be either persona:
// its list is OPA's answer, each tool of it can be called, and every other name
// is answered like one that does not exist and arrives nowhere.
func TestClients(t *testing.T) {
	s := newStand(t, everything, everythingHTTP, files, ledger, memory)
	s.run(t, "REGOGATE_E2E_SECRET=of the gateway alone")
	expectations(t, s)
	t.Run("matrix", func(t *testing.T) {
		for _, client := range clients.All() {
			for _, era := range client.Eras {
				for _, persona := range personas() {
					t.Run(fmt.Sprintf("%s/%s/%s", client.Name, era, persona), func(t *testing.T) { s.be(t, client, era, persona) })
				}
			}
		}
	})
	t.Run("answers", func(t *testing.T) { answersAlike(t, s) })
	t.Run("routes", func(t *testing.T) { serverRoutes(t, s) })
	t.Run("together", func(t *testing.T) { together(t, s) })
	t.Run("environment", func(t *testing.T) { environment(t, s) })
}

// expectations makes sure that the test can fail: both personas see much and
// not all, each something that the other does not, and nobody what the registry
// does not vouch for.
func expectations(t *testing.T, s *stand) {
	t.Helper()
	if len(s.offered) != 13+13+14+5+9 {
		t.Fatalf("the servers offer %d tools, want 54", len(s.offered))
	}
	mine, others := s.expected(t, builder)
	theirs, hidden := s.expected(t, clerk)
	if len(mine) < 15 || len(others) < 15 || len(theirs) < 15 || len(hidden) < 15 {
		t.Fatalf("builder sees %v, clerk %v: too few or too many", mine, theirs)
	}
	for _, name := range []string{
		everything + "__simulate-research-query", everything + "__toggle-simulated-logging", everything + "__toggle-subscriber-updates",
		everythingHTTP + "__get-tiny-image", everythingHTTP + "__get-env", ledger + "__export_everything", ledger + "__forget_charge",
	} {
		if slices.Contains(mine, name) || slices.Contains(theirs, name) {
			t.Fatalf("OPA allows %s to somebody", name)
		}
	}
	for _, name := range []string{everything + "__get-env", everythingHTTP + "__get-structured-content", files + "__write_file"} {
		if !slices.Contains(mine, name) || slices.Contains(theirs, name) {
			t.Fatalf("OPA does not allow %s to the builder alone", name)
		}
	}
	for _, name := range []string{memory + "__create_entities", everythingHTTP + "__get-sum", ledger + "__list_charges"} {
		if slices.Contains(mine, name) || !slices.Contains(theirs, name) {
			t.Fatalf("OPA does not allow %s to the clerk alone", name)
		}
	}
	t.Logf("of %d tools the builder sees %d, the clerk %d", len(s.offered), len(mine), len(theirs))
}

// be has a client be a persona.
func (s *stand) be(t *testing.T, client clients.Client, era clients.Era, persona string) {
	visible, hidden := s.expected(t, persona)
	called, refused := visible, s.twins(hidden)
	if client.Name == "inspector" { // whose every call is a process that connects and lists: its eras share out the servers
		called, refused = share(visible, slices.Index(client.Eras, era), len(client.Eras)), refused[:1]
		called = called[:min(5, len(called))]
	}
	word := fmt.Sprintf("%s-%s-%s", client.Name, era, persona)
	good, vain := s.newMark(t, word), s.newMark(t, word+"-vain")
	spec := clients.Spec{URL: s.URL + "/mcp", Token: s.tokens[persona], Era: era}
	for _, name := range called {
		spec.Calls = append(spec.Calls, clients.Call{Name: name, Arguments: good.arguments(t, name)})
	}
	for _, pair := range refused {
		arguments := vain.arguments(t, pair[0])
		spec.Calls = append(spec.Calls, clients.Call{Name: pair[0], Arguments: arguments}, clients.Call{Name: pair[1], Arguments: arguments})
	}
	before, from := s.arrivals(t), time.Now()
	got, err := client.Run(t.Context(), t, spec)
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(from)
	if !slices.Equal(got.Tools, visible) {
		t.Errorf("listed  %v\nallowed %v", got.Tools, visible)
	}
	if want := version(client.Name, era); got.Version != want {
		t.Errorf("revision %s, want %s", got.Version, want)
	}
	succeeded(t, good, called, got.Calls[:len(called)])
	alike(t, client.Name, refused, got.Calls[len(called):])
	s.arrived(t, before, called)
	s.left(t, good, called)
	s.left(t, vain, nil)
	t.Logf("%d listed, %d called, %d hidden and %d non-existent refused, none arrived, in %v",
		len(got.Tools), len(called), len(refused), len(refused), took.Round(time.Millisecond))
}

func version(client string, era clients.Era) string {
	if era == clients.Legacy || client == "mcp-remote" { // whose own side is always legacy
		return "2025-11-25"
	}
	return "2026-07-28"
}

// share keeps the tools of every n-th server, beginning with the server i.
func share(names []string, i, n int) []string {
	var kept, servers []string
	for _, name := range names {
		server, _, _ := strings.Cut(name, "__")
		if !slices.Contains(servers, server) {
			servers = append(servers, server)
		}
		if (len(servers)-1)%n == i {
			kept = append(kept, name)
		}
	}
	return kept
}

// twins gives each name one of the same length that no server offers: on the
// same server, and for the last name one on a server that is not there.
func (s *stand) twins(names []string) [][2]string {
	taken := map[string]bool{}
	for _, o := range s.offered {
		taken[o.exposed()] = true
	}
	var pairs [][2]string
	for _, name := range names {
		for _, last := range "qxz" {
			if twin := name[:len(name)-1] + string(last); !taken[twin] {
				pairs = append(pairs, [2]string{name, twin})
				break
			}
		}
	}
	last := names[len(names)-1]
	nobody := "no__" + strings.Repeat("x", len(last)-len("no__"))
	return append(pairs, [2]string{last, nobody})
}

// succeeded checks that each call gave a good result of the right tool.
func succeeded(t *testing.T, m mark, names []string, results []clients.CallResult) {
	t.Helper()
	for i, r := range results {
		_, tool, _ := strings.Cut(names[i], "__")
		if r.Name != names[i] || !r.OK || r.IsError || r.Error != nil || !strings.Contains(r.Text, m.texts()[tool]) {
			t.Errorf("%s: got %+v, want a result with %q", names[i], r, m.texts()[tool])
		}
	}
}

// alike checks that a client makes the same of a hidden name and of its twin.
func alike(t *testing.T, client string, pairs [][2]string, results []clients.CallResult) {
	t.Helper()
	if len(results) != 2*len(pairs) {
		t.Fatalf("%d results of %d pairs", len(results), len(pairs))
	}
	for i, pair := range pairs {
		var seen [2]clients.CallResult
		for j, name := range pair {
			r := results[2*i+j]
			if r.Name != name || r.OK || r.IsError || r.Text != "" || r.Error == nil {
				t.Fatalf("%s: got %+v, want an error", name, r)
			}
			wantCode, wantText := -32602, "Unknown tool: "+name
			if client == "inspector" { // which calls only what it has found in the list
				wantCode, wantText = 0, "Tool '"+name+"' not found on server."
			}
			if r.Error.Code != wantCode || !strings.HasSuffix(r.Error.Message, wantText) {
				t.Errorf("%s: got %v, want code %d and %q", name, r.Error, wantCode, wantText)
			}
			problem := *r.Error
			problem.Message = strings.ReplaceAll(problem.Message, name, "NAME")
			seen[j] = clients.CallResult{Error: &problem}
		}
		if !reflect.DeepEqual(seen[0], seen[1]) {
			t.Errorf("%s answers %v, %s answers %v", pair[0], seen[0].Error, pair[1], seen[1].Error)
		}
	}
}

// arrived checks that exactly these calls have arrived since before, each once
// and at its server, in this order.
func (s *stand) arrived(t *testing.T, before map[string][]string, called []string) {
	t.Helper()
	want := map[string][]string{}
	for _, name := range called {
		server, tool, _ := strings.Cut(name, "__")
		want[server] = append(want[server], tool)
	}
	got := s.arrivals(t)
	for server := range got {
		if got[server] = got[server][len(before[server]):]; len(got[server]) == 0 {
			delete(got, server)
		}
	}
	if !maps.EqualFunc(got, want, slices.Equal[[]string]) {
		t.Errorf("arrived %v\ncalled  %v", got, want)
	}
}
