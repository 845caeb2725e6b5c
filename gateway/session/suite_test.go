package session

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// clock is a time that a test moves.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Unix(1_000_000, 0)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// ends records which sessions a store said had ended.
type ends struct {
	mu   sync.Mutex
	ids  []string
	then func(id string) // where not nil, is called for each
}

func (e *ends) add(id string) {
	e.mu.Lock()
	e.ids = append(e.ids, id)
	e.mu.Unlock()
	if e.then != nil {
		e.then(id)
	}
}

// take returns what was recorded since the last time, sorted.
func (e *ends) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	ids := e.ids
	e.ids = nil
	slices.Sort(ids)
	return ids
}

// bench is a store under test, the time it goes by and what it said.
type bench struct {
	store Store
	pass  func(time.Duration) // lets time pass
	ended *ends
}

var limits = Config{Idle: time.Minute, Lifetime: 5 * time.Minute, Max: 4, PerPrincipal: 2}

func open(t *testing.T, s Store, principal string) Session {
	t.Helper()
	got, err := s.Open(t.Context(), Session{Principal: principal, Version: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func use(t *testing.T, s Store, id, principal string) Session {
	t.Helper()
	got, err := s.Use(t.Context(), id, principal)
	if err != nil {
		t.Fatalf("Use(%q, %q): %v", id, principal, err)
	}
	return got
}

// unknown is a failure unless err is ErrUnknown and nothing else.
func unknown(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, ErrUnknown) || errors.Is(err, ErrUnavailable) {
		t.Errorf("%s: %v, want ErrUnknown", what, err)
	}
}

func gone(t *testing.T, s Store, id, principal string) {
	t.Helper()
	_, err := s.Use(t.Context(), id, principal)
	unknown(t, fmt.Sprintf("Use(%q, %q)", id, principal), err)
}

func sorted(ids ...string) []string {
	slices.Sort(ids)
	return ids
}

// testStore is what every Store has to hold. begin returns an empty one.
func testStore(t *testing.T, begin func(*testing.T, Config) bench) {
	for name, test := range map[string]func(*testing.T, bench){
		"keeps what it is given":             keeps,
		"belongs to the one who opened it":   belongs,
		"shares no memory":                   sharesNothing,
		"saves":                              saves,
		"holds so much and no more":          holds,
		"ends when closed":                   endsClosed,
		"ends when idle":                     endsIdle,
		"ends at its lifetime":               endsOld,
		"save is no use":                     saveIsNoUse,
		"one more of a principal ends one":   replaces,
		"full refuses":                       full,
		"full makes way for the principal's": fullOfMine,
		"ids never repeat":                   ids,
		"many at once":                       many,
		"ended may call back":                callsBack,
	} {
		t.Run(name, func(t *testing.T) { test(t, begin(t, limits)) })
	}
}

func keeps(t *testing.T, b bench) {
	want := Session{
		ID: "ignored", Principal: "a", Version: "2025-06-18", Client: Implementation{"agent", "1.2 ü"},
		Capabilities:  jsontext.Value(`{"sampling":{},"n":123456789012345678901234567890}`),
		LogLevel:      "debug",
		Subscriptions: []Subscription{{"git", "file:///a?b=%20"}, {"git", "file:///b"}},
	}
	got, err := b.store.Open(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	if got.ID == want.ID || !got.Created.Equal(got.Seen) {
		t.Errorf("opened %+v", got)
	}
	want.ID, want.Created, want.Seen = got.ID, got.Created, got.Seen
	if !reflect.DeepEqual(got, want) {
		t.Errorf("opened\n%+v, want\n%+v", got, want)
	}
	b.pass(10 * time.Second)
	got = use(t, b.store, want.ID, "a")
	if !got.Created.Equal(want.Created) || !got.Seen.Equal(want.Seen.Add(10*time.Second)) {
		t.Errorf("created %s, seen %s, opened at %s", got.Created, got.Seen, want.Created)
	}
	want.Created, want.Seen = got.Created, got.Seen
	if !reflect.DeepEqual(got, want) {
		t.Errorf("used\n%+v, want\n%+v", got, want)
	}
	bare := open(t, b.store, "b")
	if got := use(t, b.store, bare.ID, "b"); got.Capabilities != nil || got.Subscriptions != nil {
		t.Errorf("what was not given is %+v", got)
	}
}

func belongs(t *testing.T, b bench) {
	mine := open(t, b.store, "a")
	for _, other := range []string{"b", "", "A", "a "} {
		gone(t, b.store, mine.ID, other)
		unknown(t, "Close by another", b.store.Close(t.Context(), mine.ID, other))
		unknown(t, "Save by another", b.store.Save(t.Context(), Session{ID: mine.ID, Principal: other, LogLevel: "debug"}))
	}
	if got := use(t, b.store, mine.ID, "a"); got.LogLevel != "" || got.Version != "2025-11-25" || got.Principal != "a" {
		t.Errorf("after the attempts of others: %+v", got)
	}
	if ids := b.ended.take(); ids != nil {
		t.Errorf("ended %q", ids)
	}
	for _, id := range []string{"", "x", strings.ToLower(mine.ID), mine.ID + "\x00", strings.Repeat("x", 1<<20)} {
		gone(t, b.store, id, "a")
	}
}

func sharesNothing(t *testing.T, b bench) {
	in := Session{Principal: "a", Capabilities: jsontext.Value(`{"roots":{}}`), Subscriptions: []Subscription{{"s", "u"}}}
	want := in.clone()
	spoil := func(s Session) { s.Capabilities[2], s.Subscriptions[0].URI = 'X', "X" }
	check := func(when string, got Session) {
		t.Helper()
		if string(got.Capabilities) != string(want.Capabilities) || !reflect.DeepEqual(got.Subscriptions, want.Subscriptions) {
			t.Errorf("%s: %s %v", when, got.Capabilities, got.Subscriptions)
		}
	}
	opened, err := b.store.Open(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	spoil(in)
	check("after Open took it", opened)
	spoil(opened)
	used := use(t, b.store, opened.ID, "a")
	check("after Open gave it", used)
	spoil(used)
	used = use(t, b.store, opened.ID, "a")
	check("after Use gave it", used)
	if err := b.store.Save(t.Context(), used); err != nil {
		t.Fatal(err)
	}
	spoil(used)
	check("after Save took it", use(t, b.store, opened.ID, "a"))
}

func saves(t *testing.T, b bench) {
	s := open(t, b.store, "a")
	s.LogLevel, s.Subscriptions = "warning", []Subscription{{"git", "file:///a"}}
	changed := s
	changed.Version, changed.Created, changed.Client.Name = "X", s.Created.Add(time.Hour), "X"
	if err := b.store.Save(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	got := use(t, b.store, s.ID, "a")
	if got.LogLevel != "warning" || !reflect.DeepEqual(got.Subscriptions, s.Subscriptions) {
		t.Errorf("saved %+v", got)
	}
	if got.Version != "2025-11-25" || !got.Created.Equal(s.Created) || got.Client.Name != "" {
		t.Errorf("Save changed what stays as it was opened: %+v", got)
	}
	if err := b.store.Save(t.Context(), Session{ID: s.ID, Principal: "a"}); err != nil {
		t.Fatal(err)
	}
	if got := use(t, b.store, s.ID, "a"); got.LogLevel != "" || len(got.Subscriptions) != 0 {
		t.Errorf("the last one does not win: %+v", got)
	}
	if err := b.store.Close(t.Context(), s.ID, "a"); err != nil {
		t.Fatal(err)
	}
	unknown(t, "Save of a closed one", b.store.Save(t.Context(), s))
	gone(t, b.store, s.ID, "a")
}

func holds(t *testing.T, b bench) {
	large := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v, want ErrTooLarge", what, err)
		}
	}
	_, err := b.store.Open(t.Context(), Session{Principal: "a", Capabilities: jsontext.Value(`"` + strings.Repeat("x", maxFacts) + `"`)})
	large("capabilities", err)
	if _, err := b.store.Open(t.Context(), Session{Principal: "a", Capabilities: jsontext.Value(`{`)}); err == nil {
		t.Error("capabilities that are no JSON were kept")
	}
	s := open(t, b.store, "a")
	s.Subscriptions = make([]Subscription, MaxSubscriptions)
	for i := range s.Subscriptions {
		s.Subscriptions[i] = Subscription{"git", fmt.Sprint("file:///", i)}
	}
	if err := b.store.Save(t.Context(), s); err != nil {
		t.Errorf("%d subscriptions: %v", MaxSubscriptions, err)
	}
	more := s.clone()
	more.Subscriptions = append(more.Subscriptions, Subscription{"git", "file:///more"})
	large("one more subscription", b.store.Save(t.Context(), more))
	more.Subscriptions = []Subscription{{"git", strings.Repeat("x", maxFacts)}}
	large("a long URI", b.store.Save(t.Context(), more))
	if got := use(t, b.store, s.ID, "a"); !reflect.DeepEqual(got.Subscriptions, s.Subscriptions) {
		t.Errorf("a refused Save changed them: %v", got.Subscriptions)
	}
}

func endsClosed(t *testing.T, b bench) {
	mine, other := open(t, b.store, "a"), open(t, b.store, "a")
	if err := b.store.Close(t.Context(), mine.ID, "a"); err != nil {
		t.Fatal(err)
	}
	if ids := b.ended.take(); !slices.Equal(ids, []string{mine.ID}) {
		t.Errorf("ended %q, want %q", ids, mine.ID)
	}
	gone(t, b.store, mine.ID, "a")
	unknown(t, "second Close", b.store.Close(t.Context(), mine.ID, "a"))
	use(t, b.store, other.ID, "a")
	if ids := b.ended.take(); ids != nil {
		t.Errorf("ended twice: %q", ids)
	}
}

func endsIdle(t *testing.T, b bench) {
	used, idle := open(t, b.store, "a"), open(t, b.store, "a")
	if n := b.store.Known(); n != 2 {
		t.Errorf("knows %d sessions, want 2", n)
	}
	for range 3 {
		b.pass(50 * time.Second)
		use(t, b.store, used.ID, "a")
	}
	gone(t, b.store, idle.ID, "a")
	unknown(t, "Close of an idle one", b.store.Close(t.Context(), idle.ID, "a"))
	if ids := b.ended.take(); !slices.Equal(ids, []string{idle.ID}) {
		t.Errorf("ended %q, want %q", ids, idle.ID)
	}
	if n := b.store.Known(); n != 1 {
		t.Errorf("knows %d sessions, want 1", n)
	}
}

func endsOld(t *testing.T, b bench) {
	mine := open(t, b.store, "a")
	for range 6 {
		b.pass(49 * time.Second)
		use(t, b.store, mine.ID, "a")
	}
	b.pass(10 * time.Second)
	gone(t, b.store, mine.ID, "a")
	unknown(t, "Save of an old one", b.store.Save(t.Context(), mine))
	unknown(t, "Close of an old one", b.store.Close(t.Context(), mine.ID, "a"))
	if ids := b.ended.take(); !slices.Equal(ids, []string{mine.ID}) {
		t.Errorf("ended %q, want %q", ids, mine.ID)
	}
}

func saveIsNoUse(t *testing.T, b bench) {
	mine := open(t, b.store, "a")
	b.pass(50 * time.Second)
	if err := b.store.Save(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	b.pass(50 * time.Second)
	gone(t, b.store, mine.ID, "a")
}

func replaces(t *testing.T, b bench) {
	first := open(t, b.store, "a")
	b.pass(10 * time.Second)
	second := open(t, b.store, "a")
	other := open(t, b.store, "b")
	b.pass(10 * time.Second)
	use(t, b.store, first.ID, "a")
	third := open(t, b.store, "a")
	if ids := b.ended.take(); !slices.Equal(ids, []string{second.ID}) {
		t.Errorf("ended %q, want %q", ids, second.ID)
	}
	gone(t, b.store, second.ID, "a")
	use(t, b.store, first.ID, "a")
	use(t, b.store, third.ID, "a")
	use(t, b.store, other.ID, "b")
}

func full(t *testing.T, b bench) {
	var all []Session
	for _, p := range []string{"a", "a", "b", "b"} {
		all = append(all, open(t, b.store, p))
	}
	for range 3 {
		if _, err := b.store.Open(t.Context(), Session{Principal: "c"}); !errors.Is(err, ErrFull) {
			t.Errorf("fifth session: %v, want ErrFull", err)
		}
	}
	for _, s := range all {
		use(t, b.store, s.ID, s.Principal)
	}
	if err := b.store.Close(t.Context(), all[0].ID, "a"); err != nil {
		t.Fatal(err)
	}
	open(t, b.store, "c")
	b.pass(2 * time.Minute)
	for range 2 {
		open(t, b.store, "c")
	}
}

func fullOfMine(t *testing.T, b bench) {
	var all []Session
	for _, p := range []string{"b", "b", "a", "a"} {
		all = append(all, open(t, b.store, p))
		b.pass(time.Second)
	}
	open(t, b.store, "a")
	if ids := b.ended.take(); !slices.Equal(ids, []string{all[2].ID}) {
		t.Errorf("ended %q, want %q", ids, all[2].ID)
	}
}

func ids(t *testing.T, b bench) {
	seen := map[string]bool{}
	for range 100 {
		id := open(t, b.store, "a").ID
		if seen[id] || len(id) < 22 {
			t.Fatalf("id %q", id)
		}
		seen[id] = true
	}
}

// many opens, uses, saves and closes from many goroutines: no principal ever
// has more than it may, and each session ends once.
func many(t *testing.T, b bench) {
	var all sync.Map
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			p := string(rune('a' + i%2))
			for range 20 {
				s, err := b.store.Open(t.Context(), Session{Principal: p})
				if err != nil {
					t.Error(err)
					return
				}
				all.Store(s.ID, p)
				_, err = b.store.Use(t.Context(), s.ID, p)
				err = errors.Join(err, b.store.Save(t.Context(), s))
				if err != nil && !errors.Is(err, ErrUnknown) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	var living, dead []string
	all.Range(func(id, p any) bool {
		if _, err := b.store.Use(t.Context(), id.(string), p.(string)); err == nil {
			living = append(living, id.(string))
		} else {
			dead = append(dead, id.(string))
		}
		return true
	})
	if len(living) != 4 || len(dead) != 156 {
		t.Errorf("%d live, %d ended, want 4 and 156", len(living), len(dead))
	}
	if ids := b.ended.take(); !slices.Equal(ids, sorted(dead...)) {
		t.Errorf("told of %d ends, want %d", len(ids), len(dead))
	}
}

func callsBack(t *testing.T, b bench) {
	called := 0
	b.ended.then = func(id string) {
		called++
		gone(t, b.store, id, "a")
		use(t, b.store, open(t, b.store, "b").ID, "b")
	}
	first := open(t, b.store, "a")
	if err := b.store.Close(t.Context(), first.ID, "a"); err != nil || called != 1 {
		t.Errorf("Close: %v, told of %d ends", err, called)
	}
}
