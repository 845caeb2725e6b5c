package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/upstream/credentials"
)

// web reaches one Streamable HTTP server.
type web struct {
	name    string
	url     string
	headers http.Header         // configured
	tokens  *credentials.Source // nil without oauth
	limit   int
	client  *http.Client
	me      jsontext.Value // our clientInfo
	noise   *noise
	changed func(said string)

	configured mcp.Era       // 0 is auto
	patience   time.Duration // how long a probe is waited for
	found      atomic.Uint32 // a way
	wg         sync.WaitGroup
}

// way is how a server turned out to be spoken to.
type way uint32

const (
	wayUnknown way = iota
	waySessions
	wayEvents // HTTP with SSE, of 2024-11-05
	wayModern
)

const headerSession = "Mcp-Session-Id"

func newWeb(name string, c Config, o Options, changed func(said string)) (*web, error) {
	roots, err := c.TLS.Roots()
	if err != nil {
		return nil, err
	}
	w := &web{
		name: name, url: c.URL, headers: http.Header{}, limit: int(c.MaxResponse),
		me: o.clientInfo(), noise: newNoise(name, o.Log), changed: changed,
	}
	for key, value := range c.Headers {
		w.headers.Set(key, string(value))
	}
	if w.headers.Get("User-Agent") == "" {
		w.headers.Set("User-Agent", o.Name+"/"+o.Version)
	}
	if (len(c.Headers) > 0 || c.OAuth != nil) && !private(c.URL) {
		o.Log.Warn("credentials for a server are sent in the clear; use https", "server", name)
	}
	if c.OAuth != nil {
		if w.tokens, err = credentials.New(name, *c.OAuth, o.Log); err != nil {
			return nil, err
		}
	}
	w.configured, w.patience = configuredEra(c.Protocol), c.ConnectTimeout/2
	w.forget()
	dialer := &net.Dialer{Timeout: c.ConnectTimeout, KeepAlive: 30 * time.Second}
	w.client = &http.Client{
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            dialer.DialContext,
			TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    c.ConnectTimeout,
			ForceAttemptHTTP2:      true,
			DisableCompression:     true, // decoded here, so that its size is bounded
			MaxIdleConnsPerHost:    c.MaxConcurrent,
			IdleConnTimeout:        90 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
		},
		// Nobody but the configured server gets our requests and credentials.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return w, nil
}

// private reports whether nobody can read along on the way to a URL.
func private(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil {
		return false
	}
	host := u.Hostname()
	return u.Scheme == "https" || host == "localhost" || net.ParseIP(host).IsLoopback()
}

func configuredEra(protocol string) mcp.Era {
	switch protocol {
	case "legacy":
		return mcp.Legacy
	case "modern":
		return mcp.Modern
	}
	return 0
}

func (w *web) way() way { return way(w.found.Load()) }

// forget has the way found out again, unless it is configured.
func (w *web) forget() {
	if w.configured == mcp.Modern {
		w.found.Store(uint32(wayModern))
		return
	}
	w.found.Store(uint32(wayUnknown))
}

// key: a modern server knows no sessions.
func (w *web) key(peer string) string {
	if w.way() == wayModern {
		return ""
	}
	return peer
}

func (w *web) party(peer Peer) *party { return newParty(w.name, peer, w.changed) }

func (w *web) close() {
	w.wg.Wait()
	if w.tokens != nil {
		w.tokens.Close()
	}
	w.client.CloseIdleConnections()
}

// dial finds out the way where it is not known, and begins a session with a
// legacy server.
func (w *web) dial(ctx context.Context, peer Peer) (link, error) {
	switch w.way() {
	case wayModern:
		return &stateless{web: w}, nil
	case waySessions:
		return linkOf(w.initialize(ctx, peer))
	case wayEvents:
		return linkOf(w.openEvents(ctx, peer))
	}
	if w.configured != mcp.Legacy {
		modern, err := w.probe(ctx)
		if err != nil {
			return nil, err
		}
		if modern {
			w.found.Store(uint32(wayModern))
			return &stateless{web: w}, nil
		}
	}
	return w.dialLegacy(ctx, peer)
}

// dialLegacy tries the older transport where the newer one is not there.
func (w *web) dialLegacy(ctx context.Context, peer Peer) (link, error) {
	s, err := w.initialize(ctx, peer)
	if err == nil {
		w.found.Store(uint32(waySessions))
		return s, nil
	}
	if !notHere(err) {
		return nil, err
	}
	if e, err := w.openEvents(ctx, peer); err == nil {
		w.found.Store(uint32(wayEvents))
		return e, nil
	}
	return nil, err
}

// linkOf keeps a nil pointer from becoming a link.
func linkOf[L link](l L, err error) (link, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}

// notHere reports whether a server knows nothing of POSTs to its URL.
func notHere(err error) bool {
	var e *httpError
	if !errors.As(err, &e) {
		return false
	}
	switch e.status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
		return true
	}
	return false
}

// probe sends a modern request. Whatever answers it in another way than a
// modern server does not know it; only what says nothing of the era is an
// error.
func (w *web) probe(ctx context.Context) (modern bool, err error) {
	limited, cancel := context.WithTimeout(ctx, w.patience)
	defer cancel()
	m, err := discoverTwice(func() (*mcp.Message, error) {
		return (&stateless{web: w}).call(limited, request{method: discover})
	})
	var status *httpError
	switch {
	case err == nil:
		era, _, err := discovered(m)
		return era == mcp.Modern, err
	case errors.As(err, &status):
		if status.saysNothing() {
			return false, err
		}
	case ctx.Err() == nil && limited.Err() != nil: // perhaps it answers to what it knows
	case kindOf(err) != Broken:
		return false, err
	}
	return false, nil
}

// httpError is an HTTP response that is no answer to the request.
type httpError struct {
	status int
	detail string
	denied bool // the token that it was sent, which others do not have
}

func (e *httpError) Error() string {
	text := fmt.Sprintf("it answered with HTTP status %d", e.status)
	if e.detail != "" {
		text += ": " + e.detail
	}
	return text
}

// saysNothing: such a status comes from whatever stands before the server, or
// would come in answer to anything.
func (e *httpError) saysNothing() bool {
	switch e.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusRequestTimeout,
		http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return e.status >= 300 && e.status < 400
}

// fault: a request that did not get as far as the server was not carried out.
// Of one that something on the way stopped waiting for, nobody knows.
func (e *httpError) fault() error {
	switch {
	case e.denied:
		return &fault{kind: Unauthorized, err: e}
	case e.status == http.StatusGatewayTimeout:
		return &fault{kind: Timeout, err: e}
	case e.saysNothing():
		return &fault{kind: Unavailable, err: e}
	}
	return &fault{kind: Broken, err: e}
}

// httpError makes the error of a response to a request by do.
func (w *web) httpError(status int, detail string) *httpError {
	away := status == http.StatusUnauthorized || status == http.StatusForbidden
	return &httpError{status, detail, away && w.tokens != nil}
}

// do sends one HTTP request on behalf of a subject, with the configured headers
// and those given. Where the subject's token is turned away it is sent once more
// with a new one. The caller closes the response's body. The error is the
// context's, Unauthorized or busy where there is no token, or Broken where the
// connection failed after it had been made.
func (w *web) do(ctx context.Context, as Subject, method, to string, header http.Header, body []byte) (*http.Response, error) {
	if w.tokens == nil {
		return w.once(ctx, method, to, header, body)
	}
	var before *http.Response // that turned the token away
	for {
		token, err := w.tokens.Token(ctx, as)
		closeBody(before)
		if err != nil {
			return nil, tokenless(err)
		}
		header = header.Clone()
		header.Set("Authorization", "Bearer "+string(token))
		resp, err := w.once(ctx, method, to, header, body)
		if err != nil || resp.StatusCode != http.StatusUnauthorized || before != nil || !w.tokens.TurnedAway(as, token) {
			return resp, err
		}
		before = resp
	}
}

func (w *web) ready(ctx context.Context, as Subject) error {
	if w.tokens == nil {
		return nil
	}
	if _, err := w.tokens.Token(ctx, as); err != nil {
		return tokenless(err)
	}
	return nil
}

// tokenless is the error of a request that there is no token for.
func tokenless(err error) error {
	var no *credentials.Refusal
	if errors.As(err, &no) {
		return &fault{kind: Unauthorized, err: fmt.Errorf("get a token for it: %w", err)}
	}
	return busy("get a token for it: %w", err)
}

// once sends one HTTP request.
func (w *web) once(ctx context.Context, method, to string, header http.Header, body []byte) (*http.Response, error) {
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		// net/http tries again by itself when a connection from before turns
		// out closed and nothing was written: then only the last try counts.
		GetConn: func(string) { connected.Store(false) },
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	req, err := http.NewRequestWithContext(ctx, method, to, bytes.NewReader(body))
	if err != nil {
		return nil, unavailable("make a request: %w", bare(err))
	}
	req.Header = w.headers.Clone()
	for key, values := range header {
		req.Header[key] = values
	}
	req.Header.Set("Accept-Encoding", "gzip")
	resp, err := w.client.Do(req)
	switch {
	case err == nil:
		return resp, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case connected.Load():
		return nil, broken("the connection failed under a request: %w", bare(err))
	}
	return nil, unavailable("connect: %w", bare(err))
}

// post sends one message.
func (w *web) post(ctx context.Context, as Subject, header http.Header, m *mcp.Message) (*http.Response, error) {
	header.Set("Content-Type", "application/json")
	header.Set("Accept", "application/json, text/event-stream")
	return w.do(ctx, as, http.MethodPost, w.url, header, m.Append(nil))
}

// aside runs f beside the request that gave rise to it, which may be over, for
// a short time.
func (w *web) aside(ctx context.Context, f func(ctx context.Context)) {
	const most = 3 * time.Second
	w.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
		defer cancel()
		f(ctx)
	})
}
