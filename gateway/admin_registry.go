package gateway

import (
	"time"

	"github.com/regogate/regogate/registry"
)

// registryStatus is what /status says of the registry.
type registryStatus struct {
	Revision    string               `json:"revision"`
	Digest      string               `json:"digest"`
	Confirmed   time.Time            `json:"confirmed,omitzero"` // when its source last said that this is current
	Stale       bool                 `json:"stale"`              // that was longer ago than max_staleness
	Serving     bool                 `json:"serving"`            // decisions rest on it
	Tools       int                  `json:"tools"`
	Suggested   int                  `json:"suggested"`
	Quarantined int                  `json:"quarantined"`
	Problems    []string             `json:"problems,omitempty"`
	Cache       *registry.CacheStats `json:"cache,omitzero"` // nil without a Redis
}

func (g *Gateway) registryStatus() registryStatus {
	now := g.keeper.Status()
	s := registryStatus{
		Revision: now.Revision, Digest: now.Digest, Stale: now.Stale, Serving: now.Ready,
		Tools: now.Tools, Suggested: now.Suggested, Problems: now.Problems,
	}
	if snap := g.keeper.Current(); snap != nil {
		s.Confirmed, s.Quarantined = time.Now().Add(-now.Age).UTC().Truncate(time.Millisecond), len(snap.Quarantine())
	}
	if stats, ok := g.keeper.Cache(); ok {
		s.Cache = &stats
	}
	return s
}

// send makes the registry's metrics, a fixed number of them. What was never
// confirmed has no age.
func (s registryStatus) send(gauge func(name, help string, value float64, labels ...string), counter func(name, help string, value int64, labels ...string)) {
	if !s.Confirmed.IsZero() {
		gauge("registry_info", "The catalogue in force, as labels; 1.", 1, "revision", s.Revision, "digest", s.Digest)
		gauge("registry_age_seconds", "Since the registry's source last said what is current.", max(0, time.Since(s.Confirmed).Seconds()))
	}
	gauge("registry_stale", "Whether that is longer ago than max_staleness.", flag(s.Stale))
	gauge("registry_serving", "Whether decisions rest on the registry; everything is denied otherwise.", flag(s.Serving))
	gauge("registry_problems", "What is wrong with the registry, its source and its cache.", float64(len(s.Problems)))
	gauge("registry_tools", "Registered tools.", float64(s.Tools))
	gauge("registry_suggested", "Tools whose attributes nobody confirmed.", float64(s.Suggested))
	gauge("registry_quarantined", "Tools and servers in quarantine.", float64(s.Quarantined))
	if s.Cache == nil {
		return
	}
	counter("registry_cache_hits_total", "Catalogues that came from Redis.", s.Cache.Hits)
	counter("registry_cache_misses_total", "Catalogues that Redis did not have, or not whole.", s.Cache.Misses)
	counter("registry_cache_failures_total", "Uses of Redis that had no answer, or an error.", s.Cache.Failures)
	counter("registry_cache_rejected_total", "Values in Redis that no replica would have written.", s.Cache.Rejected)
}
