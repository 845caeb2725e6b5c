package gateway

import (
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/regogate/regogate/gateway/limit"
	"github.com/regogate/regogate/gateway/policy"
	"github.com/regogate/regogate/gateway/policy/decisionlog"
)

// status is the body of /status.
type status struct {
	health
	Policy       policyStatus       `json:"policy"`
	Revision     string             `json:"registry_revision"` // that decisions rest on
	Registry     registryStatus     `json:"registry"`
	Limits       limit.Status       `json:"rate_limits"`
	DecisionLog  *decisionlog.Stats `json:"decision_log,omitzero"`
	DecisionTime time.Time          `json:"time"`
}

type policyStatus struct {
	Revision string            `json:"revision"`
	Since    time.Time         `json:"since,omitzero"`
	Bundles  []bundleStatus    `json:"bundles,omitempty"`
	Problems []string          `json:"problems,omitempty"`
	Warnings []string          `json:"warnings,omitempty"`
	Cache    policy.CacheStats `json:"decision_cache"`
}

type bundleStatus struct {
	Name     string    `json:"name"`
	Revision string    `json:"revision"`
	Since    time.Time `json:"since,omitzero"`
	Problem  string    `json:"problem,omitempty"`
	FromDisk bool      `json:"from_disk"`
}

func (g *Gateway) adminStatus(w http.ResponseWriter, _ *http.Request) {
	now := g.engine.Status()
	s := status{health: g.health(), Registry: g.registryStatus(), Limits: g.limits.Status(), DecisionTime: time.Now().UTC()}
	s.Policy = policyStatus{
		Revision: now.Revision, Since: now.Since, Cache: g.engine.Cache(),
		Problems: texts(now.Problems), Warnings: texts(now.Warnings),
	}
	for _, b := range now.Bundles {
		s.Policy.Bundles = append(s.Policy.Bundles, bundleStatus(b))
	}
	if c := g.catalog.Load(); c != nil {
		s.Revision = c.registry
	}
	if stats, ok := g.decisionStats(); ok {
		s.DecisionLog = &stats
	}
	g.adminJSON(w, http.StatusOK, s)
}

func (g *Gateway) adminJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		g.log.Error("cannot encode an answer to operators", keyError, err)
		http.Error(w, "cannot encode the answer", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", typeJSON)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// readiness is the body of the operators' /readyz.
type readiness struct {
	Status string          `json:"status"`
	Parts  map[string]part `json:"parts"`
}

// part is what a part of the gateway rests on, and what is wrong with it.
type part struct {
	Status   string   `json:"status"`
	Revision string   `json:"revision,omitempty"` // in force
	Problems []string `json:"problems,omitempty"`
}

// adminReady is readyz with the details that are nobody else's business.
func (g *Gateway) adminReady(w http.ResponseWriter, _ *http.Request) {
	h := g.health()
	body := readiness{h.Status, make(map[string]part, len(h.Parts))}
	for name, status := range h.Parts {
		p := g.part(name)
		p.Status = status
		body.Parts[name] = p
	}
	status := http.StatusOK
	if h.Status == notReady {
		status = http.StatusServiceUnavailable
	}
	g.adminJSON(w, status, body)
}

func (g *Gateway) part(name string) (p part) {
	switch name {
	case "policy":
		now := g.engine.Status()
		p.Revision, p.Problems = now.Revision, texts(now.Problems)
	case "registry":
		now := g.keeper.Status()
		p.Revision, p.Problems = now.Revision, now.Problems
	case "keys":
		for _, s := range g.verifier.Status() {
			if s.Problem != "" {
				p.Problems = append(p.Problems, s.Issuer+": "+s.Problem)
			}
		}
	case "backends":
		for _, s := range g.pool.Current().Servers {
			if s.Problem != "" {
				p.Problems = append(p.Problems, s.Name+": "+s.Problem)
			}
		}
	case "sessions":
		p.Problems = g.shared.Problems()
	case "limits":
		if why := g.limits.Status().Problem; why != "" {
			p.Problems = []string{why}
		}
	}
	return p
}

func texts(problems policy.Problems) []string {
	list := make([]string, len(problems))
	for i, p := range problems {
		list[i] = p.String()
	}
	return list
}

// decisionStats is nothing for a recorder that keeps no count.
func (g *Gateway) decisionStats() (decisionlog.Stats, bool) {
	log, ok := g.records.(interface{ Stats() decisionlog.Stats })
	if !ok {
		return decisionlog.Stats{}, false
	}
	return log.Stats(), true
}
