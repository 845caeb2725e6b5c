package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/regogate/regogate/gateway/mcp"
)

// events is the link to a server of the HTTP+SSE transport of 2024-11-05:
// messages go to an endpoint by POST, and everything that the server says comes
// on one stream.
type events struct {
	web      *web
	conn     *conn
	told     *hello
	endpoint string
	body     io.Closer
	reader   *mcp.EventReader
	life     context.Context
	end      context.CancelFunc
}

// openEvents opens the stream and begins a conversation on it.
func (w *web) openEvents(ctx context.Context, peer Peer) (*events, error) {
	e := &events{web: w, conn: &conn{noise: w.noise, client: w.me, limit: w.limit, party: w.party(peer)}}
	// The stream outlives the attempt to open it, unless that fails.
	e.life, e.end = context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, e.end)
	defer stop()
	if err := e.open(); err != nil {
		e.end()
		e.conn.party.close()
		return nil, err
	}
	e.conn.serve(e.read, e.write)
	var err error
	if e.told, err = e.conn.greet(ctx); err != nil {
		if isClosed(e.conn.dead) {
			err = unavailable("greet it: %w", e.conn.why())
		}
		e.close()
		return nil, err
	}
	return e, nil
}

// open opens the stream and reads from its first event where to POST.
func (e *events) open() error {
	header := http.Header{"Accept": {"text/event-stream"}}
	resp, err := e.web.do(e.life, e.conn.party.subject(), http.MethodGet, e.web.url, header, nil)
	if err != nil {
		return err
	}
	e.body = resp.Body
	if resp.StatusCode != http.StatusOK || mediaType(resp) != "text/event-stream" {
		resp.Body.Close()
		return e.web.httpError(resp.StatusCode, "").fault()
	}
	body, err := decoded(resp)
	if err == nil {
		e.reader = mcp.NewEventReader(body, e.web.limit)
		e.endpoint, err = e.where()
	}
	if err != nil {
		resp.Body.Close()
	}
	return err
}

// where reads the endpoint, which must be of the server's own origin: it gets
// our credentials.
func (e *events) where() (string, error) {
	first, err := e.reader.Next()
	switch {
	case err != nil:
		return "", broken("its stream ended before it said where to send messages: %w", bare(err))
	case first.Name != "endpoint":
		return "", broken("its stream does not begin with an endpoint")
	}
	base, err := url.Parse(e.web.url)
	if err != nil {
		return "", broken("read its URL: %w", bare(err))
	}
	to, err := base.Parse(string(first.Data))
	if err != nil {
		return "", broken("the endpoint that it names is not a URL")
	}
	if to.Scheme != base.Scheme || to.Host != base.Host || to.User != nil {
		return "", broken("the endpoint that it names is not its own")
	}
	return to.String(), nil
}

func (e *events) read(each func(line []byte, cut bool)) error {
	for {
		event, err := e.reader.Next()
		switch {
		case errors.Is(err, mcp.ErrEventTooLarge):
			return broken("an event is longer than %d bytes", e.web.limit)
		case err != nil:
			return unavailable("its stream ended: %w", bare(err))
		case event.Name == "" || event.Name == "message":
			each(event.Data, false)
		}
	}
}

// write POSTs one message. Its answer comes on the stream, perhaps before the
// POST is over.
func (e *events) write(o outgoing) (sent bool, err error) {
	const most = 10 * time.Second
	ctx, cancel := context.WithTimeout(e.life, most)
	defer cancel()
	header := http.Header{"Content-Type": {"application/json"}}
	as := e.conn.party.subject()
	if o.of != nil {
		as = e.conn.party.speaks(o.of.turn, o.of.as)
	}
	resp, err := e.web.do(ctx, as, http.MethodPost, e.endpoint, header, o.line)
	if o.of != nil && (kindOf(err) == Unauthorized || errors.Is(err, errBusy)) { // without a token, which others may have
		o.of.fail(err)
		return false, nil
	}
	if err != nil {
		return kindOf(err) != Unavailable, unavailable("send it a message: %v", err)
	}
	resp.Body.Close()
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		return true, nil
	case resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusGone:
		return false, unavailable("it does not know the session any more")
	case o.of != nil:
		o.of.fail(e.web.httpError(resp.StatusCode, "").fault())
	}
	return true, nil
}

func (e *events) call(ctx context.Context, r request) (*mcp.Message, error) {
	return e.conn.call(ctx, e.told, r)
}

func (e *events) describe(context.Context) (*hello, error) { return e.told, nil }

func (e *events) hello() *hello { return e.told }

// watch has nothing to do: changes come unasked, on the stream.
func (e *events) watch(context.Context) error { return nil }

func (e *events) attend(context.Context) error { return nil }

func (e *events) tell(m *mcp.Message) { e.conn.post(m) }

func (e *events) ended() <-chan struct{} { return e.conn.dead }

func (e *events) close() {
	e.conn.fail(errClosed)
	e.end()
	e.body.Close()
	e.conn.party.close()
	e.conn.wg.Wait()
}
