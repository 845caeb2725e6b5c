package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/regogate/regogate/gateway/limit"
	"github.com/regogate/regogate/gateway/policy"
	"github.com/regogate/regogate/gateway/policy/decisionlog"
)

// Admin is a listener for operators, apart from the one for clients. It has no
// authentication: whoever reaches it reads it.
type Admin struct {
	Listen string `yaml:"listen"` // host:port; none where empty
}

// serveAdmin serves /status and /metrics until ctx is done.
func (g *Gateway) serveAdmin(ctx context.Context) error {
	if g.config.Admin.Listen == "" {
		return nil
	}
	listener, err := net.Listen("tcp", g.config.Admin.Listen)
	if err != nil {
		return fmt.Errorf("admin.listen: %w: choose another address, or end what uses this one", err)
	}
	metrics := prometheus.NewRegistry()
	if err := metrics.Register(collector{g}); err != nil {
		return errors.Join(fmt.Errorf("register the metrics: %w", err), listener.Close())
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /status", g.adminStatus)
	server := &http.Server{Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second}
	g.log.Info("serving operators", "address", listener.Addr().String())
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err = <-served:
		return fmt.Errorf("serve operators: %w", err)
	case <-ctx.Done():
		_ = server.Close()
		<-served
		return nil
	}
}

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
	body, err := json.Marshal(s, json.Deterministic(true))
	if err != nil {
		g.log.Error("cannot encode the status", keyError, err)
		http.Error(w, "cannot encode the status", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
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
