package gateway_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/regogate/regogate/e2e/world"
)

// shelves offers the same kinds of things on each server; URIs are on both, or
// on one.
func shelves(name string) *world.Server {
	return &world.Server{
		Name: name, Tools: []jsontext.Value{tool("t1"), tool("t2")},
		Prompts:   []jsontext.Value{world.Prompt("p1"), world.Prompt("p2")},
		Resources: []jsontext.Value{world.Resource("x://both"), world.Resource("x://" + name), world.Resource(name + "://r")},
		Templates: []jsontext.Value{world.Template("t://both/{id}"), world.Template("t://" + name + "/{id}")},
	}
}

// candidate is one thing that could be listed and used.
type candidate struct{ list, name, method, params string }

func candidates(path string) (all []candidate) {
	for _, server := range []string{"alpha", "beta", "gamma"} {
		prefix := server + "__"
		if path != "/mcp" {
			prefix = ""
		}
		for _, own := range []string{"1", "2", "3"} {
			all = append(all,
				candidate{"tools", prefix + "t" + own, "tools/call", `{"name":"` + prefix + "t" + own + `"}`},
				candidate{"prompts", prefix + "p" + own, "prompts/get", `{"name":"` + prefix + "p" + own + `"}`})
		}
		if path == "/mcp" { // a server's own route leads further URIs there, too
			all = append(all, candidate{"resources", server + "://r", "resources/read", `{"uri":"` + server + `://r"}`})
		}
		all = append(all, candidate{"resourceTemplates", "t://" + server + "/{id}", "resources/read", `{"uri":"t://` + server + `/1"}`})
	}
	all = append(all,
		candidate{"resources", "x://both", "resources/read", `{"uri":"x://both"}`},
		candidate{"resources", "x://alpha", "resources/read", `{"uri":"x://alpha"}`},
		candidate{"resourceTemplates", "t://both/{id}", "resources/read", `{"uri":"t://both/1"}`})
	slices.SortFunc(all, func(a, b candidate) int { return strings.Compare(a.list+a.name, b.list+b.name) })
	return slices.Compact(all)
}

// TestWhatIsListedIsWhatCanBeUsed draws what is hidden from a principal, a route
// and an era, and finds that a thing is in its list if and only if it can be
// used, and that nothing else arrives at a backend.
func TestWhatIsListedIsWhatCanBeUsed(t *testing.T) {
	g := newRig(t, nil, shelves("alpha"), shelves("beta"))
	keys := []string{
		"t1", "t2", "p1", "p2", "x://both", "x://alpha", "x://beta", "alpha://r", "beta://r", "t://both/{id}", "t://alpha/{id}", "t://beta/{id}",
		"alpha:x://both", "beta:x://both", "tools/call", "prompts/get", "resources/read", "prompts/get p1", "resources/read x://alpha",
	}
	var visible, asked int
	rapid.Check(t, func(rt *rapid.T) {
		claims := map[string]any{"sub": "drawn", "hidden": rapid.SliceOfNDistinct(rapid.SampledFrom(keys), 0, 8, rapid.ID[string]).Draw(rt, "hidden")}
		path := rapid.SampledFrom([]string{"/mcp", "/mcp/alpha", "/mcp/none"}).Draw(rt, "route")
		minted, err := g.Mint(claims, time.Minute)
		if err != nil {
			rt.Fatal(err)
		}
		p := modern(t, g.World, path, "developer")
		if rapid.Bool().Draw(rt, "legacy") {
			p.meta = ""
		}
		p.token = minted
		if p.meta == "" {
			p.initialize(able)
		}
		listed := map[string]bool{}
		for method, l := range map[string][2]string{
			"tools/list": {"tools", "name"}, "prompts/list": {"prompts", "name"},
			"resources/list": {"resources", "uri"}, "resources/templates/list": {"resourceTemplates", "uriTemplate"},
		} {
			for _, name := range names(t, p, method, l[0], l[1]) {
				listed[l[0]+" "+name] = true
			}
		}
		for _, s := range g.Servers {
			s.Forget()
		}
		used := 0
		for _, c := range candidates(path) {
			_, answer := p.do(c.method, c.params)
			ok := !strings.HasPrefix(answer, "error ")
			if path == "/mcp/alpha" && !listed[c.list+" "+c.name] && strings.Contains(answer, "has t://") {
				used++ // unlisted URIs are asked about by themselves on this route
				continue
			}
			if ok != listed[c.list+" "+c.name] {
				rt.Fatalf("%s: %s %s is listed: %v, but using it: %s", path, c.list, c.name, listed[c.list+" "+c.name], answer)
			}
			if ok {
				used++
			}
		}
		if got := len(g.arrived()); got != used {
			rt.Fatalf("%d were used and %d arrived", used, got)
		}
		visible, asked = visible+used, asked+len(candidates(path))
	})
	if visible == 0 || visible == asked {
		t.Errorf("%d of %d were visible: nothing was decided", visible, asked)
	}
}
