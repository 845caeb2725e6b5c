// Package world is a small whole world on loopback: an issuer of tokens, MCP
// servers that offer a catalogue's tools and write down every call that
// reaches them, and a gateway in front. The demonstration, the benchmarks and
// the tests use it.
package world

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/auth"
	"github.com/regogate/regogate/gateway/auth/mint"
	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/policy/decisionlog"
	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/policies"
	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/catalogue"
)

// Issuer and Audience are what the world's tokens say.
const (
	Issuer   = "regogate-demo"
	Audience = "regogate-demo"
)

// Options is what can be chosen about a world. The zero value is the demo's.
type Options struct {
	Listen    string                     // of the gateway; 127.0.0.1:0 where empty
	Log       *slog.Logger               // of the gateway; discarded where nil
	Level     *slog.LevelVar             // of Log, for operators to change; nil where it stays
	Catalogue fs.FS                      // the shipped one where nil
	Policies  fs.FS                      // the shipped ones where nil
	Adjust    func(*gateway.Config)      // last changes of the configuration
	Define    func(registry.Tool) []byte // definition that a server gives of a tool; Definition where nil
	Servers   []*Server                  // further servers, which the catalogue need not know
	// Record makes a recorder of the gateway's, in place of none: World.Records has
	// all that it gets.
	Record func(*gateway.Config) decisionlog.Recorder
	Key    string // PEM file of the issuer's ES256 key, made where it is missing; a new key where empty
}

// World is running until the context that Start got ends.
type World struct {
	URL     string // of the gateway, without a path
	Tools   []registry.Tool
	Servers map[string]*Server
	Records *Records
	Config  gateway.Config
	// StopGateway makes the gateway alone stop; Close waits for it.
	StopGateway context.CancelFunc

	signer *mint.Signer
	parts  *errgroup.Group
	stop   context.CancelFunc
}

// Start brings a world up and returns when the gateway knows the tools of all
// servers. Close ends it.
func Start(ctx context.Context, o Options) (*World, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Catalogue == nil {
		o.Catalogue = catalogue.FS
	}
	if o.Policies == nil {
		o.Policies = policies.FS
	}
	if o.Define == nil {
		o.Define = Definition
	}
	ctx, stop := context.WithCancel(ctx)
	w := &World{Servers: map[string]*Server{}, Records: &Records{}, stop: stop}
	w.parts, ctx = errgroup.WithContext(ctx)
	if err := w.start(ctx, o); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func (w *World) start(ctx context.Context, o Options) error {
	var err error
	if w.signer, err = signer(o.Key); err != nil {
		return err
	}
	if err := w.readTools(o); err != nil {
		return err
	}
	backends, err := w.serveBackends(ctx)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", first(o.Listen, "127.0.0.1:0"))
	if err != nil {
		return fmt.Errorf("open the gateway's listener: %w", err)
	}
	w.URL = "http://" + listener.Addr().String()
	w.Config = w.configure(backends, listener.Addr().String())
	if o.Adjust != nil {
		o.Adjust(&w.Config)
	}
	if o.Record != nil {
		w.Records.log = o.Record(&w.Config)
	}
	g, err := gateway.New(ctx, w.Config, gateway.Options{
		Version: "demo", Log: o.Log, Level: o.Level, Policies: o.Policies, Catalogue: o.Catalogue, Records: w.Records,
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	running, stop := context.WithCancel(ctx)
	w.StopGateway = stop
	w.parts.Go(func() error { return g.Run(running, listener) })
	return w.waitReady(ctx)
}

func (w *World) readTools(o Options) error {
	var err error
	if w.Tools, err = Tools(o.Catalogue, o.Log); err != nil {
		return err
	}
	for _, t := range w.Tools {
		s := w.Servers[t.Server]
		if s == nil {
			s = &Server{Name: t.Server}
			w.Servers[t.Server] = s
		}
		s.Tools = append(s.Tools, o.Define(t))
	}
	for _, s := range o.Servers {
		w.Servers[s.Name] = s
	}
	return nil
}

// Tools returns the tools of a catalogue.
func Tools(from fs.FS, log *slog.Logger) ([]registry.Tool, error) {
	source, err := registry.OpenFS(from, "catalogue", log)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	c, err := source.Load(context.Background(), registry.Head{})
	if err != nil {
		return nil, err
	}
	return c.Tools, nil
}

// serveBackends serves the issuer's keys and all servers on one listener, each
// on its own path, and returns its URL.
func (w *World) serveBackends(ctx context.Context) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("open the backends' listener: %w", err)
	}
	base := "http://" + l.Addr().String()
	keys, err := mint.KeySet(w.signer)
	if err != nil {
		return "", err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /issuer/jwks", func(rw http.ResponseWriter, _ *http.Request) { write(rw, http.StatusOK, keys) })
	for name, s := range w.Servers {
		mux.Handle("/"+name+"/mcp", s)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	w.parts.Go(func() error {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	context.AfterFunc(ctx, func() { server.Close() })
	return base, nil
}

func (w *World) configure(backends, listen string) gateway.Config {
	c := gateway.Config{Listen: listen, PublicURL: w.URL, Servers: map[string]gateway.Server{}}
	c.Auth.Issuers = []auth.Issuer{{
		Issuer: Issuer, Audience: []string{Audience}, Algorithms: []string{"ES256"}, JWKSURL: backends + "/issuer/jwks",
	}}
	for name := range w.Servers {
		c.Servers[name] = gateway.Server{Config: upstream.Config{URL: backends + "/" + name + "/mcp"}}
	}
	c.Defaults()
	return c
}

// waitReady waits until the gateway has a policy and keys and knows the tools
// of every server; it learns them in the background.
func (w *World) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		status, err := w.status(ctx)
		if status == "ready" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the gateway did not become ready: %w", errors.Join(ctx.Err(), err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// status is what the gateway's readiness says in one word.
func (w *World) status(ctx context.Context) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.URL+"/readyz", nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return "", err
	}
	members, err := mcp.Members(body)
	if err != nil {
		return "", err
	}
	status, _ := mcp.Text(mcp.Get(members, "status"))
	return status, nil
}

// Token mints a token for one of the Personas, good for the given time.
func (w *World) Token(persona string, valid time.Duration) (string, error) {
	claims, err := Claims(persona)
	if err != nil {
		return "", err
	}
	return w.Mint(claims, valid)
}

// Mint signs a token with these claims, good for the given time; it adds those
// that every token needs.
func (w *World) Mint(claims map[string]any, valid time.Duration) (string, error) {
	now := time.Now()
	claims["iss"], claims["aud"] = Issuer, Audience
	claims["iat"], claims["exp"] = now.Unix(), now.Add(valid).Unix()
	return w.signer.Sign(claims)
}

// Client returns a client of the aggregate route with a token of the persona.
func (w *World) Client(persona string) (*Client, error) {
	token, err := w.Token(persona, time.Hour)
	if err != nil {
		return nil, err
	}
	return &Client{URL: w.URL + "/mcp", Token: token}, nil
}

// Close ends everything and waits for it.
func (w *World) Close() error {
	w.stop()
	if err := w.parts.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Records is a recorder that keeps decision records in memory.
type Records struct {
	log  decisionlog.Recorder // gets them, too; may be nil
	mu   sync.Mutex
	list []*decisionlog.Record
}

// Record keeps r.
func (r *Records) Record(record *decisionlog.Record) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, record)
	return r.log == nil || r.log.Record(record)
}

// Reserve implements decisionlog.Recorder: nothing is ever lost here.
func (r *Records) Reserve() (release func(), ok bool) {
	if r.log != nil {
		return r.log.Reserve()
	}
	return func() {}, true
}

// Attach hands on what a recorder with sinks is to know.
func (r *Records) Attach(name string, w io.Writer) {
	if log, ok := r.log.(interface{ Attach(string, io.Writer) }); ok {
		log.Attach(name, w)
	}
}

// Flush does so, too.
func (r *Records) Flush(ctx context.Context) error {
	if log, ok := r.log.(interface{ Flush(context.Context) error }); ok {
		return log.Flush(ctx)
	}
	return nil
}

// All returns the records so far, oldest first.
func (r *Records) All() []*decisionlog.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// Forget drops what was recorded.
func (r *Records) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = nil
}

func signer(file string) (*mint.Signer, error) {
	if file == "" {
		return mint.Generate("ES256")
	}
	return mint.Open(file, "ES256")
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
