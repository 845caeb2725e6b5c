package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"
)

// Cached is a source whose content comes from a Redis that all replicas share.
// What is current only the source itself says; Redis supplies the bytes of
// that digest, and bytes that have another digest are a miss and an alarm. A
// Redis that is down, slow or wiped costs a load from the source, never a
// decision. It holds catalogues only, nothing of any user.
type Cached struct {
	source Source
	client redis.UniversalClient
	keys   keys
	ttl    time.Duration
	log    *slog.Logger

	fills   singleflight.Group
	last    atomic.Pointer[Catalogue]
	down    atomic.Pointer[string] // why Redis cannot be used, or nil
	changed chan struct{}
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup

	hits, misses, failures, rejected atomic.Int64
}

// keys names what is in Redis. The version changes with the meaning of a
// value, so that replicas of two releases never read each other's.
type keys struct{ prefix string }

func (k keys) index(digest string) string { return k.prefix + ":v3:index:" + digest }
func (k keys) part(r reference) string    { return k.prefix + ":v3:server:" + r.Name + ":" + r.Digest }
func (k keys) changed() string            { return k.prefix + ":v3:changed" }

// NewCached returns the source behind the cache. Close closes both the source
// and the client.
func NewCached(source Source, client redis.UniversalClient, prefix string, ttl time.Duration, log *slog.Logger) *Cached {
	ctx, cancel := context.WithCancel(context.Background())
	c := &Cached{
		source: source, client: client, keys: keys{prefix}, ttl: ttl, log: log,
		changed: make(chan struct{}, 1), ctx: ctx, cancel: cancel,
	}
	c.running.Go(c.forward)
	c.running.Go(c.listen)
	return c
}

// Head asks the source; a cache cannot know what is current.
func (c *Cached) Head(ctx context.Context) (Head, error) { return c.source.Head(ctx) }

// Load returns the catalogue of the head from Redis, or else from the source,
// and leaves it in Redis for the other replicas. Callers that ask for the same
// head at the same time share one load; one that gives up does not end it.
func (c *Cached) Load(ctx context.Context, head Head) (*Catalogue, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	result := c.fills.DoChan(head.Revision+" "+head.Digest, func() (any, error) {
		ctx, cancel := context.WithTimeout(c.ctx, loadTimeout)
		defer cancel()
		return c.load(ctx, head)
	})
	select {
	case <-ctx.Done():
		// Close waits for what was given up, so that it never outlives the source.
		c.running.Go(func() { <-result })
		return nil, ctx.Err()
	case r := <-result:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*Catalogue), nil
	}
}

func (c *Cached) load(ctx context.Context, head Head) (*Catalogue, error) {
	cached, good, usable := c.get(ctx, head)
	if cached == nil {
		loaded, err := c.source.Load(ctx, head)
		if err != nil {
			return nil, err
		}
		if cached = loaded; usable {
			c.put(ctx, loaded, good)
		}
	}
	c.last.Store(cached)
	return cached, nil
}

// get returns the cached catalogue or nil, the parts of it that Redis has, and
// whether Redis answers at all. While it is known not to, nobody waits for it;
// listen finds out when it does again.
func (c *Cached) get(ctx context.Context, head Head) (_ *Catalogue, good map[reference]bool, usable bool) {
	if c.down.Load() != nil {
		return nil, nil, false
	}
	key := c.keys.index(head.Digest)
	// A range rather than a get, so that a huge value is never read whole.
	data, err := c.client.GetRange(ctx, key, 0, maxCatalogue).Bytes()
	if err != nil || len(data) == 0 {
		return nil, nil, c.missed(key, err)
	}
	i, err := decodeIndex(data, head)
	if err != nil {
		return nil, nil, c.reject(key, err)
	}
	parts, usable := c.parts(ctx, i)
	good = make(map[reference]bool, len(parts))
	list := make([]*part, 0, len(parts))
	for _, ref := range i.Parts {
		if p := parts[ref]; p != nil {
			good[ref] = true
			list = append(list, p)
		}
	}
	if len(list) < len(i.Parts) {
		return nil, good, usable
	}
	found, err := assemble(head, i, list)
	if err != nil {
		return nil, nil, c.reject(key, err)
	}
	c.hits.Add(1)
	return found, good, true
}

// parts reads the parts of an index, save those that the catalogue loaded last
// has as well.
func (c *Cached) parts(ctx context.Context, i *index) (_ map[reference]*part, usable bool) {
	found := make(map[reference]*part, len(i.Parts))
	if last := c.last.Load(); last != nil {
		for n, p := range last.split() {
			found[last.parts[n]] = &p
		}
	}
	asked := map[reference]*redis.StringCmd{}
	pipe := c.client.Pipeline()
	for _, ref := range i.Parts {
		if found[ref] == nil {
			asked[ref] = pipe.GetRange(ctx, c.keys.part(ref), 0, int64(ref.Size))
		}
	}
	if len(asked) == 0 {
		return found, true
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	usable = true
	for ref, cmd := range asked {
		key := c.keys.part(ref)
		data, err := cmd.Bytes()
		if err != nil || len(data) == 0 {
			usable = c.missed(key, err) && usable
			continue
		}
		p, err := decodePart(data, ref)
		if err != nil {
			c.reject(key, err)
			continue
		}
		found[ref] = p
	}
	return found, usable
}

// missed counts a value that is not there or could not be had, and reports
// whether Redis answers.
func (c *Cached) missed(key string, err error) (usable bool) {
	switch {
	case err != nil && isReply(err):
		return c.reject(key, err)
	case err != nil:
		c.failures.Add(1)
		c.setDown(err)
		return false
	}
	c.misses.Add(1)
	return true
}

// reject raises the alarm about a value that no replica wrote.
func (c *Cached) reject(key string, err error) (usable bool) {
	c.rejected.Add(1)
	c.log.Error("a value in Redis is not what a replica would write; it is not used", "key", key, "error", err)
	return true
}

// isReply reports whether the error is about the value rather than about the
// server's health.
func isReply(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

// put stores the parts that Redis does not have, and the index under its digest
// when they are there, and tells the other replicas. The time to live is jittered
// so that replicas do not fill again all at once.
func (c *Cached) put(ctx context.Context, loaded *Catalogue, good map[reference]bool) {
	err := c.store(ctx, loaded, good)
	if err != nil {
		c.failures.Add(1)
		c.log.Warn("the catalogue is not in Redis", "revision", loaded.Head.Revision, "error", err)
		return
	}
	// A lost hint costs the others half a second, not more.
	_ = c.client.Publish(ctx, c.keys.changed(), loaded.Head.Digest).Err()
}

func (c *Cached) store(ctx context.Context, loaded *Catalogue, good map[reference]bool) error {
	encoded, err := loaded.index()
	if err != nil {
		return err
	}
	if digest(encoded) != loaded.Head.Digest {
		return errors.New("the source's digest is not that of its catalogue")
	}
	ttl := c.ttl + rand.N(c.ttl/10+1)
	size, pipe := len(encoded), c.client.Pipeline()
	for n, p := range loaded.split() {
		ref := loaded.parts[n]
		if size += ref.Size; good[ref] {
			pipe.Expire(ctx, c.keys.part(ref), ttl)
			continue
		}
		data, err := encodePart(p)
		if err != nil {
			return err
		}
		pipe.Set(ctx, c.keys.part(ref), data, ttl)
	}
	if size > maxCatalogue {
		return fmt.Errorf("it is larger than %d bytes", maxCatalogue)
	}
	if pipe.Len() > 0 {
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return c.client.Set(ctx, c.keys.index(loaded.Head.Digest), encoded, ttl).Err()
}

// Changed hints at changes that the source or another replica saw.
func (c *Cached) Changed() <-chan struct{} { return c.changed }

// Problems returns those of the source, and why Redis cannot be used.
func (c *Cached) Problems() []string {
	problems := c.source.Problems()
	if why := c.down.Load(); why != nil {
		problems = append([]string{*why}, problems...)
	}
	return problems
}

// CacheStats counts what the cache did since the start.
type CacheStats struct {
	Hits     int64
	Misses   int64
	Failures int64 // Redis did not answer, or with an error
	Rejected int64 // values that no replica would have written
}

// Stats returns the counts.
func (c *Cached) Stats() CacheStats {
	return CacheStats{c.hits.Load(), c.misses.Load(), c.failures.Load(), c.rejected.Load()}
}

// Close ends what runs in the background and closes the client and the source.
func (c *Cached) Close() error {
	c.cancel()
	err := c.client.Close()
	c.running.Wait()
	return errors.Join(err, c.source.Close())
}

// forward passes the source's hints on.
func (c *Cached) forward() {
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.source.Changed():
			hint(c.changed)
		}
	}
}
