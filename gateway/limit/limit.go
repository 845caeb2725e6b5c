package limit

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// The kinds of things that are counted.
const (
	kindPrincipal = "principal"
	kindTool      = "tool"
)

// Limiter holds requests to the limits of a configuration. Every request is
// counted in this process first, so that a replica never lets more through than
// the limit, whatever becomes of Redis, and those that it refuses cost Redis
// nothing. Its methods may be called concurrently.
type Limiter struct {
	config     Config
	key        []byte
	principals *buckets
	tools      *buckets
	shared     *shared // nil where replicas count by themselves
}

// New returns the limiter for a configuration that passed Validate. Names of
// principals and tools are hidden from Redis behind a hash that is keyed with
// key, the same at all replicas; it may be empty. Redis is reached only when
// used. The error is about TLS files.
func New(c Config, key []byte, now func() time.Time, log *slog.Logger) (*Limiter, error) {
	l := &Limiter{config: c, key: key}
	var err error
	if l.principals, err = newBuckets(now); err != nil {
		return nil, err
	}
	if l.tools, err = newBuckets(now); err != nil {
		return nil, err
	}
	if c.Redis != nil {
		if l.shared, err = newShared(*c.Redis, now, log); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// Principal counts a request of the principal with this key. It returns 0 where
// the request may go on, else how long until one more may. It never fails: while
// Redis does not answer this replica counts by itself. A Redis that hangs holds
// requests up for its timeout, and from then on one in a second.
func (l *Limiter) Principal(ctx context.Context, key string) time.Duration {
	return l.take(ctx, l.principals, kindPrincipal, key, l.config.PerPrincipal)
}

// Tool counts a call of the tool with this exposed name, as Principal does. The
// tool must be one that there is.
func (l *Limiter) Tool(ctx context.Context, exposed string) time.Duration {
	return l.take(ctx, l.tools, kindTool, exposed, l.config.tool(exposed))
}

func (l *Limiter) take(ctx context.Context, local *buckets, kind, who string, limit *Limit) time.Duration {
	if limit == nil {
		return 0
	}
	name := l.name(kind, who)
	wait := local.take(name, *limit)
	if wait == 0 && l.shared != nil {
		wait = l.shared.take(ctx, kind, name, *limit)
	}
	if wait > 0 {
		local.refused.Add(1)
	}
	return wait
}

// name is what is counted, as memory and Redis know it.
type name [16]byte

// name hides who behind a key: principals are few and guessable, so a bare hash
// would tell them.
func (l *Limiter) name(kind, who string) (n name) {
	mac := hmac.New(sha256.New, l.key)
	mac.Write([]byte("regogate limits v1 "))
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(kind))))
	mac.Write([]byte(kind + who))
	copy(n[:], mac.Sum(nil))
	return n
}

// Where limits are counted.
const (
	Off   = "off"   // nothing is bounded
	Local = "local" // each replica counts by itself
	Redis = "redis" // all replicas together
)

// Status is how a Limiter stands.
type Status struct {
	Where string `json:"where"` // Off, Local or Redis
	// Problem says why it is Local although there is a Redis, as of the last
	// time that one was asked.
	Problem string `json:"problem,omitempty"`
	// What was refused since the start.
	Principals int64 `json:"principal_refusals"`
	Tools      int64 `json:"tool_refusals"`
}

// Status may be called at any time.
func (l *Limiter) Status() Status {
	s := Status{Where: Local, Principals: l.principals.refused.Load(), Tools: l.tools.refused.Load()}
	switch {
	case !l.config.limits():
		s.Where = Off
	case l.shared == nil:
	default:
		if s.Problem = l.shared.why(); s.Problem == "" {
			s.Where = Redis
		}
	}
	return s
}

// Close closes the connections to Redis.
func (l *Limiter) Close() error {
	if l.shared == nil {
		return nil
	}
	return l.shared.client.Close()
}

// mostBuckets bounds the memory of one kind, some 15 MB. Beyond that the one
// that was not used for longest starts anew here; it goes on in Redis.
const mostBuckets = 1 << 16

// buckets counts in this process.
type buckets struct {
	now     func() time.Time
	of      *lru.Cache[name, *bucket]
	refused atomic.Int64
}

type bucket struct {
	mu sync.Mutex
	*rate.Limiter
}

func newBuckets(now func() time.Time) (*buckets, error) {
	of, err := lru.New[name, *bucket](mostBuckets)
	if err != nil {
		return nil, fmt.Errorf("make room for limits: %w", err)
	}
	return &buckets{now: now, of: of}, nil
}

func (b *buckets) take(n name, l Limit) time.Duration {
	one, ok := b.of.Get(n)
	if !ok {
		perSecond := rate.Limit(float64(l.Rate.Count) / l.Rate.Per.Seconds())
		one = &bucket{Limiter: rate.NewLimiter(perSecond, l.burst())}
		if before, ok, _ := b.of.PeekOrAdd(n, one); ok {
			one = before
		}
	}
	// The clock is read under the lock: of two times in the wrong order the
	// library would count what lies between them twice.
	one.mu.Lock()
	defer one.mu.Unlock()
	now := b.now()
	if one.AllowN(now, 1) {
		return 0
	}
	missing := 1 - one.TokensAt(now)
	return bounded(time.Duration(missing/float64(one.Limit())*float64(time.Second)), l)
}

// bounded keeps a wait between something that is one and what one more takes.
func bounded(wait time.Duration, l Limit) time.Duration {
	return min(max(wait, time.Millisecond), max(l.interval(), time.Millisecond))
}
