package plane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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
// through, before OPA reads them.
type guarded struct {
	base  http.RoundTripper
	limit int64
}

// RoundTrip implements http.RoundTripper.
func (g guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Response != nil && r.Response.Request != nil {
		if from := r.Response.Request.URL; from.Host != r.URL.Host || from.Scheme != r.URL.Scheme {
			return nil, fmt.Errorf("the server redirects to %s://%s: only the configured host is followed; configure the service's new url",
				r.URL.Scheme, r.URL.Host)
		}
	}
	resp, err := g.base.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(r.Header.Get("Prefer"), "modes=") {
		return resp, err
	}
	body, err := g.take(r.Context(), resp)
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
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
