package limit

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/regogate/regogate/registry"
)

const (
	// defaultTimeout is what a Redis adds to a request at most.
	defaultTimeout = 20 * time.Millisecond
	// pause is how long a Redis that did not answer is left alone.
	pause = time.Second
)

// shared counts in Redis, by the clock of Redis (GCRA). Everything that goes
// wrong there means that this replica's own count is all that holds.
type shared struct {
	client  redis.UniversalClient
	limiter *redis_rate.Limiter
	prefix  string
	now     func() time.Time
	log     *slog.Logger

	mu      sync.Mutex
	problem string    // why Redis cannot be used, or ""
	again   time.Time // when it is asked again
}

func newShared(c registry.RedisConfig, now func() time.Time, log *slog.Logger) (*shared, error) {
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	client, err := registry.NewClient(c)
	if err != nil {
		return nil, err
	}
	return &shared{
		client: client, limiter: redis_rate.NewLimiter(scripted{client}), now: now, log: log,
		prefix: cmp.Or(c.Prefix, "regogate") + ":limits:v1:",
	}, nil
}

// take counts one. It returns 0 as well where Redis cannot say.
func (s *shared) take(ctx context.Context, kind string, n name, l Limit) time.Duration {
	if !s.due() {
		return 0
	}
	wait, err := s.ask(ctx, kind, n, l)
	s.note(err)
	return wait
}

// ask ends within the timeout of Redis. That the client has gone is no fault of
// Redis, so it is asked all the same.
func (s *shared) ask(ctx context.Context, kind string, n name, l Limit) (time.Duration, error) {
	r, err := s.limiter.Allow(context.WithoutCancel(ctx), s.prefix+kind+":"+hex.EncodeToString(n[:]),
		redis_rate.Limit{Rate: l.Rate.Count, Period: l.Rate.Per, Burst: l.burst()})
	if err != nil || r.Allowed > 0 {
		return 0, err
	}
	if r.RetryAfter <= 0 { // more than there is a number for, which nobody of us wrote
		return bounded(l.interval(), l), nil
	}
	return bounded(r.RetryAfter, l), nil
}

// due reports whether Redis is to be asked. While it does not answer, one
// request in each pause finds out whether it does.
func (s *shared) due() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.problem == "" {
		return true
	}
	now := s.now()
	if now.Before(s.again) {
		return false
	}
	s.again = now.Add(pause)
	return true
}

// note logs a change from one state to the other.
func (s *shared) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.problem
	if err == nil {
		if s.problem = ""; before != "" {
			s.log.Info("the Redis of limits answers again: replicas count together")
		}
		return
	}
	s.again = s.now().Add(pause)
	if s.problem = "the Redis of limits cannot be used: " + err.Error(); before == "" {
		s.log.Warn("the Redis of limits cannot be used: this replica counts by itself", "error", err)
	}
}

func (s *shared) why() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem
}

// checkTimeout is for a Redis that nobody waits for.
const checkTimeout = 2 * time.Second

// Check tries the Redis of a configuration that passed Validate. It is nil where
// there is none.
func Check(ctx context.Context, c Config) error {
	if c.Redis == nil {
		return nil
	}
	r := *c.Redis
	r.Timeout = cmp.Or(r.Timeout, checkTimeout)
	s, err := newShared(r, time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer s.client.Close()
	if _, err := s.ask(ctx, "check", name{}, Limit{Rate: Rate{1, time.Second}}); err != nil {
		return fmt.Errorf("%w: start it, or correct how it is reached", err)
	}
	return nil
}

// scripted is a Redis whose keys have no prefix but ours, and whose answers are
// what the library takes them for: it panics at others.
type scripted struct{ redis.UniversalClient }

// theirs is what the library puts before every key.
const theirs = "rate:"

// EvalSha runs a script.
func (c scripted) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return expected(c.UniversalClient.EvalSha(ctx, sha, ours(keys), args...))
}

// Eval runs a script that Redis does not know.
func (c scripted) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return expected(c.UniversalClient.Eval(ctx, script, ours(keys), args...))
}

func ours(keys []string) []string {
	out := make([]string, len(keys))
	for i, key := range keys {
		out[i] = strings.TrimPrefix(key, theirs)
	}
	return out
}

func expected(cmd *redis.Cmd) *redis.Cmd {
	if cmd.Err() != nil {
		return cmd
	}
	if list, ok := cmd.Val().([]any); ok && len(list) == 4 {
		_, allowed := list[0].(int64)
		_, remaining := list[1].(int64)
		_, retry := list[2].(string)
		_, reset := list[3].(string)
		if allowed && remaining && retry && reset {
			return cmd
		}
	}
	cmd.SetErr(errors.New("the answer is not that of the script"))
	return cmd
}
