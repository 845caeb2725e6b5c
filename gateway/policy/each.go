package policy

import (
	"context"
	"sync"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
)

// chunk is how many items of a list are asked about in one evaluation. An item
// that fails makes its own chunk slow and no other; above some dozens a larger
// chunk is no faster.
const chunk = 64

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
	k := s.cache.kindsOf(items)
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
	found, code := s.judgeAll(ctx, q, some)
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
	decisions, answers.Unfinished = s.judgeAll(ctx, q, items.items)
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

// judgeAll asks about all items, in chunks, in the caller's place and in those
// that nobody else needs.
func (s *Snapshot) judgeAll(ctx context.Context, q Question, items []*Item) (decisions []Decision, unfinished string) {
	decisions = make([]Decision, len(items))
	request := q.Request.term()
	var chunks []batch
	for start := 0; start < len(items); start += chunk {
		var b batch
		for i := start; i < min(start+chunk, len(items)); i++ {
			q.Item = items[i]
			in := input{Question: q}
			if t, err := in.term(request); err != nil {
				decisions[i] = failed(err)
			} else {
				b.inputs, b.decisions = append(b.inputs, t), append(b.decisions, &decisions[i])
			}
		}
		chunks = append(chunks, b)
	}
	codes := make([]string, len(chunks))
	var next sync.Mutex
	taken := 0
	work := func() {
		for {
			next.Lock()
			n := taken
			taken++
			next.Unlock()
			if n >= len(chunks) {
				return
			}
			codes[n] = s.decideBatch(ctx, &chunks[n])
		}
	}
	s.share(len(chunks)-1, work)
	for _, code := range codes {
		if code != "" {
			return decisions, code
		}
	}
	return decisions, ""
}

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

// batch is inputs with the place of the decision on each.
type batch struct {
	inputs    []*ast.Term
	decisions []*Decision
}

// decideBatch asks about all inputs at once, and where that fails, about one
// after the other, so that each gets the answer that it would get alone. Where
// ctx ends before the last of them has, it returns the code of the undecided.
func (s *Snapshot) decideBatch(ctx context.Context, b *batch) (unfinished string) {
	if len(b.inputs) == 0 {
		return ""
	}
	answer, err := s.program.eval(ctx, s.deadline, s.allowEach, ast.NewArray(b.inputs...))
	if err == nil && answer != nil {
		if answers, ok := answer.Value.(ast.Object); ok {
			for i, d := range b.decisions {
				*d = decision(answers.Get(ast.IntNumberTerm(i)))
			}
			return ""
		}
	}
	for i, d := range b.decisions {
		*d = s.decideTerm(ctx, s.allow, b.inputs[i])
		if ctx.Err() != nil && (d.Code == CodeTimeout || d.Code == CodeCancelled) {
			unfinished = d.Code
		}
	}
	return unfinished
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
