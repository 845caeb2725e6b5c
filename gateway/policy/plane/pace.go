package plane

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"
)

// pollEvery is how long it is at least from one long poll to the next that follows
// an answer without news: OPA asks again at once, also a server that does not let
// it wait.
const pollEvery = time.Second

// grace is what the network may add to the time that a long poll asked for.
const grace = 15 * time.Second

// pace remembers what URLs were asked last, and whether they had news. It is safe for
// concurrent use.
type pace struct {
	mu    sync.Mutex
	polls map[string]poll
}

// poll is the last request: what it brought, and when it was sent if that was no
// news.
type poll struct {
	digest [sha256.Size]byte
	asked  time.Time
}

// pause waits until the URL may be asked again, or ctx is done.
func (p *pace) pause(ctx context.Context, url string) error {
	p.mu.Lock()
	last := p.polls[url].asked
	p.mu.Unlock()
	if last.IsZero() {
		return nil
	}
	wait := time.NewTimer(time.Until(last.Add(pollEvery)))
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// note keeps what came of asking; body is nil where there was no bundle.
func (p *pace) note(url string, asked time.Time, body []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.polls == nil {
		p.polls = map[string]poll{}
	}
	last := p.polls[url]
	last.asked = asked
	if sum := sha256.Sum256(body); body != nil && sum != last.digest {
		last = poll{digest: sum}
	}
	p.polls[url] = last
}
