package gateway

import (
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/regogate/regogate/gateway/limit"
)

// health is the body of /readyz. It names no server, issuer or address: the
// listener is public.
type health struct {
	Status string            `json:"status"` // ready, degraded, not_ready
	Parts  map[string]string `json:"parts"`
}

// readyz says whether this replica can decide: it has a policy, a registry
// that is fresh and keys of an issuer, and is not draining. It is degraded
// when it can decide, but something is amiss.
func (g *Gateway) readyz(_ http.ResponseWriter, r *http.Request) {
	x, h := exchangeOf(r), g.health()
	x.aside = true
	status := http.StatusOK
	if h.Status == notReady {
		status = http.StatusServiceUnavailable
	}
	body, err := json.Marshal(h, json.Deterministic(true))
	if err != nil {
		x.refuse(faultInternal(err))
		return
	}
	x.answer.json(status, body)
}

const (
	ready    = "ready"
	degraded = "degraded"
	notReady = "not_ready"
)

func (g *Gateway) health() health {
	h := health{Status: ready, Parts: map[string]string{
		"policy": g.policyHealth(), "registry": g.registryHealth(), "keys": g.keysHealth(), "backends": g.backendsHealth(),
	}}
	if g.shared != nil {
		h.Parts["sessions"] = ready
		if len(g.shared.Problems()) > 0 {
			// Whoever has a session goes on for a while; the modern era has none.
			h.Parts["sessions"] = degraded
		}
	}
	switch s := g.limits.Status(); {
	case s.Problem != "":
		h.Parts["limits"] = degraded // this replica counts by itself
	case s.Where == limit.Redis:
		h.Parts["limits"] = ready
	}
	select {
	case <-g.draining:
		h.Parts["listener"] = "draining"
		h.Status = notReady
	default:
	}
	for _, part := range h.Parts {
		switch part {
		case notReady:
			h.Status = notReady
		case degraded:
			if h.Status == ready {
				h.Status = degraded
			}
		}
	}
	return h
}

func (g *Gateway) policyHealth() string {
	switch {
	case g.engine.Current() == nil:
		return notReady
	case len(g.engine.Status().Problems) > 0:
		return degraded
	}
	return ready
}

func (g *Gateway) registryHealth() string {
	switch {
	case g.catalog.Load() == nil || !g.keeper.Fresh(time.Now()):
		return notReady
	case len(g.keeper.Status().Problems) > 0:
		return degraded
	}
	return ready
}

// keysHealth is not ready only when no issuer's tokens can be verified.
func (g *Gateway) keysHealth() string {
	usable, all := 0, g.verifier.Status()
	for _, s := range all {
		if s.Usable {
			usable++
		}
	}
	switch {
	case usable == 0 && g.verifier.Anonymous() == nil:
		return notReady
	case usable < len(all):
		return degraded
	}
	return ready
}

// backendsHealth is never worse than degraded: a gateway whose backends are
// all down still decides, and says so for each call.
func (g *Gateway) backendsHealth() string {
	c := g.catalog.Load()
	if c == nil {
		return degraded
	}
	for _, s := range c.all.sites {
		if !s.state.Up {
			return degraded
		}
	}
	return ready
}
