package upstream

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/regogate/regogate/gateway/mcp"
)

func TestReadLines(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, tt := range []struct {
		in   string
		want []string
	}{
		{"", nil},
		{"\n", []string{""}},
		{"a\nb", []string{"a", "b"}},
		{"a\r\n\r\nb\r", []string{"a", "", "b"}},
		{"a\rb\n", []string{"a\rb"}},
		{long + "\nb\n", []string{long[:1000] + "+", "b"}},
		{strings.Repeat("y", 1000) + "\n", []string{strings.Repeat("y", 1000)}},
		{"b\n" + long, []string{"b", long[:1000] + "+"}},
	} {
		for name, r := range map[string]io.Reader{
			"at once": strings.NewReader(tt.in), "byte by byte": iotest.OneByteReader(strings.NewReader(tt.in)),
		} {
			var got []string
			err := readLines(r, 1000, func(line []byte, cut bool) {
				if cut {
					line = append(line, '+')
				}
				got = append(got, string(line))
			})
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("%.20q %s: %.50q, %v; want %.50q", tt.in, name, got, err, tt.want)
			}
		}
	}
	wrong := errors.New("wrong")
	if err := readLines(iotest.ErrReader(wrong), 10, nil); err != wrong {
		t.Errorf("an error of the reader came as %v", err)
	}
}

func TestEscape(t *testing.T) {
	in := "plain é 日 \"q\" \\ \x1b[0m\r\n\t\u202e\u200b\U000e0041\xff\xc3"
	want := `plain é 日 "q" \ \u{001B}[0m\u{000D}\u{000A}\u{0009}\u{202E}\u{200B}\u{E0041}\xFF\xC3`
	if got := escape([]byte(in)); got != want {
		t.Errorf("escape gives %s, want %s", got, want)
	}
}

func TestThrottle(t *testing.T) {
	now := time.Unix(1000, 0)
	th := newThrottle(2, 1)
	for i, want := range []bool{true, true, false, false} {
		if ok, _ := th.allow(now); ok != want {
			t.Errorf("%d: %v", i, ok)
		}
	}
	if ok, dropped := th.allow(now.Add(1500 * time.Millisecond)); !ok || dropped != 2 {
		t.Errorf("later: %v, %d held back", ok, dropped)
	}
	if ok, _ := th.allow(now.Add(1600 * time.Millisecond)); ok {
		t.Error("half a token was enough")
	}
	if ok, dropped := th.allow(now.Add(time.Hour)); !ok || dropped != 1 {
		t.Errorf("much later: %v, %d held back", ok, dropped)
	}
}

func TestBackoff(t *testing.T) {
	b := backoff{least: time.Second, most: 5 * time.Second}
	for _, want := range []time.Duration{1, 2, 4, 5, 5} {
		want *= time.Second
		if got := b.next(); got < want*9/10 || got > want*11/10 {
			t.Errorf("next is %s, want about %s", got, want)
		}
	}
	b.reset()
	if got := b.next(); got > 1100*time.Millisecond {
		t.Errorf("after reset next is %s", got)
	}
}

func TestBreaker(t *testing.T) {
	b := breaker{wait: backoff{least: time.Second, most: time.Minute}}
	now := time.Unix(1000, 0)
	check := func(what string, want bool) {
		t.Helper()
		if got := b.allow(now); got != want {
			t.Errorf("%s: allow is %v", what, got)
		}
	}
	for range tolerated - 1 {
		b.failed(now)
	}
	check("almost", true)
	b.worked()
	for range tolerated {
		check("tolerated", true)
		b.failed(now)
	}
	check("open", false)
	now = now.Add(2 * time.Second)
	check("the one that tries", true)
	check("those that wait for it", false)
	b.failed(now)
	now = now.Add(1700 * time.Millisecond)
	check("open for longer", false)
	now = now.Add(time.Second)
	check("the next one that tries", true)
	now = now.Add(3 * time.Second)
	check("another, since that one never came back", true)
	b.worked()
	check("closed", true)
	check("closed", true)
}

func TestKindOf(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want Kind
	}{
		{broken("x: %w", context.DeadlineExceeded), Timeout},
		{context.Canceled, Canceled},
		{broken("x"), Broken},
		{unavailable("x: %w", broken("y")), Unavailable},
		{errStale, Unavailable},
	} {
		if got := kindOf(tt.err); got != tt.want {
			t.Errorf("kindOf(%v) is %s, want %s", tt.err, got, tt.want)
		}
	}
}

// fakeLink counts what is done to it.
type fakeLink struct {
	closed chan struct{}
	dead   chan struct{}
}

func newFakeLink() *fakeLink {
	return &fakeLink{closed: make(chan struct{}), dead: make(chan struct{})}
}

func (l *fakeLink) call(context.Context, request) (*mcp.Message, error) { return &mcp.Message{}, nil }
func (l *fakeLink) describe(context.Context) (*hello, error)            { return legacyLeg(), nil }
func (l *fakeLink) hello() *hello                                       { return legacyLeg() }
func (l *fakeLink) attend(context.Context) error                        { return nil }
func (l *fakeLink) tell(*mcp.Message)                                   {}

func (l *fakeLink) watch(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (l *fakeLink) ended() <-chan struct{} { return l.dead }
func (l *fakeLink) close()                 { close(l.closed) } // twice would panic

// linksFor makes links with a dialler, closed with the test's bubble.
func linksFor(t *testing.T, dial func(ctx context.Context, _ Peer) (link, error)) *links {
	ctx, cancel := context.WithCancel(t.Context())
	l := &links{
		dial: dial, limit: 2, idle: time.Minute, connect: 10 * time.Second, life: ctx,
		restart: func() backoff { return backoff{least: time.Second, most: time.Minute} },
		entries: map[string]*entry{}, deaths: map[string]*deaths{},
	}
	t.Cleanup(func() {
		cancel()
		l.close()
	})
	return l
}

func TestLinksShareAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		l := linksFor(t, func(ctx context.Context, _ Peer) (link, error) {
			dials++
			time.Sleep(time.Second)
			if dials == 1 {
				return nil, unavailable("not yet")
			}
			return newFakeLink(), nil
		})
		hasty, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := l.take(hasty, "a", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller in a hurry got %v", err)
		}
		failed := make(chan error, 10)
		for range 10 {
			go func() {
				_, err := l.take(t.Context(), "a", nil)
				failed <- err
			}()
		}
		for range 10 {
			if err := <-failed; err == nil || err.Error() != "not yet" {
				t.Errorf("a caller got %v", err)
			}
		}
		if dials != 1 {
			t.Errorf("%d attempts for 11 callers", dials)
		}
		e, err := l.take(t.Context(), "a", nil)
		if err != nil || dials != 2 {
			t.Fatalf("the next attempt: %v, %d", err, dials)
		}
		again, err := l.take(t.Context(), "a", nil)
		if err != nil || again != e || dials != 2 {
			t.Errorf("a second user got another link: %v", err)
		}
		l.give(e)
		l.give(e)
	})
}

func TestLinksDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := linksFor(t, func(ctx context.Context, _ Peer) (link, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		_, err := l.take(t.Context(), "a", nil)
		if kindOf(err) != Unavailable || !strings.Contains(err.Error(), "it was not ready within 10s") {
			t.Errorf("an attempt that hangs gave %v", err)
		}
	})
}

func TestLinksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := linksFor(t, func(context.Context, Peer) (link, error) { return newFakeLink(), nil })
		a, _ := l.take(t.Context(), "a", nil)
		b, _ := l.take(t.Context(), "b", nil)
		if _, err := l.take(t.Context(), "c", nil); kindOf(err) != Unavailable || !errors.Is(err, errBusy) {
			t.Errorf("a third link: %v", err)
		}
		l.give(a)
		c, err := l.take(t.Context(), "c", nil)
		if err != nil {
			t.Fatalf("with a idle: %v", err)
		}
		<-a.link.(*fakeLink).closed
		l.give(b)
		time.Sleep(time.Minute)
		l.give(c)
		l.sweep(time.Now())
		<-b.link.(*fakeLink).closed
		synctest.Wait()
		if len(l.entries) != 1 {
			t.Errorf("%d links are left, want the one that was used just now", len(l.entries))
		}
	})
}

func TestLinksDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := linksFor(t, func(context.Context, Peer) (link, error) { return newFakeLink(), nil })
		a, _ := l.take(t.Context(), "a", nil)
		same, _ := l.take(t.Context(), "a", nil)
		l.follow(a)
		l.drop(a)
		l.drop(same) // everybody who finds it stale says so
		next, _ := l.take(t.Context(), "a", nil)
		if next == a {
			t.Error("a dropped link is still in use")
		}
		l.give(a)
		synctest.Wait()
		select {
		case <-a.link.(*fakeLink).closed:
			t.Error("a dropped link was closed under its last user")
		default:
		}
		l.give(same)
		<-a.link.(*fakeLink).closed
		l.give(next)
	})
}

func TestLinksThatDie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := linksFor(t, func(context.Context, Peer) (link, error) { return newFakeLink(), nil })
		die := func() error {
			e, err := l.take(t.Context(), "a", nil)
			if err != nil {
				return err
			}
			close(e.link.(*fakeLink).dead)
			l.give(e)
			return nil
		}
		if err := errors.Join(die(), die()); err != nil {
			t.Fatalf("the first restart had to wait: %v", err)
		}
		if err := die(); kindOf(err) != Unavailable || !errors.Is(err, errBusy) {
			t.Errorf("the second restart did not: %v", err)
		}
		time.Sleep(1200 * time.Millisecond)
		if err := die(); err != nil {
			t.Errorf("after a second: %v", err)
		}
		time.Sleep(1200 * time.Millisecond)
		if err := die(); err == nil {
			t.Error("the third restart had to wait no longer than the second")
		}
		time.Sleep(2300 * time.Millisecond)
		if err := die(); err != nil {
			t.Errorf("after two seconds: %v", err)
		}
		l.worked("a")
		if err := die(); err != nil {
			t.Errorf("after an answer: %v", err)
		}
	})
}

func TestLinksAfterClose(t *testing.T) {
	l := linksFor(t, func(context.Context, Peer) (link, error) { return newFakeLink(), nil })
	l.close()
	if _, err := l.take(t.Context(), "a", nil); kindOf(err) != Unavailable {
		t.Errorf("take after close: %v", err)
	}
}
