package policy

import (
	"hash/maphash"
	"log/slog"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/regogate/regogate/gateway/policy/reads"
)

// Bounds of a cache, apart from CacheConfig.Entries.
const (
	cacheShards = 16
	maxKey      = 4 << 10 // bytes; a longer key is not kept
	maxLists    = 1024
	maxKinds    = 64 // lists whose kinds are known: those of a few registry revisions
	// recheckEvery is how many answers from the cache it takes for one of them to
	// be asked for again and compared.
	recheckEvery = 1024
)

// cache remembers answers of one rule for one snapshot. Two questions share an
// answer only where they agree on everything that can bear on it: the key is the
// part of the input that the analysis of the compiled rules says they can read,
// written out so that no two parts look the same, and the policy, its data and
// their revisions are those of the snapshot that the cache lives in. Answers that
// say something of the moment, such as a timeout, are never kept. A nil cache
// remembers nothing. It is safe for concurrent use.
type cache struct {
	reads    *reads.Reads
	requests bool // the rule reads input.request
	seed     maphash.Seed
	shards   [cacheShards]*lru.Cache[string, verdict]
	lists    *lru.Cache[listKey, *listed]
	kinds    *lru.Cache[*Items, *kinds]
	counters *counters
	log      *slog.Logger
	hits     atomic.Int64 // of this snapshot
	wrong    atomic.Bool  // an answer differed when it was asked for again
}

// verdict is a decision that can be kept.
type verdict uint8

const (
	denied verdict = iota
	allowed
	undefined
)

func (v verdict) decision() Decision {
	switch v {
	case allowed:
		return Decision{Allowed: true}
	case undefined:
		return Decision{Code: CodeUndefined}
	}
	return Decision{}
}

// verdictOf reports whether the decision can be kept.
func verdictOf(d Decision) (verdict, bool) {
	switch {
	case d.Allowed:
		return allowed, true
	case d.Code == CodeUndefined:
		return undefined, true
	}
	return denied, d.Code == ""
}

// listKey is a list that somebody asked for: who and how as far as that matters,
// and the things, which stand for themselves.
type listKey struct {
	asker string
	items *Items
}

// listed is an answered list with the question, for asking it again.
type listed struct {
	answers *Answers
	method  string
	subject *Subject
	request Request
}

// newCache returns a cache for what the rules answer; it is nil, with the
// reason, where answers cannot be kept.
func newCache(r *reads.Reads, cfg CacheConfig, counters *counters, log *slog.Logger) (c *cache, why string) {
	switch {
	case cfg.Disabled:
		return nil, "turned off"
	case r.Unsafe != "":
		return nil, r.Unsafe
	}
	_, _, requests := r.Reaches("request")
	c = &cache{reads: r, requests: requests, seed: maphash.MakeSeed(), counters: counters, log: log}
	for i := range c.shards {
		c.shards[i] = bounded[string, verdict](max(1, cfg.Entries/cacheShards), counters)
	}
	c.lists = bounded[listKey, *listed](maxLists, counters)
	c.kinds = bounded[*Items, *kinds](maxKinds, counters)
	return c, ""
}

func bounded[K comparable, V any](size int, counters *counters) *lru.Cache[K, V] {
	l, err := lru.NewWithEvict(size, func(K, V) { counters.evictions.Add(1) })
	if err != nil {
		panic(err) // the size is positive
	}
	return l
}

// usable reports whether there is a cache and nothing speaks against it.
func (c *cache) usable() bool { return c != nil && !c.wrong.Load() }

// asker is the part of a key that all things of a list have in common.
func (c *cache) asker(method string, s *Subject, r *Request) []byte {
	key := make([]byte, 0, 256)
	key = c.reads.Append(key, "method", ast.String(method))
	key = c.reads.Append(key, "claims", s.claims.Value)
	if c.requests {
		key = c.reads.Append(key, "request", r.term().Value)
	}
	return key
}

// append appends the part of a key that says what is asked about.
func (i *Item) append(key []byte, r *reads.Reads) []byte {
	for _, kind := range allKinds {
		var v ast.Value
		if i.entry[0].Value.Compare(ast.String(kind)) == 0 {
			v = i.entry[1].Value
		}
		key = r.Append(key, string(kind), v)
	}
	return key
}

func (c *cache) shard(key string) *lru.Cache[string, verdict] {
	return c.shards[maphash.String(c.seed, key)%cacheShards]
}

func (c *cache) get(key string) (verdict, bool) {
	v, ok := c.shard(key).Get(key)
	return v, ok
}

func (c *cache) keep(key string, d Decision) {
	if v, ok := verdictOf(d); ok && len(key) <= maxKey {
		c.shard(key).Add(key, v)
	}
}

// due reports whether this answer from the cache is one to compare.
func (c *cache) due() bool { return c.hits.Add(1)%recheckEvery == 0 }

// compare takes an answer that was asked for again. One that differs, which the
// analysis rules out, ends the cache for this snapshot.
func (c *cache) compare(kept, again Decision) {
	if v, ok := verdictOf(again); ok && v.decision() != kept {
		c.wrong.Store(true)
		c.counters.differences.Add(1)
		c.log.Error("a remembered decision differs from the policy's answer: the decision cache is off until the policy changes",
			"remembered", kept.Allowed, "policy", again.Allowed)
	}
}

// describe says how the cache of a rule stands.
func describe(c *cache, why string) string {
	if c == nil {
		return "off: " + why
	}
	return "on"
}

// counters are those of all caches of an engine since its start.
type counters struct {
	hits, misses, evictions, differences atomic.Int64
}

// CacheStats is how the decision caches fare. Hits, misses, evictions and
// differences count since the start, one for a list; the rest is of now.
type CacheStats struct {
	State       string `json:"state"`       // "on", or "off: " and why
	Hits        int64  `json:"hits"`        // questions that were answered without the policy
	Misses      int64  `json:"misses"`      // questions that the policy was asked
	Evictions   int64  `json:"evictions"`   // answers that made room
	Differences int64  `json:"differences"` // answers that were asked for again and had changed: always 0, or a bug
	Entries     int    `json:"entries"`     // answers that are kept, on a kind of thing
	Lists       int    `json:"lists"`       // lists that are kept
}

func (c *cache) stats(why string) CacheStats {
	s := CacheStats{State: describe(c, why)}
	if c == nil {
		return s
	}
	if c.wrong.Load() {
		s.State = "off: a remembered decision differed from the policy's answer"
	}
	for _, shard := range c.shards {
		s.Entries += shard.Len()
	}
	s.Lists = c.lists.Len()
	return s
}
