package plane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/open-policy-agent/opa/v1/plugins"
	"github.com/open-policy-agent/opa/v1/plugins/rest"
)

// maxRefusal bounds what is read of an answer that is no bundle.
const maxRefusal = 64 << 10

// wire is the authentication plugin that OPA asks for HTTP clients.
type wire struct {
	p        *Plane
	mu       sync.Mutex
	services map[string]*service
	retired  []*service
}

// adopt takes the services of a configuration; those that are unchanged, with the
// keys, keep their clients.
func (w *wire) adopt(services map[string]*service) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, s := range services {
		old := w.services[name]
		// A key may be another one under the same name.
		if old != nil && old.raw == s.raw && reflect.DeepEqual(old.keys, s.keys) {
			continue
		}
		if old != nil {
			w.retired = append(w.retired, old)
		}
		w.services[name] = s
	}
}

// NewClient makes, or hands out again, the client of the service that c names.
func (w *wire) NewClient(c rest.Config) (*http.Client, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.services[c.Name]
	if s == nil {
		return nil, fmt.Errorf("service %q is not configured", c.Name)
	}
	timeout := *c.ResponseHeaderTimeoutSeconds
	if have := s.clients[timeout]; have != nil {
		return have, nil
	}
	made, _, err := s.connect(&timeout)
	if err != nil {
		return nil, err
	}
	made.Transport = &trip{p: w.p, service: s, name: c.Name, base: made.Transport}
	made.CheckRedirect = stay
	if s.clients == nil {
		s.clients = map[int64]*http.Client{}
	}
	s.clients[timeout] = made
	return made, nil
}

// Prepare does nothing: trip does it, where the service is known.
func (*wire) Prepare(*http.Request) error { return nil }

// Start tells OPA's status that nothing is missing here.
func (w *wire) Start(context.Context) error {
	w.p.manager.UpdatePluginStatus(client, &plugins.Status{State: plugins.StateOK})
	return nil
}

// Stop does nothing: the other plugins still send when they stop.
func (*wire) Stop(context.Context) {}

// Reconfigure does nothing: adopt does it.
func (*wire) Reconfigure(context.Context, any) {}

func (w *wire) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.services {
		s.close()
	}
	for _, s := range w.retired {
		s.close()
	}
}

// stay refuses a redirect that leaves the service.
func stay(r *http.Request, before []*http.Request) error {
	if len(before) >= 5 {
		return errors.New("more than 5 redirects")
	}
	return leaves(before[0].URL, r.URL)
}

func leaves(was, to *url.URL) error {
	if to.Scheme != was.Scheme || !strings.EqualFold(to.Host, was.Host) {
		return fmt.Errorf("the server redirects to %s://%s: only the configured host is followed; configure the service's new URL", to.Scheme, to.Host)
	}
	return nil
}

// trip carries a service's requests.
type trip struct {
	p       *Plane
	service *service
	name    string
	base    http.RoundTripper
}

// RoundTrip signs a request as its service is configured. What it reads of an
// answer is bounded in bytes and time.
func (t *trip) RoundTrip(given *http.Request) (*http.Response, error) {
	first := given
	for first.Response != nil && first.Response.Request != nil {
		first = first.Response.Request
	}
	url, held := first.URL.String(), wait(given)
	limit := t.p.o.Download
	if held > 0 { // OPA itself waits for the answer to a long poll for ever
		limit = held + grace
		if err := t.p.pace.pause(given.Context(), url); err != nil {
			return nil, err
		}
	}
	asked := time.Now()
	ctx, cancel := context.WithCancelCause(given.Context())
	defer cancel(nil)
	patience := time.AfterFunc(limit, func() {
		cancel(errors.New("the service took too long to answer"))
	})
	defer patience.Stop()
	r := given.Clone(ctx)
	r.Response = nil // a redirect stays with the service, so it is signed like any request
	var src *source
	if r.Method == http.MethodGet {
		if src = t.p.sourceOf(t.name, url); src == nil {
			return nil, errors.New("this bundle is not configured any more")
		}
		t.p.ask(src, r)
	}
	if err := t.service.sign(r); err != nil {
		return nil, err
	}
	resp, err := t.base.RoundTrip(r)
	if err != nil {
		return nil, because(ctx, err)
	}
	patience.Reset(t.p.o.Download)
	resp, raw := t.received(ctx, given, r, resp, src)
	if _, failed := resp.Body.(failing); failed {
		asked = time.Time{} // OPA takes its time by itself, and what is mended is to be had soon
	}
	t.p.pace.note(url, asked, raw)
	return resp, nil
}

// received replaces the answer's body by one that is wholly read, and returns what
// was read of a bundle.
func (t *trip) received(ctx context.Context, given, sent *http.Request, resp *http.Response, src *source) (_ *http.Response, read []byte) {
	defer resp.Body.Close()
	bundle := src != nil && resp.StatusCode == http.StatusOK
	limit := int64(maxRefusal)
	if bundle {
		limit = src.limit
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	resp.Request = given
	switch {
	case !bundle:
		raw, err = raw[:min(int64(len(raw)), limit)], nil
		if src != nil {
			err = t.p.bare(src, sent, resp)
		}
	case err != nil:
		err = because(ctx, err)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("the bundle ends after %d bytes, before its Content-Length of %d", len(raw), resp.ContentLength)
		}
	case int64(len(raw)) > limit:
		err = tooLarge(limit)
	case len(raw) > 0 && !bytes.HasPrefix(raw, []byte{0x1f, 0x8b}):
		err = fmt.Errorf("the answer is no bundle (Content-Type %q): want a gzipped tar archive; is this the bundle's URL, and is it open to this service?",
			resp.Header.Get("Content-Type"))
	default:
		read = raw
		var same bool
		same, err = t.p.offer(ctx, src, raw, resp.Header.Get("ETag"), false)
		if same {
			resp.StatusCode, resp.Status = http.StatusNotModified, "304 Not Modified"
			resp.Header.Del("ETag")
			raw = nil
		}
	}
	resp.Body = io.NopCloser(bytes.NewReader(raw))
	resp.ContentLength = int64(len(raw))
	if err != nil {
		t.p.failed(src, err)
		// OPA looks at the body of an answer that it takes for a bundle, so that is
		// where it finds the reason.
		resp.StatusCode, resp.Status = http.StatusOK, "200 OK"
		resp.Body, resp.ContentLength = failing{err}, -1
	}
	return resp, read
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
func (failing) Close() error               { return nil }

// because prefers our reason for giving up to what the transport made of it.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// wait is how long a request says that the service may hold it back.
func wait(r *http.Request) time.Duration {
	for part := range strings.SplitSeq(r.Header.Get("Prefer"), ";") {
		if n, ok := strings.CutPrefix(part, "wait="); ok {
			seconds, _ := strconv.Atoi(n)
			return time.Duration(seconds) * time.Second
		}
	}
	return 0
}

// ask makes the request conditional on what is in force, which OPA itself does
// not always know, and says that deltas are not wanted.
func (p *Plane) ask(src *source, r *http.Request) {
	prefer := "modes=snapshot"
	if w := wait(r); w > 0 {
		prefer += ";wait=" + strconv.Itoa(int(w/time.Second))
	}
	r.Header.Set("Prefer", prefer)
	if src.discovery {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.of(src.name)
	t.own, t.passed = "", false
	r.Header.Del("If-None-Match")
	if t.active.etag != "" && t.opa == t.active.digest {
		r.Header.Set("If-None-Match", t.active.etag)
	}
}

// bare looks at an answer without a bundle. A redirect is refused here already
// because OPA loses the client's reason when it logs in detail.
func (p *Plane) bare(src *source, sent *http.Request, resp *http.Response) error {
	if to, err := resp.Location(); err == nil && resp.StatusCode/100 == 3 {
		return leaves(sent.URL, to)
	}
	if resp.StatusCode != http.StatusNotModified {
		return nil
	}
	if sent.Header.Get("If-None-Match") == "" {
		return errors.New("the service answered 304 Not Modified to a request without a condition")
	}
	if src.discovery {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of(src.name).active.disk = false
	return nil
}
