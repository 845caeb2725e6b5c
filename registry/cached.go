package registry

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"
)

// Cached is a source whose content comes from a Redis that all replicas share.
// What is current only the source itself says; Redis supplies the bytes of
// that digest, and bytes that have another digest are a miss and an alarm. A
// Redis that is down, slow, full or wiped costs a load from the source, never a
// decision. It holds catalogues only, nothing of any user.
type Cached struct {
	source Source
	client redis.UniversalClient
	keys   keys
	ttl    time.Duration
	log    *slog.Logger

	loads     singleflight.Group
	last      atomic.Pointer[Catalogue]    // as loaded
	confirmed atomic.Pointer[confirmation] // by the source, last
	down      trouble                      // Redis cannot be used
	refused   trouble                      // Redis takes no values
	changed   chan struct{}
	supplies  chan supply
	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	running   sync.WaitGroup

	hits, misses, failures, rejected atomic.Int64
}

// keys names what is in Redis. The version changes with the meaning of a
// value, so that replicas of two releases never read each other's.
type keys struct{ prefix string }

func (k keys) index(digest string) string { return k.prefix + ":v3:index:" + digest }
func (k keys) part(r reference) string    { return k.prefix + ":v3:server:" + r.Name + ":" + r.Digest }
func (k keys) latest() string             { return k.prefix + ":v3:latest" }
func (k keys) changed() string            { return k.prefix + ":v3:changed" }

// NewCached returns the source behind the cache. Close closes both the source
// and the client.
func NewCached(source Source, client redis.UniversalClient, prefix string, ttl time.Duration, log *slog.Logger) *Cached {
	ctx, cancel := context.WithCancel(context.Background())
	c := &Cached{
		source: source, client: client, keys: keys{prefix}, ttl: ttl, log: log,
		changed: make(chan struct{}, 1), supplies: make(chan supply, 1), ctx: ctx, cancel: cancel,
	}
	c.down.what = "the registry's cache in Redis cannot be used, catalogues come from the source"
	c.down.over = "the registry's cache in Redis can be used again"
	c.refused.what = "the registry's cache in Redis takes nothing new, catalogues may come from the source"
	c.refused.over = "the registry's cache in Redis takes what is new again"
	c.running.Go(c.forward)
	c.running.Go(c.listen)
	c.running.Go(c.keepSupplied)
	return c
}

// confirmation is what the source said was current when it was asked.
type confirmation struct {
	head  Head
	asked time.Time
}

// Head asks the source; a cache cannot know what is current.
func (c *Cached) Head(ctx context.Context) (Head, error) {
	asked := time.Now()
	head, err := c.source.Head(ctx)
	if err == nil {
		c.confirmed.Store(&confirmation{head, asked})
	}
	return head, err
}

// Load returns the catalogue of the head from Redis, or else from the source;
// then Redis is supplied with it in the background, for the other replicas.
// Callers that ask for the same head at the same time share one load; one that
// gives up does not end it.
func (c *Cached) Load(ctx context.Context, head Head) (*Catalogue, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	result := c.loads.DoChan(head.Revision+" "+head.Digest, func() (any, error) {
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
	found, good := c.get(ctx, head)
	if found != nil {
		c.last.Store(found)
		return found, nil
	}
	loaded, err := c.source.Load(ctx, head)
	if err != nil {
		return nil, err
	}
	if last := c.last.Swap(loaded); good == nil && last != nil {
		good = last.references()
	}
	select {
	case c.supplies <- supply{loaded, good}:
	default: // the next round brings what is current then
	}
	return loaded, nil
}

// Why a catalogue cannot be had from a Redis that answers.
var (
	errMissing  = errors.New("not in Redis")
	errRejected = errors.New("a value in Redis is not what a replica would write")
)

// get returns the catalogue of the head where Redis has all of it, or else nil
// and, where Redis has the index, those parts that could be had. While Redis is
// known not to answer nobody waits for it; listen finds out when it does again.
func (c *Cached) get(ctx context.Context, head Head) (*Catalogue, map[reference]bool) {
	if c.down.now() {
		return nil, nil
	}
	found, good, err := c.fetch(ctx, head)
	switch {
	case err == nil:
		c.hits.Add(1)
	case errors.Is(err, errMissing):
		c.misses.Add(1)
	case !errors.Is(err, errRejected):
		c.failed(&c.down, err)
	}
	return found, good
}

func (c *Cached) fetch(ctx context.Context, head Head) (*Catalogue, map[reference]bool, error) {
	key := c.keys.index(head.Digest)
	// A range rather than a get, so that a huge value is never read whole.
	data, err := c.value(key, c.client.GetRange(ctx, key, 0, maxCatalogue))
	if err != nil {
		return nil, nil, err
	}
	i, err := decodeIndex(data, head)
	if err != nil {
		return nil, nil, c.reject(key, err)
	}
	parts, lacks := c.parts(ctx, i)
	good := make(map[reference]bool, len(i.Parts))
	list := make([]*part, 0, len(i.Parts))
	for _, ref := range i.Parts {
		if p := parts[ref]; p != nil {
			good[ref] = true
			list = append(list, p)
		}
	}
	if lacks != nil {
		return nil, good, lacks
	}
	found, err := assemble(head, i, list)
	if err != nil {
		return nil, nil, c.reject(key, err)
	}
	return found, good, nil
}

// parts returns the parts of an index and, where some lack, why. Those that the
// catalogue loaded last has as well are not asked for again.
func (c *Cached) parts(ctx context.Context, i *index) (found map[reference]*part, lacks error) {
	found = make(map[reference]*part, len(i.Parts))
	if last := c.last.Load(); last != nil {
		for n, p := range last.split() {
			found[last.parts[n]] = &p
		}
	}
	var asked []reference
	var answers []*redis.StringCmd
	pipe, size := c.client.Pipeline(), 0
	for _, ref := range i.Parts {
		if size += ref.Size; ref.Size <= 0 || size > maxCatalogue {
			return nil, c.reject(c.keys.part(ref), errors.New("the index gives it an impossible size"))
		}
		if found[ref] == nil {
			asked = append(asked, ref)
			answers = append(answers, pipe.GetRange(ctx, c.keys.part(ref), 0, int64(ref.Size)))
		}
	}
	if len(asked) > 0 {
		_, _ = pipe.Exec(ctx) // each command has its own error
	}
	for n, ref := range asked {
		p, err := c.part(ref, answers[n])
		if err == nil {
			found[ref] = p
			continue
		}
		// Redis failing is what matters, and an alarm was raised already.
		if lacks == nil || errors.Is(lacks, errMissing) || !errors.Is(err, errMissing) && errors.Is(lacks, errRejected) {
			lacks = err
		}
	}
	return found, lacks
}

func (c *Cached) part(ref reference, answer *redis.StringCmd) (*part, error) {
	key := c.keys.part(ref)
	data, err := c.value(key, answer)
	if err != nil {
		return nil, err
	}
	p, err := decodePart(data, ref)
	if err != nil {
		return nil, c.reject(key, err)
	}
	return p, nil
}

// value returns what is at the key. An absent value reads like an empty one, which
// no replica writes.
func (c *Cached) value(key string, answer *redis.StringCmd) ([]byte, error) {
	data, err := answer.Bytes()
	switch {
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return nil, c.reject(key, err)
	case err == nil && len(data) == 0:
		return nil, errMissing
	}
	return data, err
}

// reject raises the alarm about a value that no replica wrote.
func (c *Cached) reject(key string, err error) error {
	c.rejected.Add(1)
	c.log.Error("a value in Redis is not what a replica would write; it is not used", "key", key, "error", err)
	return errRejected
}

// failed counts a use of Redis that failed and tells which trouble that is.
func (c *Cached) failed(t *trouble, err error) {
	if c.ctx.Err() != nil {
		return
	}
	c.failures.Add(1)
	t.begin(c.log, err)
}

// Changed hints at changes that the source or another replica saw.
func (c *Cached) Changed() <-chan struct{} { return c.changed }

// Problems returns those of the source, and what is wrong with Redis.
func (c *Cached) Problems() []string {
	return append(append(c.down.problems(), c.refused.problems()...), c.source.Problems()...)
}

// CacheStats counts what the cache did since the start.
type CacheStats struct {
	Hits     int64 `json:"hits"`     // catalogues that came from Redis
	Misses   int64 `json:"misses"`   // catalogues that Redis did not have, or not whole
	Failures int64 `json:"failures"` // uses of Redis that had no answer, or an error
	Rejected int64 `json:"rejected"` // values that no replica would have written
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
