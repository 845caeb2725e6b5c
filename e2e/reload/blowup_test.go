package reload_test

import (
	"slices"
	"testing"
	"time"

	"github.com/regogate/regogate/gateway/policy"
)

// blowups are conditions that take for ever, each in its own way. They read the
// principal, so that they are only reached by requests of the group greedy.
func blowups() map[string]string {
	return map[string]string{
		"comprehension": `count([x | some i in numbers.range(1, 30000); some j in numbers.range(1, 30000); i * j == -1; x := i]) > 0`,
		"range":         `count({x | some i in numbers.range(1, 1000000000); x := i % 7}) > 99`,
		"walk":          `count([p | some n in numbers.range(1, 100000); walk(data.mcp.shown, [p, v]); v == n * -1]) > 0`,
		"regex":         `some i in numbers.range(1, 1000000); regex.match(sprintf("(a|aa|aaa|b%d)+$", [i]), concat("", [c | some c in ["a", "a", "a"]])) == false; i < 0`,
	}
}

// TestBlowUp: a policy that takes for ever for some inputs denies those at its
// deadline, and hurts nobody else.
func TestBlowUp(t *testing.T) {
	for name, condition := range blowups() {
		t.Run(name+"/its own requests end in policy_timeout, all others go on", func(t *testing.T) {
			blowUp(t, condition)
		})
	}
}

func blowUp(t *testing.T, condition string) {
	r := start(t, options{long: true, deadline: time.Second})
	x := r.run(t, r.join(t, "a", false), r.join(t, "b", true), r.join(t, "slow", false))
	greedy := []*client{r.join(t, "greedy", false), r.join(t, "greedy", true)}
	p := publication(2)
	p.Files[authz] += "\nallow if {\n\tinput.claims.group == \"greedy\"\n\tinput.tool.name != \"probe\"\n\t" + condition + "\n}\n"
	r.mu.Lock()
	r.published = 2
	r.mu.Unlock()
	r.put(t, p)
	r.inForce(t, 2)
	r.Records.Forget()
	for _, c := range greedy {
		a, err := c.call(t.Context(), "alpha__t1")
		if err != nil || a.Status != 200 || a.Error == nil || a.Error.Code != -32602 {
			t.Errorf("%s: call: %+v %v", c, a, err)
		}
		names, a, err := c.list(t.Context())
		late := a.Error != nil && a.Error.Code == 503 && slices.Equal(a.Error.Data.Reasons, []string{policy.CodeTimeout})
		if err != nil || a.Status != 200 || !late && !slices.Equal(names, []string{probe}) {
			t.Errorf("%s: list: %q %+v %v", c, names, a.Error, err)
		}
	}
	x.more(t, answersEach)
	r.good(t, 3)
	r.inForce(t, 3)
	x.more(t, answersEach)
	x.halt(t)
	if got := r.timeouts("greedy"); got != 4 {
		t.Errorf("%d records of greedy end in policy_timeout, want 4", got)
	}
	for _, g := range groups {
		if got := r.timeouts(g); got != 0 {
			t.Errorf("%d records of %s end in policy_timeout", got, g)
		}
	}
}

// timeouts counts the decisions on a group that were not made in time.
func (r *rig) timeouts(group string) (n int) {
	for _, record := range r.Records.All() {
		if record.Code == policy.CodeTimeout && slices.Contains([]string{group + "-false", group + "-true"}, record.Subject.Claim("sub")) {
			n++
		}
	}
	return n
}

// TestConflict: a bundle whose rules contradict one another for some inputs
// compiles and comes into force; these inputs are denied, and no others.
func TestConflict(t *testing.T) {
	r := start(t, options{long: true})
	torn := r.join(t, "torn", false)
	x := r.run(t, r.join(t, "a", false), r.join(t, "b", true))
	p := publication(2)
	p.Files["mcp/authz/torn.rego"] = "package mcp.authz\n\nallow := input.tool.name == \"t1\" if input.claims.group == \"torn\"\n\nallow := input.tool.name == \"t2\" if input.claims.group == \"torn\"\n"
	r.mu.Lock()
	r.published = 2
	r.mu.Unlock()
	r.put(t, p)
	r.inForce(t, 2)
	for _, c := range []struct {
		tool    string
		allowed bool
	}{{"alpha__t1", false}, {"alpha__t2", false}, {"alpha__t3", false}, {"alpha__probe", false}} {
		a, err := torn.call(t.Context(), c.tool)
		if err != nil || (a.Result != nil) != c.allowed {
			t.Errorf("%s: %+v %v", c.tool, a, err)
		}
	}
	x.more(t, answersEach)
	x.halt(t)
	codes := map[string]int{}
	for _, record := range r.Records.All() {
		if record.Subject.Claim("sub") == "torn-false" && record.Code != "" {
			codes[record.Code]++
		}
	}
	if codes[policy.CodeError] != 3 {
		t.Errorf("codes were %v, want %s for t1, t2 and the probe", codes, policy.CodeError)
	}
}
