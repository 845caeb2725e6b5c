package cases

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/regogate/regogate/gateway/mcp"
)

// web is a backend over Streamable HTTP, or HTTP+SSE.
type web struct {
	*host
	*script
	sessions
	log *arrivals
}

func newWeb(name string, log *arrivals) (*web, error) {
	b := &web{host: newHost(), script: newScript(name, Backend{}), log: log}
	return b, b.open(b)
}

// path is where its endpoint is.
const path = "/mcp"

func (b *web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 256<<20))
	if err != nil {
		http.Error(w, "cannot read the body", http.StatusBadRequest)
		return
	}
	header := r.Header.Clone()
	header.Set("Host", r.Host)
	b.log.add(arrived{backend: b.name, header: header, body: body, method: r.Method})
	m, bad := mcp.ParseBackend(body)
	if bad != nil {
		m = &mcp.Message{}
	}
	sse := b.manners().Transport == "sse"
	switch {
	case b.misbehave(w, r, m.Method):
	case sse && r.Method == http.MethodGet:
		b.serveStream(w, r)
	case sse && r.URL.Path == path, r.Method != http.MethodPost && !b.manners().keepsSessions():
		w.WriteHeader(http.StatusMethodNotAllowed)
	case r.Method == http.MethodPost && bad != nil:
		http.Error(w, bad.Message, http.StatusBadRequest)
	case sse:
		b.serveMessage(w, r, m)
	default:
		b.serve(w, r, m)
	}
}

func (spec Backend) keepsSessions() bool { return spec.Transport != "sse" && spec.Era != "modern" }

// serve serves Streamable HTTP.
func (b *web) serve(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
	spec := b.manners()
	var c *conversation
	if spec.keepsSessions() && m.Method != "initialize" {
		if c = b.conversation(w, r); c == nil {
			return
		}
	}
	switch {
	case r.Method == http.MethodDelete:
		b.finish(c.id)
	case r.Method == http.MethodGet && spec.Streams:
		b.stream(w, r, c, ": hello\n\n")
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case m.Kind() != mcp.Request:
		w.WriteHeader(http.StatusAccepted)
	default:
		b.reply(w, r, m, c)
	}
}

// conversation finds the session that a request belongs to; nil where that was
// answered.
func (b *web) conversation(w http.ResponseWriter, r *http.Request) *conversation {
	spec := b.manners()
	id := r.Header.Get("Mcp-Session-Id")
	c := b.find(id)
	switch version := r.Header.Get("MCP-Protocol-Version"); {
	case id == "":
		http.Error(w, "the session is missing", http.StatusBadRequest)
	case c == nil:
		status, err := strconv.Atoi(spec.Gone)
		if err != nil {
			status = http.StatusNotFound
		}
		http.Error(w, "the session is not known", status)
	case version != spec.version() && !(version == "" && spec.version() < "2025-06-18"):
		http.Error(w, "another revision was negotiated", http.StatusBadRequest)
	default:
		return c
	}
	return nil
}

func (b *web) reply(w http.ResponseWriter, r *http.Request, m *mcp.Message, c *conversation) {
	session := ""
	if c != nil {
		session = c.id
	}
	answer := string(b.answer(r.Context(), session, m))
	if r.Context().Err() != nil {
		b.log.add(arrived{backend: b.name, method: left})
		return
	}
	if m.Method == "initialize" {
		w.Header().Set("Mcp-Session-Id", b.begin(context.Background(), b.name).id)
	}
	b.replyTo(m).write(w, r, string(m.ID.Raw()), answer)
}

// left is the method of what is no message: the client gave up a request.
const left = "left"

// serveStream begins a conversation of HTTP+SSE.
func (b *web) serveStream(w http.ResponseWriter, r *http.Request) {
	c := b.begin(r.Context(), b.name)
	defer c.work.Wait()
	defer b.finish(c.id)
	endpoint := b.manners().SSE.Endpoint
	if endpoint == "" {
		endpoint = "messages?session=$SESSION"
	}
	b.stream(w, r, c, "event: endpoint\ndata: "+strings.ReplaceAll(endpoint, "$SESSION", c.id)+"\n\n")
}

// serveMessage takes a message of a conversation, whose answer goes over its
// stream.
func (b *web) serveMessage(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
	c := b.find(r.URL.Query().Get("session"))
	if c == nil {
		http.Error(w, "the session is not known", http.StatusNotFound)
		return
	}
	if m.Kind() == mcp.Request {
		answered := make(chan struct{})
		running := b.run(c, func() {
			defer close(answered)
			if t, ok := b.tool(calledTool(m)); ok && t.Dies {
				b.finish(c.id)
				return
			}
			c.send(string(b.answer(c.ctx, c.id, m)))
		})
		if running && b.manners().SSE.First == "answer" {
			<-answered
		}
	}
	w.WriteHeader(http.StatusAccepted)
}
