package upstream

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/upstream/credentials"
)

// stateless is the link to a modern server. There is nothing to it but the
// server itself.
type stateless struct {
	web  *web
	next atomic.Int64
}

func (s *stateless) call(ctx context.Context, r request) (*mcp.Message, error) {
	id := mcp.NumberID(s.next.Add(1))
	params, token, err := outbound(r, modernLeg(), s.web.me, id)
	if err != nil {
		return nil, err
	}
	m := mcp.NewRequest(id, r.method, params)
	header := http.Header{}
	mcp.SetHeaders(header, mcp.V20260728, m)
	if r.tool != nil {
		call, err := mcp.Split(params)
		if err != nil {
			return nil, broken("read the params of a request: %w", err)
		}
		if e := r.tool.headers.Set(header, mcp.Get(call, "arguments")); e != nil {
			return refusal(e)
		}
	}
	// Ending ctx is what cancels the request.
	ctx, cancel := context.WithCancel(ctx)
	x := &exchange{web: s.web, id: id, token: token, request: r, cancel: cancel}
	resp, err := s.web.post(ctx, r.speaks(), header, m)
	if err != nil {
		cancel()
		return nil, err
	}
	return x.answer(ctx, resp)
}

// speaks is on whose behalf a request is made over a link that is everybody's.
func (r request) speaks() Subject {
	switch {
	case r.turn != nil:
		return r.as
	case r.peer == nil:
		return credentials.Gateway()
	}
	return r.peer.Subject()
}

// refusal is what a server would answer that sees e.
func refusal(e *mcp.Error) (*mcp.Message, error) {
	m, bad := mcp.ParseBackend(e.Append(nil))
	if bad != nil {
		return nil, bad
	}
	return m, nil
}

func (s *stateless) describe(ctx context.Context) (*hello, error) {
	m, err := discoverTwice(func() (*mcp.Message, error) { return s.call(ctx, request{method: discover}) })
	if err != nil {
		return nil, err
	}
	era, h, err := discovered(m)
	if err == nil && era != mcp.Modern {
		return nil, broken("it does not answer %s as a modern server does", discover)
	}
	return h, err
}

func (s *stateless) hello() *hello { return modernLeg() }

func (s *stateless) watch(ctx context.Context) error {
	return keepWatch(ctx, func() error {
		m, err := s.call(ctx, request{method: listen, params: jsontext.Value(listenArgs)})
		if err == nil && m.Error != nil {
			return errUnwatched
		}
		return err
	})
}

// attend has nothing to do: a server says nothing unless it is listened to.
func (s *stateless) attend(context.Context) error { return nil }

// tell has nothing to do: a modern server takes no notifications.
func (s *stateless) tell(*mcp.Message) {}

func (s *stateless) ended() <-chan struct{} { return nil }

func (s *stateless) close() {}
