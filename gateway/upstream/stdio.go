package upstream

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// stdio runs one server's processes.
type stdio struct {
	program program
	starter *starter
	shared  bool
	patient time.Duration // how long a probe is waited for
	changed func(said string)
	verdict atomic.Uint32 // an mcp.Era
	forced  bool          // by the configuration
}

func newStdio(name string, c Config, o Options, s *starter, changed func(said string)) *stdio {
	t := &stdio{
		starter: s,
		shared:  c.Shared,
		changed: changed,
		// A server that does not answer what it does not know must leave
		// time for initialize.
		patient: min(3*time.Second, c.ConnectTimeout/3),
		program: program{
			server: name, command: c.Command, args: c.Args, dir: c.Dir,
			env:   environment(c.Env, os.LookupEnv),
			grace: c.StopTimeout, limit: int(c.MaxResponse), shared: c.Shared,
			client: o.clientInfo(), log: o.Log,
			noise: newNoise(name, o.Log), chatter: newThrottle(50, 10),
		},
	}
	t.verdict.Store(uint32(configuredEra(c.Protocol)))
	t.forced = t.era() != 0
	return t
}

func (t *stdio) era() mcp.Era { return mcp.Era(t.verdict.Load()) }

// ready: a process has the credentials that its environment holds.
func (t *stdio) ready(context.Context, Subject) error { return nil }

func (t *stdio) forget() {
	if !t.forced {
		t.verdict.Store(0)
	}
}

func (t *stdio) key(peer string) string {
	if t.shared {
		return ""
	}
	return peer
}

func (t *stdio) close() {}

// dial starts a process and greets it.
func (t *stdio) dial(ctx context.Context, peer Peer) (link, error) {
	l, err := t.start(ctx, peer)
	if errors.Is(err, errProbed) {
		// There are servers that do not survive what they do not know.
		t.verdict.Store(uint32(mcp.Legacy))
		if l, err = t.start(ctx, peer); err != nil {
			t.forget()
		}
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (t *stdio) start(ctx context.Context, peer Peer) (*piped, error) {
	pr, err := t.program.start(t.starter, newParty(t.program.server, peer, t.changed))
	if err != nil {
		return nil, err
	}
	told, err := t.greet(ctx, pr.conn)
	if err != nil {
		if isClosed(pr.conn.dead) && !errors.Is(err, errProbed) {
			err = unavailable("greet it: %w", pr.conn.why())
		}
		pr.close()
		return nil, err
	}
	t.verdict.Store(uint32(told.era))
	return &piped{process: pr, told: told}, nil
}

// errProbed: the process ended when it was asked for its era.
var errProbed = errors.New("the process ended when it was asked for its era")

// greet finds out the era where it is not known and begins the conversation.
func (t *stdio) greet(ctx context.Context, c *conn) (*hello, error) {
	era := t.era()
	if era != mcp.Legacy {
		verdict, told, err := t.probe(ctx, c, era == 0)
		if err != nil || verdict == mcp.Modern {
			return told, err
		}
		if era == mcp.Modern {
			return nil, broken("it does not answer %s as a modern server does", discover)
		}
	}
	return c.greet(ctx)
}

// greet begins a conversation of the legacy era.
func (c *conn) greet(ctx context.Context) (*hello, error) {
	m, err := c.call(ctx, legacyLeg(), initializeRequest(c.client, c.party.peer))
	if err != nil {
		return nil, err
	}
	told, err := initialized(m)
	if err == nil {
		c.post(mcp.NewRequest(mcp.ID{}, greeted, nil))
	}
	return told, err
}

// probe asks with server/discover. unsure says that silence and the end of the
// process are answers, too.
func (t *stdio) probe(ctx context.Context, c *conn, unsure bool) (mcp.Era, *hello, error) {
	limited := ctx
	if unsure {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, t.patient)
		defer cancel()
	}
	m, err := discoverTwice(func() (*mcp.Message, error) {
		return c.call(limited, modernLeg(), request{method: discover})
	})
	switch {
	case err == nil:
		return discovered(m)
	case !unsure || ctx.Err() != nil:
		return 0, nil, err
	case limited.Err() != nil:
		return mcp.Legacy, nil, nil
	case isClosed(c.dead):
		return 0, nil, errProbed
	}
	return mcp.Legacy, nil, nil // an answer that is no message
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// piped is the link to a process.
type piped struct {
	*process
	told *hello
}

func (p *piped) call(ctx context.Context, r request) (*mcp.Message, error) {
	return p.conn.call(ctx, p.told, r)
}

func (p *piped) describe(context.Context) (*hello, error) { return p.told, nil }

func (p *piped) hello() *hello { return p.told }

// watch has nothing to do in the legacy era, where notifications come unasked.
func (p *piped) watch(ctx context.Context) error {
	if p.told.era != mcp.Modern {
		return nil
	}
	return keepWatch(ctx, func() error {
		m, err := p.call(ctx, request{method: listen, params: jsontext.Value(listenArgs)})
		if isClosed(p.conn.dead) || err == nil && m.Error != nil {
			return errUnwatched
		}
		return err
	})
}

func (p *piped) attend(context.Context) error { return nil }

// tell: a modern server takes no notifications.
func (p *piped) tell(m *mcp.Message) {
	if p.told.era != mcp.Modern {
		p.conn.post(m)
	}
}

func (p *piped) ended() <-chan struct{} { return p.conn.dead }
