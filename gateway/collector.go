package gateway

import (
	"context"
	"log/slog"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// collector reads the metrics when somebody asks for them.
type collector struct{ g *Gateway }

// Describe implements prometheus.Collector. It names nothing, so that there may be
// other metrics later: bundles and sinks become known while the gateway runs.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	counter := func(name, help string, value int64, labels ...string) {
		c.send(ch, prometheus.CounterValue, name, help, float64(value), labels)
	}
	gauge := func(name, help string, value float64, labels ...string) {
		c.send(ch, prometheus.GaugeValue, name, help, value, labels)
	}
	gauge("build_info", "What runs, as labels; 1.", 1, "version", c.g.version, "goversion", runtime.Version())
	now, cache := c.g.engine.Status(), c.g.engine.Cache()
	gauge("policy_info", "The policy in force, as the label revision; 1.", 1, "revision", now.Revision)
	gauge("policy_problems", "What keeps the newest policy from being used.", float64(len(now.Problems)))
	for _, b := range now.Bundles {
		gauge("bundle_info", "The active revision of a bundle, as a label; 1.", 1, "bundle", b.Name, "revision", b.Revision)
		gauge("bundle_problem", "Whether the newest of a bundle is not in force.", flag(b.Problem != ""), "bundle", b.Name)
		gauge("bundle_activated_timestamp_seconds", "When the active revision of a bundle came into force; 0 for none.", seconds(b.Since), "bundle", b.Name)
	}
	gauge("decision_cache_enabled", "Whether answers of the policy are kept.", flag(cache.State == "on"))
	counter("decision_cache_hits_total", "Questions that were answered without the policy; a list is one.", cache.Hits)
	counter("decision_cache_misses_total", "Questions that the policy was asked; a list is one.", cache.Misses)
	counter("decision_cache_evictions_total", "Kept answers that made room.", cache.Evictions)
	counter("decision_cache_differences_total", "Kept answers that were asked for again and had changed.", cache.Differences)
	gauge("decision_cache_entries", "Kept answers on a kind of thing.", float64(cache.Entries))
	gauge("decision_cache_lists", "Kept lists.", float64(cache.Lists))
	c.g.registryStatus().send(gauge, counter)
	limits := c.g.limits.Status()
	counter("rate_limited_total", "Requests that were refused because there were too many, by what there were too many of.", limits.Principals, "limit", "principal")
	counter("rate_limited_total", "Requests that were refused because there were too many, by what there were too many of.", limits.Tools, "limit", "tool")
	gauge("rate_limit_redis_problem", "Whether this replica counts by itself because the Redis of limits cannot be used.", flag(limits.Problem != ""))
	c.collectLive(gauge, counter)
	stats, ok := c.g.decisionStats()
	if !ok {
		return
	}
	counter("decision_log_dropped_total", "Decision records that found no room before they were encoded.", stats.Dropped)
	counter("decision_log_mask_errors_total", "Events that could not be masked as the policy says.", stats.MaskErrors)
	for _, s := range stats.Sinks {
		counter("decision_log_sink_written_total", "Events that a sink took.", s.Written, "sink", s.Name)
		counter("decision_log_sink_dropped_total", "Events that a sink lost.", s.Dropped, "sink", s.Name)
		counter("decision_log_sink_failures_total", "Writes to a sink that failed and were tried again.", s.Failed, "sink", s.Name)
		gauge("decision_log_sink_waiting", "Events that wait for a sink.", float64(s.Waiting), "sink", s.Name)
	}
}

// collectLive sends how the parts fare that change by the second.
func (c collector) collectLive(gauge func(name, help string, value float64, labels ...string), counter func(name, help string, value int64, labels ...string)) {
	h := c.g.health()
	gauge("ready", "Whether this replica can decide and takes requests.", flag(h.Status != notReady))
	for name, status := range h.Parts {
		gauge("part_ready", "Whether a part of the gateway is as it should be.", flag(status == ready), "part", name)
	}
	for _, s := range c.g.verifier.Status() {
		gauge("issuer_usable", "Whether tokens of an issuer can be verified.", flag(s.Usable), "issuer", s.Issuer)
		gauge("issuer_keys", "Usable keys of an issuer.", float64(s.Keys), "issuer", s.Issuer)
		gauge("issuer_keys_skipped", "Keys of an issuer that cannot be used.", float64(s.Skipped), "issuer", s.Issuer)
		gauge("issuer_keys_read_timestamp_seconds", "When the keys of an issuer were last read; 0 for never.", seconds(s.Read), "issuer", s.Issuer)
	}
	for _, s := range c.g.pool.Current().Servers {
		gauge("upstream_up", "Whether the last attempt to reach a server and read its tools worked.", flag(s.Up), "server", s.Name)
		gauge("upstream_problem", "Whether something is wrong with a server or its lists.", flag(s.Problem != ""), "server", s.Name)
		gauge("upstream_listed_timestamp_seconds", "When the tools of a server were last read; 0 for never.", seconds(s.Listed), "server", s.Name)
	}
	for _, l := range c.g.pool.Loads() {
		gauge("upstream_breaker_open", "Whether a server is sent nothing for a while, as it could not be reached.", flag(l.Resting), "server", l.Server)
		gauge("upstream_requests_in_flight", "Requests to a server under way.", float64(l.InFlight), "server", l.Server)
	}
	if now := c.g.catalog.Load(); now != nil {
		for list := range listings {
			gauge("catalog_items", "Items of a list that there are for somebody to see.", float64(len(now.all.lists[list].offers)), "list", lists[list].member)
		}
	}
	gauge("sessions", "Sessions of clients up to revision 2025-11-25 that this replica knows.", float64(c.g.sessions.Known()))
	held := c.g.hub.Stats()
	gauge("streams_held", "Streams that can be resumed or written to.", float64(held.Streams))
	gauge("streams_held_bytes", "What is held of them for clients that come back.", float64(held.Held))
	counter("stream_events_lost_total", "Events that were dropped before a client got them.", int64(held.Lost))
}

// send makes one metric; labels are names and values in turn.
func (c collector) send(ch chan<- prometheus.Metric, kind prometheus.ValueType, name, help string, value float64, labels []string) {
	var names, values []string
	for i := 0; i < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	m, err := prometheus.NewConstMetric(prometheus.NewDesc("regogate_"+name, help, names, nil), kind, value, values...)
	if err != nil {
		c.g.log.LogAttrs(context.Background(), slog.LevelError, "cannot make a metric", slog.String(keyName, name), slog.Any(keyError, err))
		return
	}
	ch <- m
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
