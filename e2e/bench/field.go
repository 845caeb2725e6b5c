package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway/auth/mint"
	"github.com/regogate/regogate/gateway/policy/decisionlog"
)

// Who calls and lists. Admin sees all tools, developer some.
const (
	allSeeing = "admin"
	caller    = "developer"
)

// field is everything that is measured, running on loopback in this process:
// backends, proxies and gateways, each with a listener of its own.
type field struct {
	tools  *toolset
	ask    question
	dir    string // for logs, removed by close
	signer *mint.Signer
	issuer string

	backends string // base URL; the server NAME is at /NAME/mcp
	whole    string // URL of the one backend with all tools
	ready    string // URL of the same with its list encoded once
	proxies  map[string]string
	gates    []*gate // the first without a decision log, the second with one

	parts *errgroup.Group
	ctx   context.Context
	stop  context.CancelFunc
}

// Names of the proxies, and where they lead.
const (
	toWhole         = "bare proxy, list"
	toWholeVerified = "proxy with JWT, list"
	toOne           = "bare proxy, call"
	toOneVerified   = "proxy with JWT, call"
)

// startField brings everything up. The caller closes the field, also after an
// error of anything else.
func startField(ctx context.Context, tools *toolset) (*field, error) {
	dir, err := os.MkdirTemp("", "regogate-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for logs: %w", err)
	}
	f := &field{tools: tools, dir: dir, proxies: map[string]string{}}
	ctx, f.stop = context.WithCancel(ctx)
	f.parts, f.ctx = errgroup.WithContext(ctx)
	if err := f.start(); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (f *field) start() error {
	var err error
	if f.ask, err = f.tools.question(f.ctx); err != nil {
		return err
	}
	if f.signer, err = mint.Generate("ES256"); err != nil {
		return err
	}
	if err := f.startBackends(); err != nil {
		return err
	}
	verify := verifier(f.signer.Public(), f.signer.Algorithm(), f.issuer, world.Audience)
	one := f.backends + "/" + f.ask.call.server + "/mcp"
	for _, p := range []struct {
		name, url string
		verify    func(string) error
	}{{toWhole, f.whole, nil}, {toWholeVerified, f.whole, verify}, {toOne, one, nil}, {toOneVerified, one, verify}} {
		f.proxies[p.name], err = f.serve(&proxy{target: p.url, client: newClient(), verify: p.verify})
		if err != nil {
			return err
		}
	}
	for _, record := range []bool{false, true} {
		if err := f.startGate(record); err != nil {
			return err
		}
	}
	return nil
}

// startBackends serves the issuer's keys and all servers on one listener, and
// the backends that have all tools on their own.
func (f *field) startBackends() error {
	mux := http.NewServeMux()
	for name, tools := range f.tools.byServer() {
		mux.Handle("/"+name+"/mcp", newBackend(name, tools))
	}
	keys, err := mint.KeySet(f.signer)
	if err != nil {
		return err
	}
	mux.HandleFunc("GET /issuer/jwks", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(keys) // the gateway asks again where it has not got them
	})
	if f.backends, err = f.serve(mux); err != nil {
		return err
	}
	f.issuer = f.backends + "/issuer"
	whole := newBackend("whole", f.tools.definitions)
	ready, err := whole.prebuilt()
	if err != nil {
		return err
	}
	if f.whole, err = f.serve(whole); err != nil {
		return err
	}
	f.ready, err = f.serve(ready)
	return err
}

// serve serves on a port of its own until the field is closed, and returns its
// base URL.
func (f *field) serve(h http.Handler) (string, error) {
	l, err := listen()
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	f.parts.Go(func() error {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	context.AfterFunc(f.ctx, func() { server.Close() })
	return "http://" + l.Addr().String(), nil
}

func listen() (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open a listener: %w", err)
	}
	return l, nil
}

// newClient returns a client that keeps its connections, enough of them for
// every worker.
func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}}
}

func (f *field) token(persona string) (string, error) {
	claims, err := world.Claims(persona)
	if err != nil {
		return "", err
	}
	now := time.Now()
	claims["iss"], claims["aud"] = f.issuer, world.Audience
	claims["iat"], claims["exp"] = now.Unix(), now.Add(24*time.Hour).Unix()
	return f.signer.Sign(claims)
}

// startGate starts a gateway as it is shipped: its own policies and catalogue,
// a log line for every request, and if record is set a decision log.
func (f *field) startGate(record bool) error {
	logs, err := os.CreateTemp(f.dir, "requests-*.log")
	if err != nil {
		return fmt.Errorf("open the gateway's log: %w", err)
	}
	g := &gate{log: slog.New(slog.NewJSONHandler(logs, nil)), records: discard{}, finish: logs.Close}
	f.gates = append(f.gates, g)
	if !record {
		return g.start(f)
	}
	sink, err := decisionlog.OpenFile(filepath.Join(f.dir, "decisions.jsonl"), 100<<20, 1)
	if err != nil {
		return err
	}
	decisions := decisionlog.New(decisionlog.Options{Log: g.log})
	decisions.Attach("file", sink)
	g.records, g.stats = decisions, decisions.Stats
	g.finish = func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return errors.Join(decisions.Close(ctx), sink.Close(), logs.Close())
	}
	return g.start(f)
}

// close ends everything and waits for it.
func (f *field) close() error {
	f.stop()
	err := f.parts.Wait()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	for _, g := range f.gates {
		err = errors.Join(err, g.finish())
	}
	return errors.Join(err, os.RemoveAll(f.dir))
}

// discard is a decision log that nobody wants.
type discard struct{}

func (discard) Record(*decisionlog.Record) bool { return true }
func (discard) Reserve() (func(), bool)         { return func() {}, true }
