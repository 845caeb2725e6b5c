package reload_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/depot"
	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/registry"
)

// liveness bounds what has to come in the end. It finds what hangs, not what is
// slow.
const liveness = 60 * time.Second

// rig is a gateway whose policy comes from a depot.
type rig struct {
	*world.World
	depot   *depot.Depot
	door    *door
	journal *journal
	trap    *trap

	mu        sync.Mutex
	published int                  // newest good revision
	at        map[string]time.Time // when a revision was published
}

// options of a rig.
type options struct {
	long     bool           // the server lets requests wait
	first    func(r *rig)   // publishes what there is at the start; revision 1 where nil
	unsigned bool           // nothing is signed
	deadline time.Duration  // of one decision; a list has three; both are long where 0
	opa      map[string]any // over the rest of policy.opa
	wait     int            // of a long poll, in seconds; 10 where 0
}

func start(t testing.TB, o options) *rig {
	t.Helper()
	r := &rig{depot: depot.New(), journal: newJournal(), at: map[string]time.Time{}}
	r.depot.Long = o.long
	r.door = newDoor(t, r.depot)
	r.trap = newTrap(t)
	if o.first == nil {
		o.first = func(r *rig) { r.good(t, 1) }
	}
	o.first(r)
	ctx := context.Background()
	w, err := world.Start(ctx, world.Options{
		Log: slog.New(r.journal), Catalogue: catalogue(), Define: define,
		Adjust: func(c *gateway.Config) {
			c.Admin.Listen = "127.0.0.1:0"
			// On a busy machine nothing else is to be late.
			c.Policy.Deadline, c.Policy.ListDeadline = cmp.Or(o.deadline, liveness), cmp.Or(o.deadline*3, liveness)
			c.Policy.OPA = r.config(t, o)
		},
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, r.journal.tail(20))
	}
	r.World = w
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the log ends in:\n%s", r.journal.tail(20))
		}
	})
	return r
}

func (r *rig) config(t testing.TB, o options) map[string]any {
	polling := map[string]any{"min_delay_seconds": 1, "max_delay_seconds": 1}
	if o.long {
		polling["long_polling_timeout_seconds"] = cmp.Or(o.wait, 10)
	}
	keys := map[string]any{}
	for _, name := range []string{"old", "new"} {
		pem, err := r.depot.PublicKey(name)
		if err != nil {
			t.Fatal(err)
		}
		keys[name] = map[string]any{"key": pem, "algorithm": "RS256"}
	}
	c := map[string]any{
		"services": map[string]any{"depot": map[string]any{"url": r.door.url}},
		"keys":     keys,
		"bundles": map[string]any{"main": map[string]any{
			"service": "depot", "resource": "bundles/main", "polling": polling,
			"signing": map[string]any{},
		}},
	}
	if o.unsigned {
		delete(c, "keys")
		delete(c["bundles"].(map[string]any)["main"].(map[string]any), "signing")
	}
	for key, value := range o.opa {
		c[key] = value
	}
	// As YAML would give it.
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// good publishes a good revision.
func (r *rig) good(t testing.TB, revision int) {
	t.Helper()
	p := publication(revision)
	r.mu.Lock()
	r.published = revision
	r.at[name(revision)] = time.Now()
	r.mu.Unlock()
	r.put(t, p)
}

// put publishes anything, which may be what is not to come into force.
func (r *rig) put(t testing.TB, p depot.Publication) {
	t.Helper()
	if err := r.depot.Publish("main", p); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) newest() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.published
}

// inForce waits until a revision is.
func (r *rig) inForce(t testing.TB, revision int) {
	t.Helper()
	eventually(t, "revision "+name(revision)+" in force", func() bool { return r.journal.newest() >= revision })
}

// eventually waits for what must come in the end.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(liveness)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("did not come: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func catalogue() fstest.MapFS {
	var tools []string
	for i := range bits {
		tools = append(tools, tool(i)+": {attributes: [developer], effect: read, data: internal, reach: closed}")
	}
	list := strings.Join(tools, ", ")
	text := "version: 1\nservers:\n  alpha: {tools: {probe: {attributes: [developer], effect: read, data: internal, reach: closed}, " +
		list + "}}\n  beta: {tools: {" + list + "}}\n"
	return fstest.MapFS{"catalogue.yaml": {Data: []byte(text)}}
}

func tool(i int) string { return "t" + string(rune('0'+i)) }

func define(t registry.Tool) []byte {
	return jsontext.Value(`{"name":"` + t.Name + `","inputSchema":{"type":"object"}}`)
}

// door is an address that stays while its server goes down and comes up again.
type door struct {
	url, addr string
	handler   http.Handler
	server    *http.Server
}

func newDoor(t testing.TB, handler http.Handler) *door {
	d := &door{addr: "127.0.0.1:0", handler: handler}
	d.up(t)
	d.url = "http://" + d.addr
	t.Cleanup(d.down)
	return d
}

func (d *door) up(t testing.TB) {
	t.Helper()
	var l net.Listener
	eventually(t, "a listener at "+d.addr, func() bool {
		var err error
		l, err = net.Listen("tcp", d.addr) // somebody else may have the port for a moment
		return err == nil
	})
	d.addr = l.Addr().String()
	d.server = &http.Server{Handler: d.handler, ReadHeaderTimeout: time.Minute}
	go func(s *http.Server) {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			panic(err)
		}
	}(d.server)
}

func (d *door) down() { _ = d.server.Close() }

// trap is a server that nobody may ask.
type trap struct {
	url string

	mu    sync.Mutex
	asked []string
}

func newTrap(t testing.TB) *trap {
	p := &trap{}
	s := httptest.NewServer(p)
	p.url = s.URL
	t.Cleanup(func() {
		s.Close()
		for _, what := range p.asked {
			t.Errorf("somebody asked the trap: %s", what)
		}
	})
	return p
}

func (p *trap) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, r.Method+" "+r.URL.String())
	http.NotFound(w, r)
}
