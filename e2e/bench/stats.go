package main

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// quantile returns the value below which that part of the sorted values lies,
// and the zero value of none.
func quantile[T any](sorted []T, part float64) T {
	if len(sorted) == 0 {
		var none T
		return none
	}
	at := int(math.Ceil(part*float64(len(sorted)))) - 1
	return sorted[max(0, at)]
}

func median[T cmp.Ordered](values []T) T {
	return quantile(slices.Sorted(slices.Values(values)), 0.5)
}

// summary is what one entrant did in all rounds at one concurrency.
type summary struct {
	Requests  int           `json:"requests"`
	Wrong     int           `json:"wrong"` // of them; with any, the rest is void
	Median    time.Duration `json:"median_ns"`
	P95       time.Duration `json:"p95_ns"`
	P99       time.Duration `json:"p99_ns"`
	PerSecond float64       `json:"per_second"`
	Medians   []float64     `json:"round_medians_ns"` // one for each round
}

func summarise(runs []run) summary {
	var s summary
	var all []time.Duration
	var took time.Duration
	for _, r := range runs {
		all = append(all, r.latencies...)
		took += r.took
		s.Requests += len(r.latencies) + r.wrong
		s.Wrong += r.wrong
		s.Medians = append(s.Medians, float64(median(r.latencies)))
	}
	slices.Sort(all)
	s.Median, s.P95, s.P99 = quantile(all, 0.5), quantile(all, 0.95), quantile(all, 0.99)
	if took > 0 {
		s.PerSecond = float64(len(all)) / took.Seconds()
	}
	return s
}

// ratio compares two entrants round by round, so that what slows the machine
// down for a while slows both.
type ratio struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// over returns the ratio of s to base, nil where they have no round in common or
// an answer was wrong.
func (s summary) over(base summary) *ratio {
	if s.Wrong+base.Wrong > 0 {
		return nil
	}
	var ratios []float64
	for i := range min(len(s.Medians), len(base.Medians)) {
		if base.Medians[i] > 0 {
			ratios = append(ratios, s.Medians[i]/base.Medians[i])
		}
	}
	if len(ratios) == 0 {
		return nil
	}
	return &ratio{median(ratios), slices.Min(ratios), slices.Max(ratios)}
}
