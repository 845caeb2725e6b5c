package upstream

import (
	"context"

	"github.com/regogate/regogate/gateway/mcp"
)

// level is what a legacy server was last told to log on one link: a channel
// that holds it, empty while somebody changes it.
type level chan string

func newLevel() level {
	l := make(level, 1)
	l <- ""
	return l
}

// prepare has a legacy server log for the peer of the link at the level that a
// call wants, if it last was another one. That the server refuses it is no
// error. A process that peers share is left as it is: what it logs is nobody's.
func (s *server) prepare(ctx context.Context, e *entry, want string) error {
	told := e.link.hello()
	if want == "" || e.key == "" || told.era != mcp.Legacy || !told.has("logging", "") {
		return nil
	}
	var now string
	select {
	case now = <-e.level:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { e.level <- now }()
	if now == want {
		return nil
	}
	params := append(mcp.AppendString([]byte(`{"level":`), want), '}')
	if _, err := e.link.call(ctx, request{method: setLevel, params: params}); err != nil {
		return err
	}
	now = want
	return nil
}
