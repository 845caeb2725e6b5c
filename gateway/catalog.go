package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"reflect"
	"slices"

	"github.com/regogate/regogate/gateway/policy"
	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/registry"
)

// catalog is everything the gateway could show, at one state of the registry
// and the backends. Immutable.
type catalog struct {
	revision string // a digest: equal catalogs have equal ones, at every replica
	registry string // revision of the registry
	all      shelf
	servers  map[string]shelf
}

// shelf is what one route could show.
type shelf struct {
	lists   [listings]view
	sites   []*site // sorted by name
	servers *policy.Items
}

// view is one list of one route, in the order in which it is listed.
type view struct {
	offers []*offer
	items  *policy.Items
	byName map[string]*offer // by the name that the route shows; the first of a URI
	route  string            // its server; "" on the aggregate route
	sets   visibleSets
}

// site is one server.
type site struct {
	name  string
	item  *policy.Item
	facts policy.Facts
	state upstream.Server
}

func (s *site) subject() policy.Name { return policy.Name{Kind: policy.KindServer, Server: s.name} }

// newCatalog joins what the backends offer with what the registry says. What
// did not change is taken over from old, which may be nil.
func newCatalog(config *Config, old *catalog, state *upstream.State, snap *registry.Snapshot, log *slog.Logger) *catalog {
	c := &catalog{registry: snap.Revision(), servers: map[string]shelf{}}
	var all [listings][]*offer
	var sites []*site
	for _, server := range state.Servers {
		j := joiner{config: config, server: server.Name, old: old.shelf(server.Name), snap: snap, facts: serverFacts(snap, server.Name), log: log}
		s := j.site(server)
		sites = append(sites, s)
		var own [listings][]*offer
		for list := range listings {
			own[list] = j.join(list, definitions(&server, list))
			all[list] = append(all[list], own[list]...)
		}
		c.servers[server.Name] = newShelf(server.Name, old.shelf(server.Name), own, []*site{s})
	}
	c.all = newShelf("", old.shelf(""), all, sites)
	c.revision = c.digest()
	return c
}

func definitions(s *upstream.Server, list listing) []upstream.Definition {
	return [listings][]upstream.Definition{
		toolList: s.Tools, promptList: s.Prompts, resourceList: s.Resources, templateList: s.Templates,
	}[list]
}

func newShelf(route string, old shelf, offers [listings][]*offer, sites []*site) shelf {
	items := make([]*policy.Item, len(sites))
	for i, site := range sites {
		items[i] = site.item
	}
	s := shelf{sites: sites, servers: policy.NewItems(items)}
	for list := range listings {
		// What was decided on a list, and put together, holds as long as it is the
		// same one.
		if s.lists[list] = old.lists[list]; old.servers == nil || !slices.Equal(old.lists[list].offers, offers[list]) {
			s.lists[list] = newView(route, offers[list])
		}
	}
	return s
}

func newView(route string, offers []*offer) view {
	v := view{route: route, offers: offers, byName: make(map[string]*offer, len(offers)), sets: newVisibleSets()}
	items := make([]*policy.Item, len(offers))
	for i, o := range offers {
		items[i] = o.item
		name := o.exposed
		if route != "" {
			name = o.name
		}
		if v.byName[name] == nil {
			v.byName[name] = o
		}
	}
	v.items = policy.NewItems(items)
	return v
}

// digest names the catalog by what is in it, so that replicas which show the
// same agree.
func (c *catalog) digest() string {
	h := sha256.New()
	h.Write([]byte(c.registry))
	for _, v := range c.all.lists {
		for _, o := range v.offers {
			h.Write(o.digest[:])
		}
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// shelf returns what the route shows; nothing for a server that is not there.
func (c *catalog) shelf(server string) shelf {
	switch {
	case c == nil:
		return shelf{}
	case server == "":
		return c.all
	}
	return c.servers[server]
}

// joiner joins what one server offers with what the registry says.
type joiner struct {
	config *Config
	server string
	old    shelf
	snap   *registry.Snapshot
	facts  policy.Facts
	log    *slog.Logger
}

func (j *joiner) site(state upstream.Server) *site {
	s := &site{name: j.server, facts: j.facts, state: state}
	if len(j.old.sites) == 1 && reflect.DeepEqual(j.old.sites[0].facts, j.facts) {
		s.item = j.old.sites[0].item
		return s
	}
	s.item = item(policy.NewServerItem(policy.Server{Name: j.server, Facts: j.facts}))
	return s
}

// join leaves out, and says so in the log, what cannot be offered; it never
// takes anything else with it.
func (j *joiner) join(list listing, defs []upstream.Definition) []*offer {
	offers := make([]*offer, 0, len(defs))
	for _, def := range defs {
		var known knowledge
		if list == toolList {
			known.entry, _ = j.snap.Lookup(j.server, def.Name)
			_, known.quarantined = j.snap.Quarantined(j.server, def.Name)
		}
		before := j.old.lists[list].byName[def.Name]
		if before != nil && before.same(def, known, j.facts) {
			offers = append(offers, before)
			continue
		}
		o, err := j.prepare(list, def, known)
		if err != nil {
			j.log.Warn("not offered", keyServer, j.server, keyKind, lists[list].kind, keyName, def.Name, keyError, err)
			continue
		}
		if list == toolList && len(o.exposed) > registry.ClientName {
			j.log.Warn("some clients take no tool name longer than 64 characters", keyServer, j.server, keyName, def.Name, "length", len(o.exposed))
		}
		if list == toolList {
			j.heed(before, o)
		}
		offers = append(offers, o)
	}
	return offers
}

func (j *joiner) prepare(list listing, def upstream.Definition, known knowledge) (*offer, error) {
	switch list {
	case toolList:
		return prepareTool(j.config, j.server, def, known, j.log)
	case promptList:
		return preparePrompt(j.server, def, j.facts)
	}
	return prepareResource(list, j.server, def, j.facts)
}
