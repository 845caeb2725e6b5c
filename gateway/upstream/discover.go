package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// doubted is how many times in a row a server that had tools, say, may say that
// it has none before that is believed: it may only be starting.
const doubted = 3

// run discovers the server until ctx ends. It calls settled once, after the
// first look.
func (s *server) run(ctx context.Context, settled func()) {
	for first := true; ; first = false {
		began := time.Now()
		wait := s.discover(ctx)
		if first {
			settled()
		}
		if !s.rest(ctx, began, wait) {
			return
		}
	}
}

// rest waits until the next look is due. False means that ctx has ended.
func (s *server) rest(ctx context.Context, began time.Time, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-s.kick:
		// However often it says that a list changed.
		gap := 2 * s.options.RetryMin
		return !within(ctx.Done(), gap-time.Since(began))
	}
}

// discover looks at the server once, publishes what it finds and returns how
// long to wait for the next look.
func (s *server) discover(ctx context.Context) time.Duration {
	s.links.sweep(time.Now())
	found, err := s.inspect(ctx)
	if errors.Is(err, errStale) || found != nil && found.stale() {
		found, err = s.inspect(ctx)
	}
	switch {
	case ctx.Err() != nil:
		return 0
	case err != nil:
		return s.failed(err)
	}
	s.breaker.worked()
	s.retry.reset()
	s.complain(found.complaints())
	now, settled := s.merge(found)
	s.show(now)
	if !settled {
		return s.empty.next()
	}
	s.empty.reset()
	return jitter(s.options.Refresh)
}

// merge makes the server's state of what was found and, for the lists that
// could not be read or cannot be believed, of what was known before. settled
// says that there is no reason to look again soon.
func (s *server) merge(found *findings) (now *Server, settled bool) {
	before := s.view.Load()
	now = &Server{
		Name: s.name, Up: found.of(tools).err == nil, Listed: time.Now(),
		Version: found.told.version, Capabilities: found.told.capabilities,
		Info: found.told.info, Instructions: found.told.instructions, Announced: found.announced,
	}
	settled = len(found.of(tools).items) > 0
	var problems []string
	for _, l := range found.lists {
		problem, usable := s.judge(l, before.list(l.of))
		if usable {
			now.set(l.of, l.items, l.byName)
		} else {
			now.keep(l.of, before)
			settled = false
		}
		if problem != "" {
			problems = append(problems, problem)
		}
	}
	now.Partial = found.of(tools).partial != ""
	now.Problem = strings.Join(problems, "; ")
	return now, settled
}

// judge says what is wrong with a list, "" is nothing, and whether it takes the
// place of what was known before.
func (s *server) judge(l *listing, before []Definition) (problem string, usable bool) {
	where := l.many + ": "
	if l.of == tools {
		where = ""
	}
	switch {
	case l.err != nil:
		return where + kindOf(l.err).String() + ": " + l.err.Error(), false
	case len(l.items) > 0:
		s.empties[l.of] = 0
	case len(before) > 0 && s.empties[l.of] < doubted:
		s.empties[l.of]++
		return "its list of " + l.many + " is suddenly empty", false
	}
	if l.partial == "" {
		return "", true
	}
	return where + l.partial, true
}

// failed keeps what is known of a server that cannot be looked at.
func (s *server) failed(err error) time.Duration {
	if kindOf(err) == Unavailable && !errors.Is(err, errBusy) {
		s.breaker.failed(time.Now())
	}
	if kindOf(err) == Broken {
		s.transport.forget()
	}
	down := *s.view.Load()
	down.Up, down.Problem = false, fmt.Sprintf("%s: %v", kindOf(err), err)
	s.show(&down)
	return s.retry.next()
}

// show publishes what is known now, and logs what an operator wants to know of
// the difference.
func (s *server) show(now *Server) {
	before := s.view.Load()
	s.view.Store(now)
	switch {
	case now.Up && (!before.Up || now.sizes() != before.sizes()):
		s.log.Info("server is up", "server", s.name, "tools", len(now.Tools), "prompts", len(now.Prompts),
			"resources", len(now.Resources), "templates", len(now.Templates), "version", now.Version)
	case !now.Up && before.Problem != now.Problem:
		s.log.Warn("server is down", "server", s.name, "problem", now.Problem, "tools_known", len(now.Tools))
	}
	s.publish(!before.equal(now))
}

// complain logs what is wrong with a list, each thing once for as long as it
// stays wrong.
func (s *server) complain(left []string) {
	said := make(map[string]bool, len(left))
	for _, text := range left {
		if !s.said[text] && !said[text] {
			s.log.Warn(text, "server", s.name)
		}
		said[text] = true
	}
	s.said = said
}

// findings are what one look at a server brought.
type findings struct {
	told  *hello
	lists [lists]*listing // by kind
	// announced is as of before the lists were read: what comes meanwhile is
	// for the next look.
	announced [lists]uint64
}

func (f *findings) of(k kind) *listing { return f.lists[k] }

// err returns the error of the look as a whole, nil where any list that was
// asked for could be read.
func (f *findings) err() error {
	for _, l := range f.lists {
		if l.asked(f.told) && l.err == nil {
			return nil
		}
	}
	return f.of(tools).err
}

// stale reports whether the link was found to be of no use any more meanwhile.
func (f *findings) stale() bool {
	return slices.ContainsFunc(f.lists[:], func(l *listing) bool { return errors.Is(l.err, errStale) })
}

// complaints are what is wrong with the lists, safely for a log.
func (f *findings) complaints() (lines []string) {
	for _, l := range f.lists {
		lines = append(lines, l.left...)
		switch {
		case l.err != nil:
			lines = append(lines, fmt.Sprintf("the list of %s could not be read: %v", l.many, l.err))
		case l.partial != "":
			lines = append(lines, "the list of "+l.many+" is partial: "+l.partial)
		}
	}
	return lines
}

// inspect reads what the server says of itself and its lists. The error is
// that of all of them; that of one is in it.
func (s *server) inspect(ctx context.Context) (*findings, error) {
	e, key, err := s.own(ctx)
	if err != nil {
		return nil, err
	}
	defer s.links.give(e)
	found, err := s.read(ctx, e.link)
	if err != nil {
		if key != "" {
			// The next look begins anew, with another session or process;
			// one that others share stays.
			s.links.drop(e)
		}
		return nil, err
	}
	if found.stale() {
		s.links.drop(e)
	}
	s.links.worked(key)
	if found.told.notifies() {
		s.links.follow(e)
	}
	return found, nil
}

// own takes the gateway's own link. Making it may show that the server is
// spoken to in such a way that another one is to be used.
func (s *server) own(ctx context.Context) (e *entry, key string, err error) {
	key = s.transport.key(discovery)
	e, err = s.links.take(ctx, key, s.looker(key))
	if now := s.transport.key(discovery); err == nil && now != key {
		s.links.drop(e)
		s.links.give(e)
		key = now
		e, err = s.links.take(ctx, key, s.looker(key))
	}
	return e, key, err
}

// looker is for whom the gateway's own link is: one that others share is told
// of no capabilities, since nobody could be asked over it.
func (s *server) looker(key string) Peer {
	if key == "" {
		return s.crowd
	}
	return onlooker{s.crowd}
}

// read asks for all lists at once, so that one that hangs leaves the others
// their time.
func (s *server) read(ctx context.Context, from link) (*findings, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.ListTimeout)
	defer cancel()
	var announced [lists]uint64
	for k := range lists {
		announced[k] = s.announced[k].Load()
	}
	told, err := from.describe(ctx)
	if err != nil {
		return nil, s.late(err, tools)
	}
	_, http := from.(*stateless)
	found := &findings{told: told, announced: announced}
	var reading sync.WaitGroup
	for k := range lists {
		l := newListing(k, s.name, http)
		found.lists[k] = l
		if l.asked(told) {
			reading.Go(func() { l.err = s.late(l.read(ctx, from, told), k) })
		}
	}
	reading.Wait()
	return found, found.err()
}

// late says what a deadline was for.
func (s *server) late(err error, k kind) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &fault{kind: Timeout, err: fmt.Errorf("its %s could not be read within %s", k.terms().many, s.config.ListTimeout)}
}
