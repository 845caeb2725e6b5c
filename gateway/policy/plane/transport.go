package plane

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/open-policy-agent/opa/v1/tracing"
)

// downloading bounds how long one bundle may take from its first byte to its
// last. Waiting for the first byte is OPA's own setting.
const downloading = 2 * time.Minute

// registerTransport gets our transport under OPA's HTTP clients: its hook for
// tracing is the only way in, and is the process's.
var registerTransport = sync.OnceFunc(func() { tracing.RegisterHTTPTracing(wrapping{}) })

type wrapping struct{}

// NewTransport guards the clients of planes and leaves others alone.
func (wrapping) NewTransport(base http.RoundTripper, options tracing.Options) http.RoundTripper {
	for _, o := range options {
		if g, ok := o.(guarded); ok {
			if g.base = base; base == nil {
				g.base = http.DefaultTransport
			}
			return g
		}
	}
	return base
}

func (wrapping) NewHandler(h http.Handler, _ string, _ tracing.Options) http.Handler { return h }

// guarded is a transport for OPA's services. It follows redirects within the
// service's host only, and takes bundles whole, within bounds, and looked
// through, before OPA reads them. Long polls it lets wait as long as they asked
// for, and no oftener than pollEvery.
type guarded struct {
	base  http.RoundTripper
	limit int64
	polls *polls
}

// pollEvery is how long it is at least from one long poll of a bundle to the next
// that follows an answer without news: OPA asks again at once, also a server that
// does not wait.
const pollEvery = time.Second

// grace is what the network may add to the time that a long poll asked for.
const grace = 15 * time.Second

// polls remembers when each URL was asked last.
type polls struct {
	mu   sync.Mutex
	last map[string]poll
}

// poll is an answer: when it was asked for, and its digest, zero for one without
// a body.
type poll struct {
	asked  time.Time
	digest [sha256.Size]byte
	news   bool
}

// pause waits until the URL may be asked again.
func (p *polls) pause(ctx context.Context, url string) error {
	p.mu.Lock()
	last := p.last[url]
	p.mu.Unlock()
	if last.news || last.asked.IsZero() {
		return nil
	}
	wait := time.NewTimer(time.Until(last.asked.Add(pollEvery)))
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// note keeps what came of a request; body is nil where there was none.
func (p *polls) note(url string, asked time.Time, body []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := poll{asked: asked, digest: p.last[url].digest}
	if body != nil {
		sum := sha256.Sum256(body)
		now.digest, now.news = sum, sum != p.last[url].digest
	}
	p.last[url] = now
}

// RoundTrip implements http.RoundTripper.
func (g guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Response != nil && r.Response.Request != nil {
		if from := r.Response.Request.URL; from.Host != r.URL.Host || from.Scheme != r.URL.Scheme {
			return nil, fmt.Errorf("the server redirects to %s://%s: only the configured host is followed; configure the service's new url",
				r.URL.Scheme, r.URL.Host)
		}
	}
	prefer := r.Header.Get("Prefer")
	if !strings.Contains(prefer, "modes=") {
		return g.base.RoundTrip(r)
	}
	wait, long := waits(prefer)
	if long {
		if err := g.polls.pause(r.Context(), r.URL.String()); err != nil {
			return nil, err
		}
	}
	asked := time.Now()
	resp, err := g.answer(r, wait, long)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		g.polls.note(r.URL.String(), asked, nil)
		return resp, nil
	}
	body, err := g.take(r.Context(), resp)
	if err != nil {
		return nil, err
	}
	g.polls.note(r.URL.String(), asked, body)
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// answer waits for the head of the answer; a long poll no longer than it asked for.
func (g guarded) answer(r *http.Request, wait time.Duration, long bool) (*http.Response, error) {
	if !long {
		return g.base.RoundTrip(r)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	late := time.AfterFunc(wait+grace, func() {
		cancel(fmt.Errorf("the server did not answer a long poll of %v within %v: see whether it is still there", wait, wait+grace))
	})
	resp, err := g.base.RoundTrip(r.WithContext(ctx))
	if err != nil {
		late.Stop()
		defer cancel(nil)
		if cause := context.Cause(ctx); cause != nil && r.Context().Err() == nil {
			return nil, cause
		}
		return nil, err
	}
	if !late.Stop() {
		resp.Body.Close()
		return nil, context.Cause(ctx)
	}
	resp.Body = &ending{resp.Body, cancel}
	return resp, nil
}

// ending lets go of the request's context with its body.
type ending struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (e *ending) Close() error {
	defer e.cancel(nil)
	return e.ReadCloser.Close()
}

// waits is how long OPA asks a server to wait (RFC 7240, section 4.3).
func waits(prefer string) (time.Duration, bool) {
	_, rest, ok := strings.Cut(prefer, "wait=")
	digits, _, _ := strings.Cut(rest, ";")
	seconds, err := strconv.Atoi(strings.TrimSpace(digits))
	return time.Duration(seconds) * time.Second, ok && err == nil
}

// take reads the bundle.
func (g guarded) take(ctx context.Context, resp *http.Response) ([]byte, error) {
	defer resp.Body.Close()
	if resp.ContentLength > g.limit {
		return nil, tooLarge(g.limit)
	}
	// Closing the body ends a read that waits for bytes that never come.
	late := time.AfterFunc(downloading, func() { resp.Body.Close() })
	body, err := io.ReadAll(io.LimitReader(resp.Body, g.limit+1))
	switch {
	case !late.Stop():
		return nil, fmt.Errorf("the bundle was not complete after %v", downloading)
	case int64(len(body)) > g.limit:
		return nil, tooLarge(g.limit)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("the bundle ends after %d bytes, before its Content-Length of %d", len(body), resp.ContentLength)
	case err != nil:
		return nil, fmt.Errorf("read the bundle: %w", err)
	}
	if err := inspect(ctx, body, resp.Header.Get("Content-Type"), expansion*g.limit, time.Now()); err != nil {
		return nil, err
	}
	return body, nil
}

func tooLarge(limit int64) error {
	return fmt.Errorf("the bundle is larger than %d bytes, the most that is taken", limit)
}
