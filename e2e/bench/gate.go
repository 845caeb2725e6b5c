package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/auth"
	"github.com/regogate/regogate/gateway/policy/decisionlog"
	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/policies"
	"github.com/regogate/regogate/registry/catalogue"
)

// gate is one running gateway.
type gate struct {
	url     string
	log     *slog.Logger
	records decisionlog.Recorder
	stats   func() decisionlog.Stats // nil without a decision log
	finish  func() error             // closes the logs when nobody writes to them any more
}

// start runs the gateway until the field is closed, and returns when it knows
// the tools of all servers.
func (g *gate) start(f *field) error {
	l, err := listen()
	if err != nil {
		return err
	}
	c := gateway.Config{Listen: l.Addr().String(), Servers: map[string]gateway.Server{}}
	c.Auth.Issuers = []auth.Issuer{{
		Issuer: f.issuer, Audience: []string{world.Audience}, Algorithms: []string{f.signer.Algorithm()}, JWKSURL: f.issuer + "/jwks",
	}}
	for name := range f.tools.byServer() {
		c.Servers[name] = gateway.Server{Config: upstream.Config{URL: f.backends + "/" + name + "/mcp"}}
	}
	c.Defaults()
	running, err := gateway.New(f.ctx, c, gateway.Options{
		Version: "bench", Log: g.log, Policies: policies.FS, Catalogue: catalogue.FS, Records: g.records,
	})
	if err != nil {
		l.Close()
		return err
	}
	g.url = "http://" + l.Addr().String()
	f.parts.Go(func() error { return running.Run(f.ctx, l) })
	return g.waitReady(f.ctx)
}

func (g *gate) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	said := "nothing"
	for {
		if body, err := get(ctx, g.url+"/readyz"); err == nil {
			if said = body; strings.Contains(body, `"status":"ready"`) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the gateway did not become ready, last it said %s: %w", said, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func get(ctx context.Context, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	return string(body), err
}
