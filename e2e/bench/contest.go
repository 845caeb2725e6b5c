package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"runtime"
)

// plan is how much is measured.
type plan struct {
	Rounds      int   `json:"rounds"`
	Calls       int   `json:"calls"` // in one round, of one entrant, at one concurrency
	Lists       int   `json:"lists"`
	Concurrency []int `json:"concurrency"`
	only        *regexp.Regexp
}

// requests is how many an entrant sends in one go: at least two from each
// client.
func (p *plan) requests(op string, atOnce int) int {
	if op == opList {
		return max(p.Lists, 2*atOnce)
	}
	return max(p.Calls, 2*atOnce)
}

// contest is one entrant at one concurrency.
type contest struct {
	entrant
	atOnce int
	runs   []run
}

func (c *contest) String() string { return fmt.Sprintf("%s/%d/%s", c.op, c.atOnce, c.name) }

// contests returns those that the plan wants, in the order of the report.
func (p *plan) contests(entrants []entrant) []*contest {
	var all []*contest
	for _, op := range []string{opCall, opList} {
		for _, atOnce := range p.Concurrency {
			for _, e := range entrants {
				c := &contest{entrant: e, atOnce: atOnce}
				if e.op == op && (p.only == nil || p.only.MatchString(c.String())) {
					all = append(all, c)
				}
			}
		}
	}
	return all
}

// warm has every contest run for a while before anything counts: connections
// are made, and caches are as full as they get.
func (p *plan) warm(ctx context.Context, contests []*contest) error {
	for _, c := range contests {
		if _, err := c.measure(ctx, p.requests(c.op, c.atOnce)/4+c.atOnce, c.atOnce); err != nil {
			return err
		}
	}
	return nil
}

// race has every contest run once in each round. Those that are compared run
// one after the other, in another order each time, so that they meet the same
// state of the machine; the garbage of one is not left to the next.
func (p *plan) race(ctx context.Context, contests []*contest, log *slog.Logger) error {
	groups := grouped(contests)
	for round := range p.Rounds {
		dice := rand.New(rand.NewPCG(uint64(round), 0))
		shuffle(dice, groups)
		for _, group := range groups {
			shuffle(dice, group)
			for _, c := range group {
				runtime.GC()
				r, err := c.measure(ctx, p.requests(c.op, c.atOnce), c.atOnce)
				if err != nil {
					return err
				}
				if err := r.clean(); err != nil {
					log.Error("wrong answers", "of", c.String(), "round", round+1, "error", err)
				}
				c.runs = append(c.runs, r)
			}
		}
		log.Info("round done", "round", round+1, "of", p.Rounds)
	}
	return nil
}

// grouped returns the contests of each operation and concurrency.
func grouped(contests []*contest) [][]*contest {
	var groups [][]*contest
	for i, c := range contests {
		if i == 0 || c.op != contests[i-1].op || c.atOnce != contests[i-1].atOnce {
			groups = append(groups, nil)
		}
		last := &groups[len(groups)-1]
		*last = append(*last, c)
	}
	return groups
}

func shuffle[T any](dice *rand.Rand, s []T) {
	dice.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
}
