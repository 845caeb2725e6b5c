package registry

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// scripted is a source that does what a test says.
type scripted struct {
	mu        sync.Mutex
	catalogue *Catalogue
	headErr   error
	loadErr   error
	slow      time.Duration
	problems  []string

	heads, loads atomic.Int64
	changed      chan struct{}
	closed       atomic.Bool
}

func (s *scripted) set(change func(*scripted)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *scripted) Head(ctx context.Context) (Head, error) {
	s.heads.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slow > 0 {
		select {
		case <-ctx.Done():
			return Head{}, ctx.Err()
		case <-time.After(s.slow):
		}
	}
	if s.headErr != nil {
		return Head{}, s.headErr
	}
	return s.catalogue.Head, nil
}

func (s *scripted) Load(ctx context.Context, _ Head) (*Catalogue, error) {
	s.loads.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loadErr != nil {
		return nil, s.loadErr
	}
	return s.catalogue, ctx.Err()
}

func (s *scripted) Changed() <-chan struct{} { return s.changed }
func (s *scripted) Problems() []string       { return s.problems }
func (s *scripted) Close() error             { s.closed.Store(true); return nil }

func TestKeeperFreshness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &scripted{catalogue: mustCatalogue(t, validTool("a", "t"))}
		var log bytes.Buffer
		k := NewKeeper(source, Config{}, slog.New(slog.NewTextHandler(&log, nil)))
		if k.Current() != nil || k.Fresh(time.Now()) || k.Status().Ready {
			t.Error("ready before the first refresh")
		}
		if err := k.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		source.headErr = errors.New("out of reach")
		for _, c := range []struct {
			at    time.Duration
			fresh bool
		}{{0, true}, {29 * time.Second, true}, {30 * time.Second, true}, {30*time.Second + 1, false}, {time.Hour, false}} {
			time.Sleep(time.Until(start.Add(c.at)))
			if err := k.Refresh(t.Context()); !errors.Is(err, source.headErr) {
				t.Errorf("error %v", err)
			}
			st := k.Status()
			if k.Fresh(time.Now()) != c.fresh || st.Ready != c.fresh || st.Stale == c.fresh || st.Age != c.at {
				t.Errorf("%s without confirmation: %+v", c.at, st)
			}
			if len(st.Problems) != 1 || st.Problems[0] != "ask the registry for its revision: out of reach" {
				t.Errorf("problems %q", st.Problems)
			}
		}
		if _, found := k.Current().Lookup("a", "t"); !found {
			t.Error("the last good snapshot is gone")
		}
		source.headErr = nil
		if err := k.Refresh(t.Context()); err != nil || !k.Fresh(time.Now()) || len(k.Status().Problems) != 0 {
			t.Errorf("not well again: %v, %+v", err, k.Status())
		}
		for line, want := range map[string]int{
			"registry loaded": 1, "registry cannot be refreshed": 1, "registry is stale": 1, "registry can be refreshed again": 1,
		} {
			if got := strings.Count(log.String(), line); got != want {
				t.Errorf("%q logged %d times, want %d", line, got, want)
			}
		}
	})
}

// A head that cannot be loaded proves that the snapshot is old, so it confirms
// nothing.
func TestKeeperLoadFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &scripted{catalogue: mustCatalogue(t, validTool("a", "t"))}
		k := NewKeeper(source, Config{MaxStaleness: 2 * time.Second}, quiet())
		if err := k.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		old := k.Current()
		source.catalogue, source.loadErr = mustCatalogue(t), errors.New("broken off")
		for range 3 {
			time.Sleep(time.Second)
			if err := k.Refresh(t.Context()); !errors.Is(err, source.loadErr) {
				t.Errorf("error %v", err)
			}
		}
		if k.Current() != old || k.Fresh(time.Now()) {
			t.Errorf("current %v, fresh %v", k.Current(), k.Fresh(time.Now()))
		}
		source.loadErr = nil
		if err := k.Refresh(t.Context()); err != nil || len(k.Current().Tools()) != 0 || !k.Fresh(time.Now()) {
			t.Errorf("error %v, tools %v", err, k.Current().Tools())
		}
	})
}

// The answer of a slow source is as old as the question.
func TestKeeperCountsFromTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &scripted{catalogue: mustCatalogue(t), slow: time.Second}
		k := NewKeeper(source, Config{}, quiet())
		if err := k.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if age := k.Status().Age; age != time.Second {
			t.Errorf("age %s right after a refresh that took a second", age)
		}
		source.slow = time.Hour
		start := time.Now()
		if err := k.Refresh(t.Context()); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != askTimeout {
			t.Errorf("error %v after %s", err, time.Since(start))
		}
	})
}

func TestKeeperServesStaleWhenToldTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &scripted{catalogue: mustCatalogue(t), headErr: errors.New("down")}
		k := NewKeeper(source, Config{InsecureServeStale: true}, quiet())
		k.Refresh(t.Context())
		if k.Fresh(time.Now()) {
			t.Error("serving without any snapshot")
		}
		source.headErr = nil
		k.Refresh(t.Context())
		time.Sleep(time.Hour)
		if st := k.Status(); !k.Fresh(time.Now()) || !st.Ready || !st.Stale {
			t.Errorf("status %+v", st)
		}
	})
}

func TestKeeperRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &scripted{catalogue: mustCatalogue(t, validTool("a", "t")), changed: make(chan struct{}, 1)}
		k := NewKeeper(source, Config{}, quiet())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- k.Run(ctx) }()
		synctest.Wait()
		if _, ok := <-k.Changed(); !ok || source.heads.Load() != 1 || source.loads.Load() != 1 {
			t.Errorf("%d heads, %d loads at the start", source.heads.Load(), source.loads.Load())
		}
		time.Sleep(10*time.Second + time.Millisecond)
		if heads, loads := source.heads.Load(), source.loads.Load(); heads != 21 || loads != 1 {
			t.Errorf("%d heads and %d loads in ten quiet seconds", heads, loads)
		}
		select {
		case <-k.Changed():
			t.Error("a change without a change")
		default:
		}
		// A hint is followed at once, a storm of them ten times a second.
		time.Sleep(200 * time.Millisecond)
		source.set(func(s *scripted) { s.catalogue = mustCatalogue(t) })
		hint(source.changed)
		synctest.Wait()
		if len(k.Current().Tools()) != 0 {
			t.Error("the hint was not followed")
		}
		before := source.heads.Load()
		for range 1000 {
			hint(source.changed)
			time.Sleep(time.Millisecond)
		}
		if n := source.heads.Load() - before; n < 9 || n > 11 {
			t.Errorf("%d heads in a second of hints", n)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := k.Close(); err != nil || !source.closed.Load() {
			t.Errorf("close: %v", err)
		}
	})
}

func TestKeeperStatus(t *testing.T) {
	source := &scripted{catalogue: mustCatalogue(t, validTool("a", "t"), Tool{Server: "a", Name: "u", Suggested: true}), problems: []string{"p"}}
	k := NewKeeper(source, Config{}, quiet())
	if err := k.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	st := k.Status()
	if !st.Ready || st.Stale || st.Tools != 1 || st.Suggested != 1 || st.Revision != source.catalogue.Head.Revision ||
		st.Digest != source.catalogue.Head.Digest || len(st.Problems) != 1 || st.Problems[0] != "p" {
		t.Errorf("%+v", st)
	}
}

// Readers never wait for a refresh and never see half of one.
func TestKeeperConcurrentReaders(t *testing.T) {
	small, large := mustCatalogue(t, validTool("a", "t")), mustCatalogue(t, validTool("a", "t"), validTool("a", "u"))
	source := &scripted{catalogue: small}
	k := NewKeeper(source, Config{}, quiet())
	if err := k.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				s := k.Current()
				_, found := s.Lookup("a", "u")
				if found != (s.Digest() == large.Head.Digest) || len(s.Tools()) == 1 == found {
					t.Error("a mixed snapshot")
					return
				}
			}
		})
	}
	for i := range 200 {
		source.set(func(s *scripted) { s.catalogue = []*Catalogue{small, large}[i%2] })
		if err := k.Refresh(t.Context()); err != nil {
			t.Error(err)
		}
	}
	close(done)
	readers.Wait()
}

func TestSnapshot(t *testing.T) {
	c := mustCatalogue(t, validTool("b", "t"), validTool("a", "u"), validTool("a", "t"), Tool{Server: "a", Name: "maybe", Suggested: true})
	now := time.Now()
	s := NewSnapshot(c, now)
	if tool, ok := s.Lookup("a", "u"); !ok || tool.Server != "a" || tool.Name != "u" {
		t.Errorf("a/u: %+v, %v", tool, ok)
	}
	for _, p := range [][2]string{{"a", "maybe"}, {"A", "t"}, {"b", "u"}, {"", ""}, {"a", "t "}} {
		if tool, ok := s.Lookup(p[0], p[1]); ok || tool != nil {
			t.Errorf("%q is registered", p)
		}
	}
	var names []string
	for _, tool := range s.Tools() {
		names = append(names, tool.Server+"/"+tool.Name)
	}
	if got := strings.Join(names, " "); got != "a/t a/u b/t" {
		t.Errorf("tools %s", got)
	}
	if server, ok := s.Server("a"); !ok || !reflect.DeepEqual(*server, validServer("a")) {
		t.Errorf("server a: %+v, %v", server, ok)
	}
	for _, name := range []string{"c", "A", "a ", ""} {
		if server, ok := s.Server(name); ok || server != nil {
			t.Errorf("%q is a server", name)
		}
	}
	if len(s.Suggested()) != 1 || s.Suggested()[0].Name != "maybe" || s.Fetched() != now {
		t.Errorf("suggested %v, fetched %v", s.Suggested(), s.Fetched())
	}
}
