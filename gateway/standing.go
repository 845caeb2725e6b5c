package gateway

import (
	"slices"
	"strings"

	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/registry"
)

// Standing is how the tools of one server stand in the catalogue and in the
// configuration. The lists hold the server's own names of them, sorted; those that
// it offers are its own text, which can hold anything.
type Standing struct {
	Server       string
	InForce      int      // offered as the catalogue says
	Suggested    []string // offered, with attributes that nobody has confirmed
	Unregistered []string // offered, without an entry in the catalogue
	Drifted      []Drift  // offered with another definition than the pinned one
	Misnamed     []string // offered under a name that no client can be shown
	Absent       []string // with an entry in the catalogue, and not offered

	// What is wrong with validating arguments; any of the tools can be in these, too.
	Unvalidated []Unvalidated // offered, with a schema that cannot be used
	Strangers   []string      // named in validate or limits.rate.tools, and not offered
}

// Unvalidated is a tool whose arguments are to be held against its schema, and
// are not. Why is one line of printable characters.
type Unvalidated struct{ Tool, Why string }

// Drift is a tool whose definition is another one than the pinned one. Both
// are the SHA-256 of it, as sha256 in the catalogue.
type Drift struct{ Tool, Pinned, Current string }

// Offered counts the tools that the server offers.
func (s Standing) Offered() int {
	return s.InForce + len(s.Suggested) + len(s.Unregistered) + len(s.Drifted) + len(s.Misnamed)
}

// standings compares what the servers offer with what the catalogue and the
// configuration say. A server whose tools are not known has none.
func standings(c *Config, survey *Survey, snapshot *registry.Snapshot) (list []Standing) {
	if survey == nil || snapshot == nil {
		return nil
	}
	for i := range survey.State.Servers {
		if s := &survey.State.Servers[i]; s.Up {
			list = append(list, standing(c, s, snapshot))
		}
	}
	return list
}

func standing(c *Config, s *upstream.Server, snapshot *registry.Snapshot) Standing {
	r := Standing{Server: s.Name, Unvalidated: c.unvalidated(s)}
	suggested := map[string]bool{}
	for _, t := range snapshot.Suggested() {
		if t.Server == s.Name {
			suggested[t.Name] = true
		}
	}
	for _, d := range s.Tools {
		_, exposable := registry.Exposed(s.Name, d.Name)
		switch entry, ok := snapshot.Lookup(s.Name, d.Name); {
		case !exposable:
			r.Misnamed = append(r.Misnamed, d.Name)
		case suggested[d.Name]:
			r.Suggested = append(r.Suggested, d.Name)
		case !ok:
			r.Unregistered = append(r.Unregistered, d.Name)
		case entry.SHA256 != "" && entry.SHA256 != d.SHA256:
			r.Drifted = append(r.Drifted, Drift{d.Name, entry.SHA256, d.SHA256})
		default:
			r.InForce++
		}
	}
	if !s.Partial {
		r.Absent, r.Strangers = absent(s, snapshot), c.strangers(s)
	}
	for _, names := range [][]string{r.Suggested, r.Unregistered, r.Misnamed, r.Absent} {
		slices.Sort(names)
	}
	slices.SortFunc(r.Drifted, func(a, b Drift) int { return strings.Compare(a.Tool, b.Tool) })
	return r
}

func absent(s *upstream.Server, snapshot *registry.Snapshot) (names []string) {
	for _, entries := range [][]registry.Tool{snapshot.Tools(), snapshot.Suggested()} {
		for _, t := range entries {
			if t.Server == s.Name && s.Tool(t.Name) == nil {
				names = append(names, t.Name)
			}
		}
	}
	return names
}
