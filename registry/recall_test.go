package registry

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// signedOf is a catalogue of the tools that the ring's key signed now.
func signedOf(t *testing.T, ring *keyring, tools ...Tool) *Catalogue {
	t.Helper()
	c, err := NewCatalogue("7", *signed(t, mustCatalogue(t, tools...), ring.private["a"], Claims{}, time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// memory is a source that remembers what a test says.
type memory struct {
	scripted
	remembered *Catalogue
	at         time.Time
	asked      int
}

func (m *memory) Remembered(context.Context) (*Catalogue, time.Time, error) {
	m.asked++
	if m.remembered == nil {
		return nil, time.Time{}, errors.New("nothing is remembered")
	}
	return m.remembered, m.at, nil
}

func TestKeeperRecalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("down")
		ring := newKeyring(t, "a")
		start := time.Now()
		m := &memory{scripted: scripted{headErr: down}, remembered: signedOf(t, ring, validTool("a", "t")), at: start.Add(-10 * time.Second)}
		var log logged
		k := NewKeeper(m, Config{}, log.logger())
		k.verifier = ring.verifier(t)
		refresh := func(wantErr bool) {
			t.Helper()
			if err := k.Refresh(t.Context()); errors.Is(err, down) != wantErr {
				t.Fatalf("error %v", err)
			}
		}
		refresh(true)
		if st := k.Status(); !st.Ready || st.Revision != "7" || st.Age != 10*time.Second || len(st.Problems) != 1 ||
			st.Problems[0] != "ask the registry for its revision: down" {
			t.Errorf("status %+v", st)
		}
		first := k.Current()
		time.Sleep(20*time.Second + 1)
		refresh(true)
		if k.Fresh(time.Now()) || k.Current() != first {
			t.Error("fresh although nobody has asked the source for longer than the maximum staleness")
		}
		// Another replica reaches it.
		m.at = time.Now().Add(-time.Second)
		refresh(true)
		if st := k.Status(); !st.Ready || st.Age != time.Second || k.Current() != first {
			t.Errorf("status %+v", st)
		}
		m.remembered, m.at = signedOf(t, ring, validTool("a", "u")), time.Now().Add(time.Hour) // its clock is wrong
		refresh(true)
		if _, ok := k.Current().Lookup("a", "u"); !ok || k.Status().Age != 0 {
			t.Errorf("the other replica's change did not arrive, age %s", k.Status().Age)
		}
		m.remembered, m.at = signedOf(t, ring, validTool("a", "t")), time.Now().Add(-time.Second) // it has not seen the change
		refresh(true)
		if _, ok := k.Current().Lookup("a", "u"); !ok || k.Status().Age != 0 || len(k.Status().Problems) != 1 {
			t.Errorf("status %+v", k.Status())
		}
		time.Sleep(time.Second)
		m.at = time.Now()
		m.remembered = signedOf(t, newKeyring(t, "a"), validTool("a", "v"))
		refresh(true)
		if _, ok := k.Current().Lookup("a", "u"); !ok || k.Status().Age != time.Second {
			t.Errorf("age %s", k.Status().Age)
		}
		if p := k.Status().Problems[0]; p != "ask the registry for its revision: down; nor can it come from the cache: its signature is not what ES256 and key \"a\" made of it: another key did, or somebody changed it; sign the catalogue again" {
			t.Errorf("problem %q", p)
		}
		// Once the source has answered, only the source counts.
		m.headErr, m.catalogue = nil, signedOf(t, ring, validTool("a", "w"))
		refresh(false)
		m.headErr, m.remembered, m.at, m.asked = down, signedOf(t, ring, validTool("a", "t")), time.Now(), 0
		refresh(true)
		if _, ok := k.Current().Lookup("a", "w"); !ok || m.asked != 0 {
			t.Errorf("asked %d times for what is remembered", m.asked)
		}
		if n := log.count("comes from the cache"); n != 1 {
			t.Errorf("it was logged %d times", n)
		}
	})
}

// What is remembered counts for nothing unless signatures are checked, and this
// one is good; and never replaces newer knowledge.
func TestKeeperDoesNotRecall(t *testing.T) {
	ring, tool := newKeyring(t, "a"), validTool("a", "t")
	for name, c := range map[string]struct {
		verifier   *Verifier
		remembered *Catalogue
	}{
		"no verification": {nil, signedOf(t, ring, tool)},
		"forged":          {ring.verifier(t), signedOf(t, newKeyring(t, "a"), tool)},
		"not signed":      {ring.verifier(t), mustCatalogue(t, tool)},
		"nothing":         {ring.verifier(t), nil},
	} {
		t.Run(name, func(t *testing.T) {
			down := errors.New("down")
			m := &memory{scripted: scripted{headErr: down}, remembered: c.remembered, at: time.Now()}
			k := NewKeeper(m, Config{InsecureServeStale: true}, quiet())
			k.verifier = c.verifier
			if err := k.Refresh(t.Context()); !errors.Is(err, down) || k.Current() != nil || k.Fresh(time.Now()) {
				t.Errorf("error %v, snapshot %v", err, k.Current())
			}
		})
	}
}

// A replica starts while the source is out of its reach and another one's, and
// each fault of what is in Redis is found.
func TestRememberedInRedis(t *testing.T) {
	down := errors.New("down")
	ring := newKeyring(t, "a")
	signed := signedOf(t, ring, validTool("a", "t"), validTool("b", "t"))
	const latest = "gw:v3:latest"
	keys := keysOf(signed)
	for name, c := range map[string]struct {
		spoil func(m *miniredis.Miniredis)
		want  string // in the problem; "" is none
	}{
		"all is well": {func(*miniredis.Miniredis) {}, ""},
		"nothing":     {func(m *miniredis.Miniredis) { m.Del(latest) }, "no replica left a signed catalogue in Redis"},
		"empty":       {func(m *miniredis.Miniredis) { m.Set(latest, "{}") }, "not what a replica would write"},
		"not JSON":    {func(m *miniredis.Miniredis) { m.Set(latest, "x") }, "not what a replica would write"},
		"huge":        {func(m *miniredis.Miniredis) { m.Set(latest, strings.Repeat(" ", 2*maxLatest)) }, "not what a replica would write"},
		"another type": {func(m *miniredis.Miniredis) { m.Del(latest); m.Lpush(latest, "x") },
			"not what a replica would write"},
		"bad revision": {func(m *miniredis.Miniredis) {
			v, _ := m.Get(latest)
			m.Set(latest, strings.Replace(v, `"revision":"7"`, `"revision":"7\n"`, 1))
		}, "not what a replica would write"},
		"no index":        {func(m *miniredis.Miniredis) { m.Del(keys[0]) }, "is not in Redis any more"},
		"no part":         {func(m *miniredis.Miniredis) { m.Del(keys[1]) }, "is not in Redis any more"},
		"part of another": {func(m *miniredis.Miniredis) { v, _ := m.Get(keys[2]); m.Set(keys[1], v) }, "is not in Redis any more"},
		"signed by nobody": {func(m *miniredis.Miniredis) {
			other := signedOf(t, newKeyring(t, "a"), signed.Tools...)
			index, _ := encoded(t, other)
			m.Set(keysOf(other)[0], index)
			v, _ := m.Get(latest)
			m.Set(latest, strings.Replace(v, signed.Head.Digest, other.Head.Digest, 1))
		}, "its signature is not what ES256 and key \"a\" made of it"},
		"impossible size": {func(m *miniredis.Miniredis) {
			index := indexOf(t, reference{Name: "a", Digest: signed.parts[0].Digest, Size: -1})
			m.Set("gw:v3:index:"+sealed(index).Digest, index)
			v, _ := m.Get(latest)
			m.Set(latest, strings.Replace(v, signed.Head.Digest, sealed(index).Digest, 1))
		}, "is not in Redis any more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := miniredis.RunT(t)
			one := cachedOver(t, &scripted{catalogue: signed}, redis.Addr())
			before := time.Now()
			load(t, one)
			eventually(t, 20*time.Second, "it is remembered", func() bool { return redis.Exists(latest) })
			c.spoil(redis)

			two := cachedOver(t, &scripted{headErr: down}, redis.Addr())
			k := NewKeeper(two, Config{}, quiet())
			k.verifier = ring.verifier(t)
			if err := k.Refresh(t.Context()); !errors.Is(err, down) || strings.Contains(err.Error(), "cache") != (c.want != "") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v", err)
			}
			if c.want != "" {
				if k.Current() != nil {
					t.Error("it was taken")
				}
				return
			}
			if s := k.Current(); s == nil || !reflect.DeepEqual(s.Tools(), signed.Tools) || s.Revision() != "7" || !k.Fresh(time.Now()) {
				t.Fatalf("snapshot %+v", s)
			}
			if age := k.Status().Age; age > time.Since(before) || age < 0 {
				t.Errorf("age %s", age)
			}
		})
	}
}

// What nobody may trust is not written, and what the source has not confirmed
// again is not written again.
func TestLatestIsWrittenWithCare(t *testing.T) {
	redis := miniredis.RunT(t)
	source := scriptedOf(t, validTool("a", "t"))
	c := cachedOver(t, source, redis.Addr())
	supplied(t, redis, load(t, c))

	signed := signedOf(t, newKeyring(t, "a"), validTool("a", "t"))
	source.set(func(s *scripted) { s.catalogue = signed })
	load(t, c)
	const key = "gw:v3:latest"
	eventually(t, 20*time.Second, "it is remembered", func() bool { return redis.Exists(key) })
	v, err := redis.Get(key)
	if err != nil {
		t.Fatal(err)
	}
	h, at, err := decodeLatest([]byte(v))
	if err != nil || h != signed.Head || time.Since(at) > time.Minute || time.Since(at) < 0 {
		t.Errorf("head %v at %s, error %v", h, at, err)
	}
	if ttl := redis.TTL(key); ttl != cacheTTL {
		t.Errorf("time to live %s", ttl)
	}
	redis.Del(key)
	s := supplier{noted: c.confirmed.Load().asked}
	s.note(c, signed)
	if redis.Exists(key) {
		t.Error("an old confirmation was written again")
	}
	head(t, c)
	s.note(c, signed)
	if !redis.Exists(key) {
		t.Error("a new confirmation was not written")
	}
}
