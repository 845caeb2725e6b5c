package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/world"
)

// absence compares how long names take that are refused alike: hidden by the
// policy, not registered, not offered, of no server.
type absence struct {
	Rows []absent `json:"rows"`
}

// absent is one name.
type absent struct {
	Kind   string        `json:"kind"` // tool, prompt or resource
	Name   string        `json:"name"`
	What   string        `json:"what"`
	P5     time.Duration `json:"p5_ns"`
	P25    time.Duration `json:"p25_ns"`
	Median time.Duration `json:"median_ns"`
	P75    time.Duration `json:"p75_ns"`
	P95    time.Duration `json:"p95_ns"`
	// Apart is how far the distribution lies from that of the name that nobody
	// offers: the largest distance of the two (Kolmogorov-Smirnov), 0 to 1.
	Apart float64 `json:"apart"`

	method, params string
	times          []time.Duration
}

// absentCatalogue knows the server of the comparison, and one of its tools.
const absentCatalogue = `version: 1
servers:
  papers:
    attributes: [payments]
    data: financial
    reach: external
    env: production
    owner: finance-team
    tools:
      settle_invoice: {effect: write, description: "Pays an invoice."}
`

func papers() *world.Server {
	object := func(text string) jsontext.Value { return jsontext.Value(text) }
	return &world.Server{
		Name: "papers",
		Tools: []jsontext.Value{
			object(`{"name":"settle_invoice","inputSchema":{"type":"object"}}`),
			object(`{"name":"settle_account","inputSchema":{"type":"object"}}`),
		},
		Prompts:   []jsontext.Value{object(`{"name":"summarise_q1"}`)},
		Resources: []jsontext.Value{object(`{"uri":"papers://books/one","name":"one"}`)},
	}
}

// names are what a caller of another domain asks for. All of one kind are
// equally long; the first is what the others are compared with.
func absentNames() []*absent {
	var rows []*absent
	add := func(kind, method, params, what, name string) {
		rows = append(rows, &absent{Kind: kind, What: what, Name: name, method: method, params: fmt.Sprintf(params, name)})
	}
	for _, n := range [][2]string{
		{"not offered", "papers__settle_nothing"}, {"hidden", "papers__settle_invoice"},
		{"not registered", "papers__settle_account"}, {"no such server", "peters__settle_invoice"},
	} {
		add("tool", "tools/call", `"name":%q,"arguments":{}`, n[0], n[1])
	}
	for _, n := range [][2]string{
		{"not offered", "papers__summarise_q9"}, {"hidden", "papers__summarise_q1"}, {"no such server", "peters__summarise_q1"},
	} {
		add("prompt", "prompts/get", `"name":%q`, n[0], n[1])
	}
	for _, n := range [][2]string{{"not offered", "papers://books/two"}, {"hidden", "papers://books/one"}} {
		add("resource", "resources/read", `"uri":%q`, n[0], n[1])
	}
	return rows
}

// compare asks for each name in turn, times over.
func compare(ctx context.Context, times int) (_ *absence, err error) {
	w, err := world.Start(ctx, world.Options{
		Catalogue: fstest.MapFS{"papers.yaml": {Data: []byte(absentCatalogue)}}, Servers: []*world.Server{papers()},
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	token, err := w.Token("developer", time.Hour)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &world.Client{URL: w.URL + "/mcp", Token: token, HTTP: &http.Client{Transport: transport}}
	rows := absentNames()
	const warm = 50
	order := slices.Clone(rows)
	shuffled := rand.New(rand.NewPCG(1, 2))
	for i := range times + warm {
		// What came before a request shows in its time.
		shuffled.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, r := range order {
			began := time.Now()
			out, err := client.Do(ctx, r.method, r.Name, jsontext.Value("{"+r.params+`,"_meta":`+world.ModernMeta+"}"))
			took := time.Since(began)
			if err != nil {
				return nil, err
			}
			if out.Code != -32602 {
				return nil, fmt.Errorf("%s answers %d %s", r.Name, out.Code, out.Text)
			}
			if i >= warm {
				r.times = append(r.times, took)
			}
		}
	}
	a := &absence{}
	var base []time.Duration
	for _, r := range rows {
		slices.Sort(r.times)
		if r.What == "not offered" {
			base = r.times
		}
		r.P5, r.P25, r.Median = quantile(r.times, 0.05), quantile(r.times, 0.25), quantile(r.times, 0.5)
		r.P75, r.P95, r.Apart = quantile(r.times, 0.75), quantile(r.times, 0.95), apart(r.times, base)
		a.Rows = append(a.Rows, *r)
	}
	return a, nil
}

// apart is the largest distance between two distributions, both sorted.
func apart(a, b []time.Duration) (most float64) {
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		at := min(a[i], b[j])
		for i < len(a) && a[i] == at {
			i++
		}
		for j < len(b) && b[j] == at {
			j++
		}
		most = max(most, math.Abs(float64(i)/float64(len(a))-float64(j)/float64(len(b))))
	}
	return most
}

func (a *absence) write(b *strings.Builder) {
	b.WriteString("\nNames that are refused alike, each asked for in turn by one client\n\n")
	b.WriteString("| | name | p5 | p25 | median | p75 | p95 | apart from not offered |\n|---|---|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range a.Rows {
		fmt.Fprintf(b, "| %s, %s | `%s` | %s | %s | %s | %s | %s | %.2f |\n",
			r.Kind, r.What, r.Name, duration(r.P5), duration(r.P25), duration(r.Median), duration(r.P75), duration(r.P95), r.Apart)
	}
	b.WriteString("\nApart is the largest distance between the two distributions: 0 are the same, 1 can be told by one request.\n")
}
