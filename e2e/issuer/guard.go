package issuer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Guarded is an MCP server of the official SDK that wants the issuer's tokens,
// for itself, and writes down whose came. Its tool whoami says "SUB for ACT", and
// wait sends to Waits and answers after one of Go.
type Guarded struct {
	*httptest.Server
	Waits, Go chan struct{}

	issuer   *Issuer
	audience string

	mu      sync.Mutex
	came    []Came
	revoked map[string]bool // tokens, or subjects
	streams []context.CancelFunc
	servers []*mcp.Server
}

// Came is one HTTP request that a Guarded got.
type Came struct {
	Method, Token string
	RPC           string // the JSON-RPC method of a POST
	Subject       string // of the token, "" where that is not for the server
	TurnedAway    bool   // it was revoked
}

// NewGuarded starts a server for an audience: stateful, stateless (of the modern
// era) or sse (HTTP+SSE). Shut ends it.
func NewGuarded(issuer *Issuer, kind, audience string) *Guarded {
	g := &Guarded{issuer: issuer, audience: audience, revoked: map[string]bool{}, Waits: make(chan struct{}), Go: make(chan struct{})}
	get := func(r *http.Request) *mcp.Server { return g.tools(auth.TokenInfoFromContext(r.Context())) }
	var handler http.Handler = mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: kind == "stateless"})
	if kind == "sse" {
		handler = mcp.NewSSEHandler(get, nil)
	}
	g.Server = httptest.NewServer(g.record(auth.RequireBearerToken(g.verify, nil)(handler)))
	return g
}

// tools makes a server. Over HTTP+SSE the SDK tells a tool no more than whose the
// stream is.
func (g *Guarded) tools(stream *auth.TokenInfo) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "guarded", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "whoami"}, func(_ context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		info := stream
		if r.Extra != nil && r.Extra.TokenInfo != nil {
			info = r.Extra.TokenInfo
		}
		text := fmt.Sprintf("%s for %s", info.UserID, info.Extra["act"])
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "wait"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		select {
		case g.Waits <- struct{}{}:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
		select {
		case <-g.Go:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
		return &mcp.CallToolResult{}, nil, nil
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.servers = append(g.servers, server)
	return server
}

// record writes down what comes, and lets Cut end streams.
func (g *Guarded) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		one := Came{Method: r.Method, Token: strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		var message struct {
			Method string `json:"method"`
		}
		_ = json.Unmarshal(body, &message) // the server says what is wrong with it
		one.RPC = message.Method
		if claims, err := g.issuer.Verify(one.Token, g.audience); err == nil {
			one.Subject, _ = claims["sub"].(string)
		}
		g.mu.Lock()
		one.TurnedAway = g.revoked[one.Token] || g.revoked[one.Subject]
		g.came = append(g.came, one)
		if r.Method == http.MethodGet {
			g.streams = append(g.streams, cancel)
		}
		g.mu.Unlock()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// verify is the server's own look at a token.
func (g *Guarded) verify(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	claims, err := g.issuer.Verify(token, g.audience)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", auth.ErrInvalidToken, err)
	}
	sub, _ := claims["sub"].(string)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.revoked[token] || g.revoked[sub] {
		return nil, fmt.Errorf("%w: revoked", auth.ErrInvalidToken)
	}
	end, err := claims.GetExpirationTime()
	if err != nil {
		return nil, err
	}
	act, _ := claims["act"].(map[string]any)
	return &auth.TokenInfo{UserID: sub, Expiration: end.Time, Extra: map[string]any{"act": fmt.Sprint(act["sub"])}}, nil
}

// Revoke has tokens, or all of a subject, turned away from now on.
func (g *Guarded) Revoke(what ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range what {
		g.revoked[w] = true
	}
}

// Restore takes a Revoke back.
func (g *Guarded) Restore(what string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.revoked, what)
}

// Cut ends all open streams.
func (g *Guarded) Cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, cancel := range g.streams {
		cancel()
	}
	g.streams = nil
}

// Came returns the requests so far that match.
func (g *Guarded) Came(match func(Came) bool) (list []Came) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.came {
		if match(c) {
			list = append(list, c)
		}
	}
	return list
}

// Tokens returns those with which a subject came, each once, in order.
func (g *Guarded) Tokens(subject string) (list []string) {
	for _, c := range g.Came(func(c Came) bool { return c.Subject == subject }) {
		if !slices.Contains(list, c.Token) {
			list = append(list, c.Token)
		}
	}
	return list
}

// Shut ends the server with all that is open.
func (g *Guarded) Shut() {
	g.Cut()
	g.CloseClientConnections()
	g.Close()
	for _, s := range g.servers { // of users who could not say that they are over
		for session := range s.Sessions() {
			_ = session.Close()
		}
	}
}
