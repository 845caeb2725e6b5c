package policy

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/regogate/regogate/gateway/policy/plane"
)

// plan sets OPA's management plane up. Nothing is reached before it runs.
func (e *Engine) plan() error {
	document, err := json.Marshal(e.config.OPA)
	if err != nil {
		return fmt.Errorf("opa: %w", err)
	}
	e.plane, err = plane.New(plane.Options{
		Config: document, Version: e.config.Version, Labels: e.config.Labels,
		Log: e.log, Judge: e.consider,
	})
	return err
}

// Plane is OPA's management plane, nil where none is configured.
func (e *Engine) Plane() *plane.Plane { return e.plane }

// consider judges what bundles would bring into force, before OPA commits it, so
// that what is refused here is not kept, not persisted and asked for again. As
// long as bundles are missing, nothing can be said of the rest: the policy in
// force stays.
func (e *Engine) consider(_ context.Context, c *plane.Candidate) (commit func(), err error) {
	if !c.Complete || !e.config.distributed() {
		return nil, nil
	}
	from := candidate{c}
	if now := e.current.Load(); now != nil && from.is(now) {
		return nil, nil // a server that cannot say so has sent the same again
	}
	s, problems := newSnapshot(from, e.config, e.log)
	if len(problems) > 0 {
		return nil, problems // which the bundle's status tells
	}
	return func() { e.activate(s) }, nil
}

// distribute runs the plane, and tells of what changes in how it fares.
func (e *Engine) distribute(ctx context.Context) {
	ended := make(chan error, 1)
	go func() { ended <- e.plane.Run(ctx) }()
	for {
		select {
		case err := <-ended:
			if err != nil {
				e.log.Error("OPA's management plane has ended", "error", err)
			}
			return
		case <-e.plane.Changed():
			e.notify()
		}
	}
}

// describe fills in how the bundles fare. Those that have not become active are
// problems, as those are that the server could not give anew.
func (e *Engine) describe(s *Status) {
	now := e.plane.Status()
	s.Bundles = now.Bundles
	if now.Problem != "" {
		s.Problems = append(s.Problems, Problem{Message: oneLine(now.Problem)})
	}
	for _, b := range now.Bundles {
		switch {
		case b.Problem != "":
			s.Problems = append(s.Problems, Problem{File: "bundle " + b.Name, Message: oneLine(b.Problem)})
		case b.Revision == "" && b.Since.IsZero():
			s.Problems = append(s.Problems, Problem{File: "bundle " + b.Name, Message: "not active yet"})
		case b.FromDisk:
			s.Problems = append(s.Problems, Problem{File: "bundle " + b.Name, Message: "the persisted copy is in force: its server has not been heard of yet"})
		}
	}
}
