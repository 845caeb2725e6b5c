package upstream

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/regogate/regogate/gateway/mcp"
)

// link is one conversation with a server: a session, the stateless side of a
// modern HTTP server, a stream of events, or a process. Its methods may be
// called concurrently.
type link interface {
	// call sends one request and returns the server's answer, whose id is of
	// no meaning to the caller. errStale means that the link is of no use any
	// more and the request was not carried out.
	call(ctx context.Context, r request) (*mcp.Message, error)
	// describe returns what the server says of itself.
	describe(ctx context.Context) (*hello, error)
	// hello returns what the server said when the link was made; of a modern
	// server, perhaps nothing but the era.
	hello() *hello
	// watch returns when ctx ends or the server does not notify, and in
	// between has the transport told of every change of the server's lists.
	// It returns errStale when that has shown that the link is of no use any
	// more, else nil. It is for the gateway's own link.
	watch(ctx context.Context) error
	// attend is watch for the link of a peer, which hears of whatever the
	// server says of its own accord.
	attend(ctx context.Context) error
	// tell sends a notification, in order, where the server takes any. It
	// does not wait.
	tell(m *mcp.Message)
	// ended is closed when the link is of no use any more; nil is never.
	ended() <-chan struct{}
	// close ends the link and what is under way on it, and returns when
	// nothing of it is left.
	close()
}

// links holds the links to one server, one for each key, made when first
// needed and closed when idle. It is safe for concurrent use.
type links struct {
	dial    func(ctx context.Context, peer Peer) (link, error)
	limit   int
	idle    time.Duration
	connect time.Duration
	life    context.Context // ends when the pool does
	restart func() backoff

	mu      sync.Mutex
	closed  bool
	entries map[string]*entry
	deaths  map[string]*deaths
	wg      sync.WaitGroup // everything that outlives the call that began it
}

// entry is one link, or the attempt to make it.
type entry struct {
	key    string
	peer   Peer          // that it was made for
	ready  chan struct{} // closed when link or err is set
	link   link
	err    error
	life   context.Context // of what runs beside the link's calls
	cancel context.CancelFunc
	gone   chan struct{} // closed when it is no longer to be used
	level  level

	// Guarded by links.mu:
	users    int
	used     time.Time
	dropped  bool // gone is closed, and it is no longer in entries
	followed bool // somebody watches
}

// deaths remembers links of one key that ended by themselves, so that a
// process that dies of every request is not started for every request.
type deaths struct {
	wait  backoff
	until time.Time
}

// take returns the link of key, made now for peer if need be. Callers that
// come together share one attempt, and each gives up waiting by its own ctx.
// Every entry that is returned must be given back.
func (l *links) take(ctx context.Context, key string, peer Peer) (*entry, error) {
	e, err := l.enter(key, peer, time.Now())
	if err != nil {
		return nil, err
	}
	select {
	case <-e.ready:
	case <-ctx.Done():
		l.give(e)
		return nil, ctx.Err()
	}
	if e.err != nil {
		l.give(e)
		return nil, e.err
	}
	return e, nil
}

func (l *links) enter(key string, peer Peer, now time.Time) (*entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, unavailable("reach it: %w", errClosed)
	}
	e := l.entries[key]
	if e != nil && e.hasEnded() {
		l.bury(e, now)
		e = nil
	}
	if d := l.deaths[key]; e == nil && d != nil && now.Before(d.until) {
		return nil, busy("it keeps ending by itself and is started again in %s", d.until.Sub(now).Round(time.Millisecond))
	}
	if e == nil {
		if key != discovery && l.isFull() && !l.evict() {
			return nil, busy("all of its %d sessions are in use", l.limit)
		}
		e = l.make(key, peer)
	}
	e.users++
	e.used = now
	return e, nil
}

func (e *entry) isReady() bool {
	select {
	case <-e.ready:
		return true
	default:
		return false
	}
}

func (e *entry) hasEnded() bool {
	if !e.isReady() || e.link == nil {
		return false
	}
	select {
	case <-e.link.ended():
		return true
	default:
		return false
	}
}

// make begins the attempt. It is nobody's in particular, so nobody's ctx ends
// it.
func (l *links) make(key string, peer Peer) *entry {
	e := &entry{key: key, peer: peer, ready: make(chan struct{}), gone: make(chan struct{}), level: newLevel()}
	e.life, e.cancel = context.WithCancel(l.life)
	l.entries[key] = e
	l.wg.Go(func() {
		// Nor does its release: a session that is begun and not ended would
		// stay open at the server.
		ctx, cancel := context.WithTimeout(l.life, l.connect)
		defer cancel()
		made, err := l.dial(ctx, peer)
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) && !errors.Is(err, errBusy) {
			err = unavailable("it was not ready within %s: %v", l.connect, err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		e.link, e.err = made, err
		close(e.ready)
		switch {
		case e.dropped && e.users == 0: // it was released meanwhile
			l.shut(e)
		case e.dropped:
		case err != nil:
			l.remove(e)
		case key != discovery && key != "":
			l.attend(e, made.attend)
		}
	})
	return e
}

// give ends a use of an entry.
func (l *links) give(e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.users--
	e.used = time.Now()
	if e.dropped && e.users == 0 && e.isReady() {
		l.shut(e)
	}
}

// hold uses an entry once more, unless it is no longer to be used. It must be
// given back.
func (l *links) hold(e *entry) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.dropped || l.closed {
		return false
	}
	e.users++
	return true
}

// open returns the entry of key if it is ready for requests, else nil. It must
// be given back.
func (l *links) open(key string) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[key]
	if e == nil || l.closed || !e.isReady() || e.hasEnded() {
		return nil
	}
	e.users++
	return e
}

// release ends the link of key and what is under way over it, which it does
// not wait for.
func (l *links) release(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.deaths, key)
	if e := l.entries[key]; e != nil {
		e.cancel()
		l.remove(e)
	}
}

// drop takes an entry out of use: the next take of its key makes a new link.
// It is closed when its last user has given it back.
func (l *links) drop(e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !e.dropped {
		l.remove(e)
	}
}

// remove is for a caller that holds mu, once for each entry.
func (l *links) remove(e *entry) {
	e.dropped = true
	close(e.gone)
	delete(l.entries, e.key)
	if e.users == 0 && e.isReady() {
		l.shut(e)
	}
}

// shut closes a removed entry that nobody uses.
func (l *links) shut(e *entry) {
	e.cancel()
	if e.link != nil {
		l.wg.Go(e.link.close)
	}
}

// bury removes an entry whose link has ended by itself, and has the next one
// of its key wait if that happens again and again.
func (l *links) bury(e *entry, now time.Time) {
	l.remove(e)
	d := l.deaths[e.key]
	if d == nil {
		// The first time there is nothing to wait for.
		l.deaths[e.key] = &deaths{wait: l.restart()}
		return
	}
	d.until = now.Add(d.wait.next())
}

// worked forgets the deaths of a key: its link has answered a request.
func (l *links) worked(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.deaths, key)
}

// isFull reports whether peers have as many links as they may. The
// gateway's own link does not count, lest a server that is merely busy seem to
// be down.
func (l *links) isFull() bool {
	n := len(l.entries)
	if l.entries[discovery] != nil {
		n--
	}
	return n >= l.limit
}

// evict makes room by removing the entry that is idle for longest. It reports
// whether there was one.
func (l *links) evict() bool {
	var oldest *entry
	for _, e := range l.entries {
		if e.key != discovery && e.users == 0 && e.isReady() && (oldest == nil || e.used.Before(oldest.used)) {
			oldest = e
		}
	}
	if oldest != nil {
		l.remove(oldest)
	}
	return oldest != nil
}

// sweep removes what has been idle for too long, or has ended.
func (l *links) sweep(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		switch {
		case e.hasEnded():
			l.bury(e, now)
		case e.users == 0 && e.isReady() && now.Sub(e.used) >= l.idle:
			l.remove(e)
		}
	}
	for key, d := range l.deaths {
		if now.Sub(d.until) >= l.idle {
			delete(l.deaths, key)
		}
	}
}

// follow has the link watched for changes, once in its life.
func (l *links) follow(e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.followed || e.dropped || l.closed {
		return
	}
	e.followed = true
	l.attend(e, e.link.watch)
}

// attend reads what comes unasked for as long as the entry lives, and drops it
// when that shows that it has been lost.
func (l *links) attend(e *entry, read func(context.Context) error) {
	l.wg.Go(func() {
		if errors.Is(read(e.life), errStale) {
			l.drop(e)
		}
	})
}

// close ends all links and returns when nothing of them is left. The pool's
// life has ended, nobody uses a link any more, and from now on take fails.
func (l *links) close() {
	l.mu.Lock()
	l.closed = true
	var open []*entry
	for _, e := range l.entries {
		e.cancel()
		open = append(open, e)
	}
	l.mu.Unlock()
	for _, e := range open {
		<-e.ready // its attempt ends with the pool's life
	}
	l.mu.Lock()
	for _, e := range l.entries {
		l.remove(e)
	}
	l.mu.Unlock()
	l.wg.Wait()
}
