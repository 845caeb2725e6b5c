package policy

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
)

// AllowEach answers Allow for every item, in their order, and gives the same
// answers. Things that allow cannot tell apart are asked about once.
func (s *Snapshot) AllowEach(ctx context.Context, subject *Subject, items *Items, method string, request Request) *Answers {
	ctx, cancel := context.WithTimeout(ctx, s.listDeadline)
	defer cancel()
	q := Question{Method: method, Subject: subject, Request: request}
	if items.Len() == 0 || !s.cache.usable() || subject == nil || subject.claims == nil {
		return s.askEach(ctx, q, items)
	}
	key := listKey{string(s.cache.asker(method, subject, &request)), items}
	if l, ok := s.cache.lists.Get(key); ok && s.sampled(ctx, q, items, l.answers) {
		s.cache.counters.hits.Add(1)
		return l.answers
	}
	leave, err := s.place(ctx)
	if err != nil {
		return unfinished(items.Len(), err)
	}
	defer leave()
	if l, ok := s.cache.lists.Get(key); ok { // whoever had the place before may have asked the same
		s.cache.counters.hits.Add(1)
		return l.answers
	}
	s.cache.counters.misses.Add(1)
	answers := s.askKinds(ctx, q, key, items)
	if answers.keepable() && len(key.asker) <= maxKey {
		s.cache.lists.Add(key, &listed{answers, method, subject, request})
	}
	return answers
}

// sampled reports whether a kept list may be used. Of some, one item is asked
// about again.
func (s *Snapshot) sampled(ctx context.Context, q Question, items *Items, kept *Answers) bool {
	if !s.cache.due() {
		return true
	}
	i := int(s.cache.hits.Load()/recheckEvery) % items.Len()
	q.Item = items.items[i]
	s.cache.compare(kept.At(i), s.decide(ctx, s.allow, &input{Question: q}))
	return s.cache.usable()
}

// askKinds asks about one thing of each kind whose answer is not known.
func (s *Snapshot) askKinds(ctx context.Context, q Question, list listKey, items *Items) *Answers {
	k := s.kindsOf(items)
	decisions := make([]Decision, len(k.keys))
	var open []int // kinds that are not known
	for n, key := range k.keys {
		if v, ok := s.cache.get(list.asker + key); ok {
			decisions[n] = v.decision()
		} else {
			open = append(open, n)
		}
	}
	some := make([]*Item, len(open))
	for at, n := range open {
		some[at] = items.items[k.first[n]]
	}
	found, code := s.judgeAll(ctx, q, some, k.classes, open)
	for at, n := range open {
		decisions[n] = found[at]
		s.cache.keep(list.asker+k.keys[n], found[at])
	}
	answers := newAnswers(items.Len())
	answers.Unfinished = code
	for i, n := range k.of {
		if n < 0 {
			answers.set(i, failed(errIncomplete))
		} else {
			answers.set(i, decisions[n])
		}
	}
	return answers
}

// askEach asks about every item.
func (s *Snapshot) askEach(ctx context.Context, q Question, items *Items) *Answers {
	answers := newAnswers(items.Len())
	if answers.size == 0 {
		return answers
	}
	leave, err := s.place(ctx)
	if err != nil {
		return unfinished(items.Len(), err)
	}
	defer leave()
	var decisions []Decision
	decisions, answers.Unfinished = s.judgeAll(ctx, q, items.items, nil, nil)
	for i, d := range decisions {
		answers.set(i, d)
	}
	return answers
}

// place waits for a place to evaluate a list in. The caller leaves it.
func (s *Snapshot) place(ctx context.Context) (leave func(), err error) {
	select {
	case s.places <- struct{}{}:
		return func() { <-s.places }, nil
	case <-ctx.Done():
		return nil, stopped(ctx.Err())
	}
}

func unfinished(size int, err error) *Answers {
	answers, d := newAnswers(size), failed(err)
	for i := range size {
		answers.set(i, d)
	}
	answers.Unfinished = d.Code
	return answers
}

// judgeAll asks about all items, in the caller's place and in those that nobody
// else needs. An item that fails leaves the others their answers. Where there are
// classes, places says which of their things each item is.
func (s *Snapshot) judgeAll(ctx context.Context, q Question, items []*Item, c *classes, places []int) (decisions []Decision, unfinished string) {
	decisions = make([]Decision, len(items))
	request := q.Request.term()
	var taken atomic.Int64
	next := func() (*ast.Term, int, *Decision) {
		for {
			n := int(taken.Add(1)) - 1
			if n >= len(items) {
				return nil, 0, nil
			}
			in := input{Question: q}
			in.Item = items[n]
			t, err := in.term(request)
			if err == nil && c == nil {
				return t, 0, &decisions[n]
			}
			if err == nil {
				return t, places[n], &decisions[n]
			}
			decisions[n] = failed(err)
		}
	}
	s.share(len(items)/alone, func() {
		a := s.askers.Get().(*asker)
		defer s.askers.Put(a)
		s.ask(ctx, a, c, next)
	})
	if err := ctx.Err(); err != nil {
		for _, d := range decisions {
			if d.Code == CodeTimeout || d.Code == CodeCancelled {
				return decisions, d.Code
			}
		}
	}
	return decisions, ""
}

// alone is how many items are asked about faster than somebody else could help.
const alone = 16

// share does the work here, and in up to more places that are free, until all of
// it is done.
func (s *Snapshot) share(more int, work func()) {
	var helpers sync.WaitGroup
	defer helpers.Wait()
	for range more {
		select {
		case s.places <- struct{}{}:
			helpers.Go(func() {
				defer func() { <-s.places }()
				work()
			})
			continue
		default:
		}
		break
	}
	work()
}

// warming is how long a new policy is held back for answering the lists that were
// asked for lately, so that not everybody waits for these at once.
const warming = 40 * time.Millisecond

// warm answers the lists that another snapshot answered last, as many as there is
// time for.
func (s *Snapshot) warm(last *Snapshot) {
	if last == nil || !s.cache.usable() || !last.cache.usable() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), warming)
	defer cancel()
	keys := last.cache.lists.Keys() // the oldest first
	for i := len(keys) - 1; i >= 0 && ctx.Err() == nil; i-- {
		if l, ok := last.cache.lists.Peek(keys[i]); ok {
			s.AllowEach(ctx, l.subject, keys[i].items, l.method, l.request)
		}
	}
}
