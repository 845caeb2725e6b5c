package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// client is one session of a principal, of either era. It makes requests by its
// dice and judges whatever comes back.
type client struct {
	crowd     *crowd
	principal string
	name      string // principal.session: what its marks begin with
	dice      *dice
	ids       atomic.Int64 // ids and progress tokens of all sessions are the same numbers
}

// crowd is what all clients share.
type crowd struct {
	*book
	gate     *gate
	http     *http.Client
	patience time.Duration // until a request counts as hung
	servers  []string
	pace     time.Duration // mean time between two requests of a session
	polite   bool          // every session is ended

	legacy, streams atomic.Int64 // sessions and streams that are open

	mu     sync.Mutex
	tokens map[string]token
}

type token struct {
	text  string
	until time.Time
}

// tokenLife is short, so that streams see tokens expire.
const tokenLife = 2 * time.Minute

func (c *crowd) token(principal string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tokens[principal]
	if time.Until(t.until) < tokenLife/2 {
		text, err := c.gate.token(principal, tokenLife)
		if err != nil {
			panic(err) // a key of our own signs
		}
		t = token{text, time.Now().Add(tokenLife)}
		c.tokens[principal] = t
	}
	return t.text
}

func (c *client) nextID() int64 { return c.ids.Add(1) }

func (c *client) mark(id int64) string { return fmt.Sprintf("%s.%d", c.name, id) }

func (c *client) fault(format string, args ...any) {
	c.crowd.fault("%s", c.name+": "+fmt.Sprintf(format, args...))
}

// server is one of those behind the gateway.
func (c *client) server() string { return c.crowd.servers[c.dice.below(len(c.crowd.servers))] }

// reply is how a request ended.
type reply struct {
	status  int
	final   *message // nil where none came
	lastID  string   // of the last event
	session string
	err     error // of the connection
}

// do sends one message and reads what comes back: each is given what belongs to
// the request before its answer.
func (c *client) do(ctx context.Context, method string, m *message, headers map[string]string, each func(message)) reply {
	var body io.Reader
	if m != nil {
		body = bytes.NewReader(encode(m))
	}
	r, err := http.NewRequestWithContext(ctx, method, c.crowd.gate.url+"/mcp", body)
	if err != nil {
		return reply{err: err}
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Authorization", "Bearer "+c.crowd.token(c.principal))
	if m != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	resp, err := c.crowd.http.Do(r)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	out := reply{status: resp.StatusCode, session: resp.Header.Get("Mcp-Session-Id")}
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		c.crowd.streams.Add(1)
		defer c.crowd.streams.Add(-1)
		out.err = c.flow(resp.Body, &out, each)
		return out
	}
	data, err := io.ReadAll(resp.Body)
	if out.err = err; err != nil || len(data) == 0 {
		return out
	}
	final, err := c.parse(data)
	if err == nil && resp.Header.Get("Content-Type") == "application/json" {
		out.final = &final
	} else {
		c.fault("status %d, %s: %s", resp.StatusCode, resp.Header.Get("Content-Type"), clip(data))
	}
	return out
}

// flow reads a stream until the answer or its end.
func (c *client) flow(body io.Reader, out *reply, each func(message)) error {
	return events(body, func(id, _ string, data []byte) bool {
		if id != "" {
			out.lastID = id
		}
		if len(data) == 0 {
			return true
		}
		m, err := c.parse(data)
		switch {
		case err != nil:
			c.fault("an event that is no message: %v: %s", err, clip(data))
		case m.isResponse():
			out.final = &m
			return false
		default:
			each(m)
		}
		return true
	})
}

func (c *client) parse(data []byte) (message, error) {
	if bytes.Contains(data, []byte(poison)) {
		c.fault("it got what nobody may get: %s", clip(data))
	}
	return one(data)
}

func clip(data []byte) string { return string(data[:min(len(data), 400)]) }

// answer is a tool's result.
type answer struct {
	ResultType string `json:"resultType"`
	Structured struct {
		Mark   string `json:"mark"`
		Server string `json:"server"`
		Owner  string `json:"owner"`
		Asked  string `json:"asked"`
	} `json:"structuredContent"`
	RequestState  string             `json:"requestState"`
	InputRequests map[string]message `json:"inputRequests"`
}

// ended judges how a request ended. ok says that there is a result.
func (c *client) ended(what string, id int64, r reply) (ok bool) {
	switch {
	case errors.Is(r.err, context.DeadlineExceeded):
		c.fault("%s hung for %v", what, c.crowd.patience)
		return false
	case r.final == nil && r.err != nil:
		c.fault("%s: %v, and no answer", what, r.err)
		return false
	case r.final == nil:
		c.fault("%s: status %d and no answer", what, r.status)
		return false
	case r.status == http.StatusTooManyRequests:
		c.crowd.count("429")
		return false
	case r.status != http.StatusOK:
		c.fault("%s: status %d: %s", what, r.status, encode(r.final))
		return false
	case string(r.final.ID) != fmt.Sprint(id):
		c.fault("%s: the answer is for %s, not %d", what, r.final.ID, id)
		return false
	case r.final.Error != nil:
		c.failed(what, c.mark(id), r.final.Error)
		return false
	}
	return true
}

// failed judges an error.
func (c *client) failed(what, mark string, e *failure) {
	var data struct{ Server, Reason string }
	_ = json.Unmarshal(e.Data, &data) // what is of another type is no reason
	switch {
	case e.Code == 4711 && e.Message == mark:
		c.crowd.count(what + ": the server's own error")
	case e.Code == -32603 && strings.HasPrefix(data.Reason, "backend_") && data.Server != "":
		c.crowd.count(what + ": " + data.Reason + " of " + data.Server)
	default:
		c.fault("%s %s: an error that it must not get: %s", what, mark, encode(e))
	}
}

// right judges the result of a call. In the legacy era a session of a server is
// for one session of the client's, in the modern era for one principal.
func (c *client) right(what, mark, server string, a answer) {
	got := a.Structured
	owned := got.Owner == c.name
	if strings.HasPrefix(what, "modern") {
		owned = strings.HasPrefix(got.Owner, c.principal+".")
	}
	switch {
	case got.Mark != mark || got.Server != server:
		c.fault("%s %s at %s: WRONG ANSWER %+v", what, mark, server, got)
	case !owned:
		c.fault("%s %s at %s: the server's session is that of %s", what, mark, server, got.Owner)
	case got.Asked == "":
		c.crowd.count(what + ": answer")
	case got.Asked == mark:
		c.crowd.count(what + ": answer after an elicitation")
	default:
		c.crowd.count(what + ": answer after an elicitation that was not answered (" + got.Asked + ")")
	}
}

// during judges what comes while a call is under way. Servers that have one
// stream for everything do not say which call their log messages are of.
func (c *client) during(what, mark, server string, id int64, m message) {
	p := read(m.Params)
	switch {
	case m.Method == "notifications/progress" && string(p.Token) == fmt.Sprint(id) && p.Message == mark:
		c.crowd.count("progress")
	case m.Method == "notifications/message" && p.Data == mark:
		c.crowd.count("log message of the call")
	case m.Method == "notifications/message" && !binds(server) && c.mine(what, p.Data):
		c.crowd.count("log message of the same " + who(what) + ", from a server that does not say of which call")
	default:
		c.fault("%s %s at %s: told what is not its own: %s", what, mark, server, encode(m))
	}
}

func who(what string) string {
	if strings.HasPrefix(what, "modern") {
		return "principal"
	}
	return "session"
}

// mine reports whether a mark, or an owner, is the session's or, in the modern
// era, the principal's.
func (c *client) mine(what, mark string) bool {
	if who(what) == "principal" {
		return strings.HasPrefix(mark, c.principal+".")
	}
	return mark == c.name || strings.HasPrefix(mark, c.name+".")
}

// binds reports whether a server says which call a message belongs to.
func binds(server string) bool { return server == "legacy" || server == "modern" }

// rest waits until the next request is due, or the end.
func (c *client) rest(life context.Context) {
	select {
	case <-life.Done():
	case <-time.After(c.dice.between(c.crowd.pace/2, c.crowd.pace*3/2)):
	}
}
