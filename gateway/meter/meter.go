// Package meter counts and times what goes through the gateway, for Prometheus.
// Nothing that a client, a server or a policy can make up at will becomes a
// label: methods, outcomes and statuses are of closed sets, servers those that
// are configured, and of the reasons of policies only so many.
package meter

import (
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/regogate/regogate/gateway/mcp"
)

// Stage is a part of the way of a request.
type Stage uint8

// The stages, in their order.
const (
	Auth Stage = iota
	Registry
	Policy
	Upstream
	Stages // how many there are
)

var stageNames = [Stages]string{"auth", "registry", "policy", "upstream"}

// Gate is what the policy was asked.
type Gate uint8

// The gates. List is Allow for each item of a list, which counts as one question.
const (
	Allow Gate = iota
	Call
	List
	gates
)

var gateNames = [gates]string{"allow", "call", "list"}

// MaxReasons is how many different reasons are told apart; later ones are other.
const MaxReasons = 100

// other is the label of what is not in a closed set, none of what is not there.
const (
	other = "other"
	none  = "none"
)

// buckets are upper bounds in seconds: from an answer that was kept to a call
// that people wait for. The default deadlines of policies, 0.25 and 3, are among
// them or near.
var buckets = []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// sizes are upper bounds of lengths of lists.
var sizes = []float64{0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000}

// Meter is all of it, and a prometheus.Collector. Its methods may be called
// concurrently; each costs well under a microsecond and none blocks, save the
// first of a kind.
type Meter struct {
	InFlight prometheus.Gauge // requests under way, open streams included
	Streams  prometheus.Gauge // of these, that last until the client leaves

	methods, outcomes, verdicts, answers, lists set

	requests  cells[prometheus.Counter]  // by method, era and outcome
	responses cells[prometheus.Counter]  // by status
	took      cells[prometheus.Observer] // by method
	decisions cells[prometheus.Counter]  // by gate and verdict
	stages    [Stages]prometheus.Observer
	visible   []prometheus.Observer // by list
	reasons   reasons
	backends  backends

	all []prometheus.Collector
}

// Sets are the closed sets of names that become labels.
type Sets struct {
	Methods  []string // of messages
	Outcomes []string // of requests
	Verdicts []string // of decisions
	Answers  []string // of servers
	Lists    []string
}

// eras is how many labels the era has, one of them for neither.
const eras = 3

var eraNames = [eras]string{0: none, mcp.Legacy: "legacy", mcp.Modern: "modern"}

// New returns a meter that has counted nothing.
func New(s Sets) *Meter {
	m := &Meter{
		methods: newSet(append(slices.Clone(s.Methods), none)), outcomes: newSet(s.Outcomes),
		verdicts: newSet(s.Verdicts), answers: newSet(s.Answers), lists: newSet(s.Lists),
	}
	requests := m.counters("requests_total", "Requests that have ended, by the method of their message; none where there was none to read.", "method", "era", "outcome")
	m.requests = newCells(len(m.methods.names)*eras*len(m.outcomes.names), func(i int) prometheus.Counter {
		rest, outcome := i/len(m.outcomes.names), i%len(m.outcomes.names)
		return requests.WithLabelValues(m.methods.names[rest/eras], eraNames[rest%eras], m.outcomes.names[outcome])
	})
	responses := m.counters("http_responses_total", "Answers by their HTTP status; none where the client got none.", "status")
	m.responses = newCells(maxStatus, func(i int) prometheus.Counter {
		if i == 0 {
			return responses.WithLabelValues(none)
		}
		return responses.WithLabelValues(strconv.Itoa(i))
	})
	took := m.histograms("request_duration_seconds", "How long requests took as a whole, without streams that stay open.", buckets, "method")
	m.took = newCells(len(m.methods.names), func(i int) prometheus.Observer { return took.WithLabelValues(m.methods.names[i]) })
	decisions := m.counters("decisions_total", "Questions to the policy by gate and outcome; a list is one.", "gate", "outcome")
	m.decisions = newCells(int(gates)*len(m.verdicts.names), func(i int) prometheus.Counter {
		return decisions.WithLabelValues(gateNames[i/len(m.verdicts.names)], m.verdicts.names[i%len(m.verdicts.names)])
	})
	for i := range m.decisions.found {
		m.decisions.at(i) // so that the first of a rare kind is a change
	}
	stages := m.histograms("stage_duration_seconds", "How long requests spent in a stage that they reached.", buckets, "stage")
	for s, name := range stageNames {
		m.stages[s] = stages.WithLabelValues(name)
	}
	visible := m.histograms("visible_items", "How many items of a list the one who asked for it may see.", sizes, "list")
	for _, name := range m.lists.names {
		m.visible = append(m.visible, visible.WithLabelValues(name))
	}
	m.InFlight = m.gauge("requests_in_flight", "Requests under way, open streams included.")
	m.Streams = m.gauge("streams_open", "Open streams that last until the client leaves.")
	m.reasons = reasons{
		counts: m.counters("decision_reasons_total", "Reasons that the policy gave for refusals; a refusal may have several.", "gate", "reason"),
		known:  map[string]bool{},
	}
	m.backends = backends{
		counts: m.counters("upstream_requests_total", "Requests to a server by outcome; error is an answer that is a JSON-RPC error.", "server", "outcome"),
		took:   m.histograms("upstream_duration_seconds", "How long a server took for requests, waiting for a place included.", buckets, "server"),
	}
	return m
}

const namespace = "regogate"

func (m *Meter) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return keep(m, prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels))
}

func (m *Meter) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return keep(m, prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels))
}

func (m *Meter) gauge(name, help string) prometheus.Gauge {
	return keep(m, prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}))
}

func keep[C prometheus.Collector](m *Meter, c C) C {
	m.all = append(m.all, c)
	return c
}

// Describe implements prometheus.Collector.
func (m *Meter) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *Meter) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all {
		c.Collect(ch)
	}
}

// Request is one that has ended.
type Request struct {
	Method  string  // of its message; "" without
	Era     mcp.Era // zero for neither
	Outcome string
	Status  int                   // HTTP; 0 for no answer
	Took    time.Duration         // 0 for what says nothing, such as a stream
	Stages  [Stages]time.Duration // 0 for one that was not reached
}

// Request counts it.
func (m *Meter) Request(r Request) {
	method := none
	if r.Method != "" {
		method = r.Method
	}
	i := m.methods.index(method)
	m.requests.at((i*eras+int(r.Era)%eras)*len(m.outcomes.names) + m.outcomes.index(r.Outcome)).Inc()
	m.responses.at(max(0, min(r.Status, maxStatus-1))).Inc()
	if r.Took > 0 {
		m.took.at(i).Observe(r.Took.Seconds())
	}
	for s, d := range r.Stages {
		if d > 0 {
			m.stages[s].Observe(d.Seconds())
		}
	}
}

// maxStatus is above every HTTP status.
const maxStatus = 600

// Decision counts a question to the policy, and the reasons of a refusal: codes,
// as the policy package gives them.
func (m *Meter) Decision(g Gate, verdict string, reasons []string) {
	m.decisions.at(int(g)*len(m.verdicts.names) + m.verdicts.index(verdict)).Inc()
	for _, r := range reasons {
		m.reasons.count(g, r)
	}
}

// Visible notes how many items of a list a principal may see.
func (m *Meter) Visible(list string, items int) {
	m.visible[m.lists.index(list)].Observe(float64(items))
}

// Upstream counts a request to a server, which must be a configured one.
func (m *Meter) Upstream(server, answer string, took time.Duration) {
	m.backends.of(server, m.answers.names).note(m.answers.index(answer), took)
}

// set is a closed set of names; the last is for all that are not in it.
type set struct {
	names []string
	at    map[string]int
}

func newSet(names []string) set {
	s := set{append(slices.Clone(names), other), make(map[string]int, len(names))}
	for i, name := range s.names {
		s.at[name] = i
	}
	return s
}

func (s *set) index(name string) int {
	if i, ok := s.at[name]; ok {
		return i
	}
	return len(s.names) - 1
}

// cells are metrics of one vector, each looked up by its labels once.
type cells[M any] struct {
	find  func(i int) M
	found []atomic.Pointer[M]
}

func newCells[M any](n int, find func(i int) M) cells[M] {
	return cells[M]{find, make([]atomic.Pointer[M], n)}
}

func (c *cells[M]) at(i int) M {
	if m := c.found[i].Load(); m != nil {
		return *m
	}
	m := c.find(i) // the same for everybody
	c.found[i].Store(&m)
	return m
}

// reasons counts the reasons of refusals.
type reasons struct {
	counts *prometheus.CounterVec
	mu     sync.Mutex
	known  map[string]bool
}

func (r *reasons) count(g Gate, reason string) {
	r.counts.WithLabelValues(gateNames[g], r.label(reason)).Inc()
}

func (r *reasons) label(reason string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.known[reason] && len(r.known) >= MaxReasons {
		return other
	}
	r.known[reason] = true
	return reason
}

// backends are the servers that were asked something.
type backends struct {
	counts *prometheus.CounterVec
	took   *prometheus.HistogramVec
	known  sync.Map // *backend by name
}

type backend struct {
	counts cells[prometheus.Counter] // by answer
	took   prometheus.Observer
}

func (b *backends) of(name string, answers []string) *backend {
	if known, ok := b.known.Load(name); ok {
		return known.(*backend)
	}
	known, _ := b.known.LoadOrStore(name, &backend{
		newCells(len(answers), func(i int) prometheus.Counter { return b.counts.WithLabelValues(name, answers[i]) }),
		b.took.WithLabelValues(name),
	})
	return known.(*backend)
}

func (b *backend) note(answer int, took time.Duration) {
	b.counts.at(answer).Inc()
	b.took.Observe(took.Seconds())
}
