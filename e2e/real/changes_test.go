package real_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// atOnce is how soon a change that is saved has to hold.
const atOnce = time.Second

// TestChanges saves catalogue, grants and rules under a running gateway. A
// client that stays connected is told, and its list is another one at once.
func TestChanges(t *testing.T) {
	s := newStand(t, ledger)
	s.run(t)
	told := make(chan struct{}, 100)
	session, err := connect(t, s.URL+"/mcp", s.tokens[clerk], func() { told <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	list := func() []string {
		names, err := listNames(t, session)
		if err != nil {
			t.Fatal(err)
		}
		return under(names, ledger)
	}
	if got, want := list(), []string{"list_charges", "get_charge"}; !slices.Equal(got, want) {
		t.Fatalf("listed %v at first, want %v", got, want)
	}
	rules := filepath.Join(s.policies, "mcp", "authz", "authz.rego")
	for _, step := range []struct {
		name   string
		change func()
		want   []string
	}{
		{"attribute revoked", func() { edit(t, s.catalogue, "get_charge: {", "get_charge: {data: secret, ", save) }, []string{"list_charges"}},
		{"attribute given back", func() { edit(t, s.catalogue, "get_charge: {data: secret, ", "get_charge: {", overwrite) }, []string{"list_charges", "get_charge"}},
		{"grant widened", func() {
			const domains = `{"domains": ["payments"], "effect": `
			s.grant(t, []byte(strings.Replace(grants(t), domains+`"read"`, domains+`"destructive"`, 1)))
		}, []string{"list_charges", "get_charge", "create_refund"}},
		{"rule added", func() {
			edit(t, rules, "default allow := false\n", "default allow := false\n\nallow if input.tool.name == \"forget_charge\"\n", overwrite)
		}, []string{"list_charges", "get_charge", "create_refund", "forget_charge"}},
		{"rule removed", func() {
			edit(t, rules, "\nallow if input.tool.name == \"forget_charge\"\n", "", save)
		}, []string{"list_charges", "get_charge", "create_refund"}},
	} {
		t.Run(step.name, func(t *testing.T) {
			forget(told)
			step.change()
			took := within(t, atOnce, step.name, func() bool { return slices.Equal(list(), step.want) })
			select {
			case <-told:
			case <-time.After(atOnce - took):
				t.Errorf("the client was not told within %v", atOnce)
			}
			if allowed, _ := s.expected(t, clerk); !slices.Equal(under(allowed, ledger), step.want) {
				t.Errorf("OPA allows %v, the test wants %v", allowed, step.want)
			}
			t.Logf("in force %v after it was saved", took.Round(time.Millisecond))
			s.onlyArrives(t, session, []string{"list_charges", "get_charge", "create_refund", "forget_charge"}, step.want)
		})
	}
	t.Run("mistakes", func(t *testing.T) {
		forget(told)
		want := list()
		for part, path := range map[string]string{"policy": rules, "registry": s.catalogue} {
			good := edit(t, path, "", "}", save)
			within(t, 2*atOnce, "degraded", func() bool { r := s.ready(t); return r.Status == "degraded" && r.Parts[part] == "degraded" })
			if got := list(); !slices.Equal(got, want) {
				t.Errorf("with a mistake in %s: listed %v, want %v", path, got, want)
			}
			if code := s.ready(t).code; code != 200 {
				t.Errorf("with a mistake in %s: /readyz says %d, want 200", path, code)
			}
			if !s.logged(filepath.Base(path) + ":1") {
				t.Errorf("the log does not say where the mistake in %s is", path)
			}
			save(t, path, good)
			within(t, 2*atOnce, "ready again", func() bool { return s.status(t) == "ready" })
		}
		if len(told) > 0 {
			t.Error("the client was told of a change where there was none")
		}
	})
}

// onlyArrives calls tools of the ledger and checks that those that are allowed,
// and no other, arrive.
func (s *stand) onlyArrives(t *testing.T, session *mcp.ClientSession, names, allowed []string) {
	t.Helper()
	before := s.arrivals(t)
	var want []string
	for _, name := range names {
		exposed := ledger + "__" + name
		_, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: exposed})
		if slices.Contains(allowed, name) {
			want = append(want, exposed)
			if err != nil {
				t.Errorf("%s: %v", exposed, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), "Unknown tool: "+exposed) {
			t.Errorf("%s: got %v, want an unknown tool", exposed, err)
		}
	}
	s.arrived(t, before, want)
}

// edit replaces the first occurrence of a text in a file and returns what was
// there before. An empty text is at the beginning.
func edit(t testing.TB, path, old, new string, write func(testing.TB, string, string)) (before string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		t.Fatalf("%s does not hold %q", path, old)
	}
	write(t, path, strings.Replace(string(text), old, new, 1))
	return string(text)
}

// overwrite writes a file in place, as a shell does.
func overwrite(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func forget(told chan struct{}) {
	for len(told) > 0 {
		<-told
	}
}
