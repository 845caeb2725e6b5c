package session

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxSealed bounds what is read of a value that anybody may have written.
const maxSealed = maxFacts + overhead

// find returns the session that Redis has under the name. The error is
// ErrUnknown where there is none, after this replica has forgotten it too, or
// that of failed. ctx is the caller's, within the bounded one.
func (r *Redis) find(ctx, within context.Context, n name, id, principal string, now time.Time) (Session, error) {
	if id == "" || len(id) > maxID {
		return Session{}, ErrUnknown
	}
	// A range rather than a get, so that a huge value is never read whole; a
	// part of one does not open.
	sealed, err := r.client.GetRange(within, n.key, 0, maxSealed-1).Bytes()
	if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
		return Session{}, r.failed(ctx, "find a session in Redis", err)
	}
	r.alarms.found()
	if err == nil && len(sealed) > 0 {
		var s Session
		if s, err = r.read(sealed, id, principal); err == nil && now.Sub(s.Created) <= r.limits.Lifetime {
			return s, nil
		}
	}
	if err != nil {
		r.alarms.raise(slog.LevelError, "a value in Redis is not a session that a replica sealed; it is not used",
			"key", n.key, "error", err)
	}
	r.tell(r.held.drop(n.key))
	return Session{}, ErrUnknown
}

func (r *Redis) read(sealed []byte, id, principal string) (Session, error) {
	data, err := r.sealer.open(sealed, id, principal)
	if err != nil {
		return Session{}, err
	}
	return decode(data, id, principal)
}

// noting tells that a session is in use, unless it has ended, and returns
// whether it is there.
//
// KEYS as of opening. ARGV: member, the session's time to live, the sets' time
// to live, now, when it ends.
var noting = redis.NewScript(`
if redis.call('PEXPIRE', KEYS[1], ARGV[2]) == 0 then
  return 0
end
redis.call('ZADD', KEYS[2], ARGV[4], ARGV[1])
redis.call('ZADD', KEYS[3], ARGV[5], ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
redis.call('PEXPIRE', KEYS[3], ARGV[3])
return 1`)

// note tells Redis that the session is in use and reports whether it is still
// there, as far as can be known: a note that fails is made up for later.
func (r *Redis) note(ctx, within context.Context, n name, s Session) bool {
	left := r.left(s)
	there, err := noting.Run(within, r.client, []string{n.key, n.mine, n.all}, n.member,
		left.Milliseconds(), r.longest().Milliseconds(), s.Seen.UnixMilli(), s.Seen.Add(left).UnixMilli()).Bool()
	if err != nil && ctx.Err() == nil {
		r.alarms.raise(slog.LevelWarn, "the use of a session cannot be noted in Redis", "key", n.key, "error", err)
	}
	return there || err != nil
}

// remove takes the session out of Redis and forgets it. The error is
// ErrUnknown where it was not there any more, or that of failed.
func (r *Redis) remove(ctx, within context.Context, n name) error {
	var removed *redis.IntCmd
	_, err := r.client.Pipelined(within, func(p redis.Pipeliner) error {
		removed = p.Del(within, n.key)
		p.ZRem(within, n.mine, n.member)
		p.ZRem(within, n.all, n.member)
		return nil
	})
	if err != nil && removed.Err() != nil {
		return r.failed(ctx, "close a session in Redis", err)
	}
	r.tell(r.held.drop(n.key))
	if removed.Val() == 0 {
		return ErrUnknown
	}
	return nil
}

// longest is how long the sets outlive the last session in them: no session
// lives longer.
func (r *Redis) longest() time.Duration { return r.limits.Lifetime + time.Millisecond }

// left is how long a session lives on if it is not used again: a little longer
// than idle, as not every use is noted, and never beyond its lifetime.
func (r *Redis) left(s Session) time.Duration {
	return max(time.Millisecond, min(r.limits.Idle+r.every, s.Created.Add(r.limits.Lifetime).Sub(s.Seen)))
}

// failed returns the error of an attempt that Redis did not carry out:
// ErrUnavailable, or the error of the caller's context where that has ended.
func (r *Redis) failed(ctx context.Context, attempt string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", attempt, ctx.Err())
	}
	r.alarms.lost(err)
	return fmt.Errorf("%s: %w: %w", attempt, ErrUnavailable, err)
}

func (r *Redis) tell(ended []string) {
	for _, id := range ended {
		r.ended(id)
	}
}
