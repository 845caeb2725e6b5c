package registry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/redis/go-redis/v9"
)

// supplyEvery is how often a replica sees to it that Redis has what is current.
const supplyEvery = 5 * time.Second

// supply is a catalogue that Redis lacks and those of its parts that Redis is not
// given unless they are gone: it has them, or had them at the catalogue before.
type supply struct {
	catalogue *Catalogue
	good      map[reference]bool
}

func (c *Catalogue) references() map[reference]bool {
	set := make(map[reference]bool, len(c.parts))
	for _, ref := range c.parts {
		set[ref] = true
	}
	return set
}

// keepSupplied gives Redis what it was found to lack and, every now and then,
// what the source says is current, until Close: so that a Redis that was wiped,
// evicts or took no values for a while has it again without a replica starting,
// and that what is current does not expire.
func (c *Cached) keepSupplied() {
	every := time.NewTicker(supplyEvery)
	defer every.Stop()
	var s supplier
	for {
		select {
		case <-c.ctx.Done():
			return
		case lack := <-c.supplies:
			s.give(c, lack)
		case <-every.C:
			s.look(c)
		}
	}
}

// supplier is what one replica knows of what it gave.
type supplier struct {
	head  Head      // of the catalogue that was given last
	given time.Time // when that was
	noted time.Time // when the source had confirmed what latest says
}

// give supplies Redis with a catalogue and tells the other replicas.
func (s *supplier) give(c *Cached, lack supply) {
	if c.down.now() || !s.store(c, lack) {
		return
	}
	// A lost hint costs the others half a second, not more.
	_ = c.client.Publish(c.ctx, c.keys.changed(), lack.catalogue.Head.Digest).Err()
	s.note(c, lack.catalogue)
}

// look supplies Redis with what is current where that lacks or would expire.
func (s *supplier) look(c *Cached) {
	last, confirmed := c.last.Load(), c.confirmed.Load()
	if c.down.now() || last == nil || confirmed == nil || confirmed.head != last.Head {
		return
	}
	n, err := c.client.Exists(c.ctx, c.keys.index(last.Head.Digest)).Result()
	if err != nil {
		c.wrote(err)
		return
	}
	if n == 0 || s.head != last.Head || time.Since(s.given) > c.ttl/2 || c.refused.now() {
		if !s.store(c, supply{last, last.references()}) {
			return
		}
	}
	s.note(c, last)
}

// store reports whether Redis has the catalogue now.
func (s *supplier) store(c *Cached, lack supply) bool {
	if !c.wrote(c.store(lack)) {
		return false
	}
	s.head, s.given = lack.catalogue.Head, time.Now()
	return true
}

// note leaves word of what the source confirmed for replicas that start while it
// is out of reach. Those trust nothing that is not signed.
func (s *supplier) note(c *Cached, stored *Catalogue) {
	confirmed := c.confirmed.Load()
	if stored.Signature == "" || confirmed == nil || confirmed.head != stored.Head || !confirmed.asked.After(s.noted) {
		return
	}
	data, err := encodeLatest(*confirmed)
	if err == nil {
		err = c.client.Set(c.ctx, c.keys.latest(), data, c.ttl).Err()
	}
	if c.wrote(err) {
		s.noted = confirmed.asked
	}
}

// wrote says what a write, or a question about it, came to, and reports whether it
// was a success.
func (c *Cached) wrote(err error) bool {
	var refusal redis.Error
	switch {
	case err == nil:
		c.refused.end(c.log)
		return true
	case errors.As(err, &refusal), errors.Is(err, errUnfit):
		c.failed(&c.refused, err)
	default:
		c.failed(&c.down, err)
	}
	return false
}

// errUnfit says that a catalogue could not be read again.
var errUnfit = errors.New("the catalogue cannot be cached")

// store gives Redis the parts that it lacks, and then the index under its digest.
// What it has lives on as long: replicas write a key always with the same bytes.
// The time to live is jittered so that replicas do not fill again all at once.
func (c *Cached) store(lack supply) error {
	encoded, err := lack.catalogue.index()
	if err != nil {
		return err
	}
	if digest(encoded) != lack.catalogue.Head.Digest {
		return fmt.Errorf("%w: the source's digest is not that of its catalogue", errUnfit)
	}
	ttl := c.ttl + rand.N(c.ttl/10+1)
	parts, refs := lack.catalogue.split(), lack.catalogue.parts
	set := func(pipe redis.Pipeliner, n int) error {
		data, err := encodePart(parts[n])
		if err == nil {
			pipe.Set(c.ctx, c.keys.part(refs[n]), data, ttl)
		}
		return err
	}
	size, pipe := len(encoded), c.client.Pipeline()
	kept := map[int]*redis.BoolCmd{}
	for n, ref := range refs {
		if size += ref.Size; size > maxCatalogue {
			return fmt.Errorf("%w: it is larger than %d bytes", errUnfit, maxCatalogue)
		}
		if lack.good[ref] {
			kept[n] = pipe.Expire(c.ctx, c.keys.part(ref), ttl)
		} else if err := set(pipe, n); err != nil {
			return err
		}
	}
	if pipe.Len() > 0 {
		if _, err := pipe.Exec(c.ctx); err != nil {
			return err
		}
	}
	for n, cmd := range kept {
		if !cmd.Val() {
			if err := set(pipe, n); err != nil {
				return err
			}
		}
	}
	pipe.Set(c.ctx, c.keys.index(lack.catalogue.Head.Digest), encoded, ttl)
	_, err = pipe.Exec(c.ctx)
	return err
}

// latest is what replicas leave in Redis of what the source said.
type latest struct {
	Revision  string    `json:"revision"`
	Digest    string    `json:"digest"`
	Confirmed time.Time `json:"confirmed"` // when the source was asked
}

// maxLatest is more than any latest takes, in bytes.
const maxLatest = 1 << 10

func encodeLatest(c confirmation) ([]byte, error) {
	data, err := json.Marshal(latest{c.head.Revision, c.head.Digest, c.asked.UTC()})
	if err != nil {
		return nil, fmt.Errorf("encode what the source said: %w", err)
	}
	return data, nil
}

func decodeLatest(data []byte) (Head, time.Time, error) {
	var l latest
	if err := json.Unmarshal(data, &l, json.RejectUnknownMembers(true)); err != nil {
		return Head{}, time.Time{}, err
	}
	c := checker{}
	c.text("revision", l.Revision, maxRevision)
	if len(c.problems) > 0 || l.Revision == "" || !validSHA256(l.Digest) || l.Confirmed.IsZero() {
		return Head{}, time.Time{}, errors.New("want a revision, a digest and when it was confirmed")
	}
	return Head{Revision: l.Revision, Digest: l.Digest}, l.Confirmed, nil
}

// maxRevision bounds a revision that is not the source's own word, in bytes.
const maxRevision = 128

// Remembered returns the catalogue that the replicas left in Redis, and when the
// source last confirmed it to one of them. Who can write Redis can put there what
// was current once, without its quarantine, or anything at all: the caller has to
// verify the signature, and the time is that one's word.
func (c *Cached) Remembered(ctx context.Context) (*Catalogue, time.Time, error) {
	if why := c.down.problems(); len(why) > 0 {
		return nil, time.Time{}, errors.New(why[0])
	}
	key := c.keys.latest()
	data, err := c.value(key, c.client.GetRange(ctx, key, 0, maxLatest))
	if errors.Is(err, errMissing) {
		return nil, time.Time{}, errors.New("no replica left a signed catalogue in Redis")
	}
	if err != nil {
		if !errors.Is(err, errRejected) {
			c.failed(&c.down, err)
		}
		return nil, time.Time{}, fmt.Errorf("ask Redis for what the replicas remember: %w", err)
	}
	head, confirmed, err := decodeLatest(data)
	if err != nil {
		return nil, time.Time{}, c.reject(key, err)
	}
	if last := c.last.Load(); last != nil && last.Head == head {
		return last, confirmed, nil
	}
	found, _ := c.get(ctx, head)
	if found == nil {
		return nil, time.Time{}, fmt.Errorf("revision %s, which the replicas remember, is not in Redis any more", head.Revision)
	}
	c.last.Store(found)
	return found, confirmed, nil
}
