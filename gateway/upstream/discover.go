package upstream

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// doubted is how many times in a row a server that had tools may say that it
// has none before that is believed: it may only be starting.
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
		// However often it says that its tools changed.
		gap := 2 * s.options.RetryMin
		return !within(ctx.Done(), gap-time.Since(began))
	}
}

// discover looks at the server once, publishes what it finds and returns how
// long to wait for the next look.
func (s *server) discover(ctx context.Context) time.Duration {
	s.links.sweep(time.Now())
	found, left, err := s.inspect(ctx)
	if errors.Is(err, errStale) {
		found, left, err = s.inspect(ctx)
	}
	switch {
	case ctx.Err() != nil:
		return 0
	case err != nil:
		return s.failed(err)
	}
	s.breaker.worked()
	s.retry.reset()
	s.complain(left)
	if len(found.Tools) > 0 {
		s.empty.reset()
		s.empties = 0
		s.show(found)
		return jitter(s.options.Refresh)
	}
	if before := s.view.Load(); len(before.Tools) > 0 && s.empties < doubted {
		s.empties++
		found.Tools, found.byName, found.Listed = before.Tools, before.byName, before.Listed
		found.Problem = "its list of tools is suddenly empty"
	}
	s.show(found)
	return s.empty.next()
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
	case now.Up && (!before.Up || len(before.Tools) != len(now.Tools)):
		s.log.Info("server is up", "server", s.name, "tools", len(now.Tools), "version", now.Version)
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
		if !s.said[text] {
			s.log.Warn(text, "server", s.name)
		}
		said[text] = true
	}
	s.said = said
}

// inspect reads what the server says of itself and its tools. left is what is
// wrong with them, safely for a log.
func (s *server) inspect(ctx context.Context) (found *Server, left []string, err error) {
	e, key, err := s.own(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer s.links.give(e)
	ctx, cancel := context.WithTimeout(ctx, s.config.ListTimeout)
	defer cancel()
	told, list, err := s.read(ctx, e.link)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = &fault{kind: Timeout, err: fmt.Errorf("its tools could not be read within %s", s.config.ListTimeout)}
		}
		if key != "" {
			// The next look begins anew, with another session or process;
			// one that others share stays.
			s.links.drop(e)
		}
		return nil, nil, err
	}
	s.links.worked(key)
	if told.has("tools", "listChanged") {
		s.links.follow(e)
	}
	left = list.left
	if list.partial != "" {
		left = append(left, "the list of tools is partial: "+list.partial)
	}
	return &Server{
		Name: s.name, Up: true, Problem: list.partial, Partial: list.partial != "", Listed: time.Now(),
		Version: told.version, Capabilities: told.capabilities, Info: told.info, Instructions: told.instructions,
		Tools: list.tools, byName: list.byName,
	}, left, nil
}

// own takes the gateway's own link. Making it may show that the server is
// spoken to in such a way that another one is to be used.
func (s *server) own(ctx context.Context) (e *entry, key string, err error) {
	key = s.transport.key(discovery)
	e, err = s.links.take(ctx, key, s.crowd)
	if now := s.transport.key(discovery); err == nil && now != key {
		s.links.drop(e)
		s.links.give(e)
		key = now
		e, err = s.links.take(ctx, key, s.crowd)
	}
	return e, key, err
}

func (s *server) read(ctx context.Context, l link) (*hello, *listing, error) {
	told, err := l.describe(ctx)
	if err != nil {
		return nil, nil, err
	}
	_, http := l.(*stateless)
	list := &listing{server: s.name, http: http}
	if err := list.read(ctx, l, told); err != nil {
		return nil, nil, err
	}
	return told, list, nil
}
