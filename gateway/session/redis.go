package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regogate/regogate/registry"
)

// Redis keeps sessions in a Redis that all replicas share: any of them takes
// up any session. Values are sealed, and keys tell neither ids nor principals.
// What in Redis was not sealed with the key and for that very session is no
// session. Who can write Redis can therefore end sessions, keep an unused one
// until its lifetime is over and bring back an earlier state of one, but make
// none, alter none and give none to somebody else.
//
// Every Use asks Redis, so that a session that was closed on another replica
// is unknown here at once. Only while Redis does not answer a session goes on
// that this replica has found there within the last 30 s; one that was closed
// on another replica lives on here for that long at most.
//
// What is exact in Memory and is not here, so that a use costs one read and
// seldom a write: a session ends up to 3 s after it was idle, and uses within
// 3 s of each other may count as one when the least recently used is looked
// for.
type Redis struct {
	limits  Config
	every   time.Duration // between two notes in Redis that a session is in use
	timeout time.Duration
	now     func() time.Time
	ended   func(id string)
	client  redis.UniversalClient
	sealer  *sealer
	held    *held
	alarms  *alarms
}

const (
	// grace is how long a session goes on while Redis does not answer.
	grace = 30 * time.Second
	// noteEvery is the most time between two notes that a session is in use.
	noteEvery = 3 * time.Second
	// leastTimeout is for a whole method, of up to two commands.
	leastTimeout = time.Second
	// maxID is longer than any id that Open gives.
	maxID = 64
)

// NewRedis returns the store that a configuration which passed Validate asks
// for. It connects only when used; each method ends within a second, or within
// sessions.redis.timeout where that is longer, and ErrUnavailable is all that a
// Redis that is down leads to. ended, where not nil, is told of each session
// that this replica has used and now forgets: because it ended here, is found
// to have ended elsewhere, or was not used on this replica for Idle. It is
// called in the call that forgets and may call the store. The error is about
// the key or TLS files.
func NewRedis(limits Config, now func() time.Time, ended func(id string), log *slog.Logger) (*Redis, error) {
	if ended == nil {
		ended = func(string) {}
	}
	sealer, err := newSealer(limits.Key, cmp.Or(limits.Redis.Prefix, "regogate"))
	if err != nil {
		return nil, err
	}
	client, err := registry.NewClient(*limits.Redis)
	if err != nil {
		return nil, err
	}
	return &Redis{
		limits: limits, every: min(noteEvery, limits.Idle/10), timeout: max(leastTimeout, limits.Redis.Timeout),
		now: now, ended: ended, client: client, sealer: sealer, held: newHeld(limits), alarms: newAlarms(log, now),
	}, nil
}

// Stop closes the connections. Sessions stay in Redis.
func (r *Redis) Stop() error { return r.client.Close() }

// Problems says why Redis cannot be used, as of the last time that it was.
func (r *Redis) Problems() []string { return r.alarms.problems() }

// Known implements Store.
func (r *Redis) Known() int { return r.held.size() }

// opening keeps a session, unless there are as many as may be. Before that it
// takes out what has expired and then as many of the principal's least recently
// used as are too many. It returns 1 where the session is kept, or 0, and then
// the members that it took out. A client that repeats it after a lost answer
// takes nothing more out.
//
// KEYS: the session, the set of the principal's by last use, the set of all by
// when they end. ARGV: member, sealed session, its time to live, the sets' time
// to live, now, when it ends, most of the principal, most of all, what the keys
// of sessions begin with.
var opening = redis.NewScript(`
local out = {0}
redis.call('ZREM', KEYS[2], ARGV[1]) -- the first time that this ran
redis.call('ZREM', KEYS[3], ARGV[1])
for _, m in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  if redis.call('EXISTS', ARGV[9] .. m) == 0 then
    redis.call('ZREM', KEYS[2], m)
    redis.call('ZREM', KEYS[3], m)
    out[#out + 1] = m
  end
end
while redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[7]) do
  local m = redis.call('ZPOPMIN', KEYS[2])[1]
  redis.call('DEL', ARGV[9] .. m)
  redis.call('ZREM', KEYS[3], m)
  out[#out + 1] = m
end
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', '(' .. ARGV[5])
if redis.call('ZCARD', KEYS[3]) >= tonumber(ARGV[8]) then
  return out
end
out[1] = 1
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('ZADD', KEYS[2], ARGV[5], ARGV[1])
redis.call('ZADD', KEYS[3], ARGV[6], ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
redis.call('PEXPIRE', KEYS[3], ARGV[4])
return out`)

// Open implements Store. A session whose opening Redis carried out without
// being able to say so is known to nobody and ends when it has been idle.
func (r *Redis) Open(ctx context.Context, s Session) (Session, error) {
	s = s.clone()
	s.ID, s.Created = rand.Text(), r.now()
	s.Seen = s.Created
	data, err := encode(s)
	if err != nil {
		return Session{}, err
	}
	sealed, err := r.sealer.seal(data, s.ID, s.Principal)
	if err != nil {
		return Session{}, fmt.Errorf("seal a session: %w", err)
	}
	within, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	n, left := r.sealer.name(s.ID, s.Principal), r.left(s)
	answer, err := opening.Run(within, r.client, []string{n.key, n.mine, n.all}, n.member, sealed,
		left.Milliseconds(), r.longest().Milliseconds(), s.Seen.UnixMilli(), s.Seen.Add(left).UnixMilli(),
		r.limits.PerPrincipal, r.limits.Max, r.sealer.base).Slice()
	if err == nil && len(answer) == 0 {
		err = errors.New("the answer is empty")
	}
	if err != nil {
		return Session{}, r.failed(ctx, "open a session in Redis", err)
	}
	r.alarms.found()
	for _, member := range answer[1:] {
		defer r.tell(r.held.drop(fmt.Sprint(r.sealer.base, member)))
	}
	if answer[0] != int64(1) {
		return Session{}, ErrFull
	}
	r.tell(r.held.add(n.key, s))
	return s, nil
}

// Use implements Store. Where Redis does not answer it returns what this
// replica holds, if that is recent.
func (r *Redis) Use(ctx context.Context, id, principal string) (Session, error) {
	n, now, mark := r.sealer.name(id, principal), r.now(), r.held.mark()
	within, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	s, err := r.find(ctx, within, n, id, principal, now)
	if errors.Is(err, ErrUnavailable) {
		if s, ok := r.held.use(n.key, now, grace); ok {
			return s, nil
		}
	}
	if err != nil {
		return Session{}, err
	}
	s.Seen = now
	if r.held.due(n.key, now, r.every) && !r.note(ctx, within, n, s) {
		r.tell(r.held.drop(n.key))
		return Session{}, ErrUnknown
	}
	r.tell(r.held.confirm(n.key, s, mark))
	return s, nil
}

// Save implements Store.
func (r *Redis) Save(ctx context.Context, s Session) error {
	within, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	n := r.sealer.name(s.ID, s.Principal)
	next, err := r.find(ctx, within, n, s.ID, s.Principal, r.now())
	if err != nil {
		return err
	}
	next.LogLevel, next.Subscriptions = s.LogLevel, s.Subscriptions
	data, err := encode(next)
	if err != nil {
		return err
	}
	sealed, err := r.sealer.seal(data, s.ID, s.Principal)
	if err != nil {
		return fmt.Errorf("seal a session: %w", err)
	}
	// What was closed meanwhile must not come back, and this is no use.
	switch err = r.client.SetArgs(within, n.key, sealed, redis.SetArgs{Mode: "XX", KeepTTL: true}).Err(); {
	case errors.Is(err, redis.Nil):
		r.tell(r.held.drop(n.key))
		return ErrUnknown
	case err != nil:
		return r.failed(ctx, "save a session in Redis", err)
	}
	r.held.change(n.key, next)
	return nil
}

// Close implements Store.
func (r *Redis) Close(ctx context.Context, id, principal string) error {
	within, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	n := r.sealer.name(id, principal)
	if _, err := r.find(ctx, within, n, id, principal, r.now()); err != nil {
		return err
	}
	return r.remove(ctx, within, n)
}
