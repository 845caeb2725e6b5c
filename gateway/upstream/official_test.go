//lint:file-ignore SA1019 what a later revision deprecates is what servers do today

package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/regogate/regogate/gateway/mcp"
)

// officialServer is a server of the official SDK that does everything that a
// server can do to a client.
func officialServer() *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "official", Version: "1"}, &sdk.ServerOptions{
		SubscribeHandler:   func(context.Context, *sdk.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *sdk.UnsubscribeRequest) error { return nil },
		Capabilities:       &sdk.ServerCapabilities{Logging: &sdk.LoggingCapabilities{}},
	})
	read := func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		return nil, errors.New("not to be read")
	}
	s.AddResource(&sdk.Resource{Name: "one", URI: "test://one"}, read)
	s.AddResource(&sdk.Resource{Name: "two", URI: "test://two"}, read)
	tool := func(name string, f func(ctx context.Context, ss *sdk.ServerSession, text string) (any, error)) {
		sdk.AddTool(s, &sdk.Tool{Name: name}, func(ctx context.Context, r *sdk.CallToolRequest, in sdkInput) (*sdk.CallToolResult, any, error) {
			out, err := f(ctx, r.Session, in.Text)
			if err != nil {
				return nil, nil, err
			}
			text, err := json.Marshal(out)
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: string(text)}}}, nil, err
		})
	}
	tool("ask", officialAsk)
	tool("log", func(ctx context.Context, ss *sdk.ServerSession, text string) (any, error) {
		for _, level := range []sdk.LoggingLevel{"debug", "error"} {
			if err := ss.Log(ctx, &sdk.LoggingMessageParams{Level: level, Data: text}); err != nil {
				return nil, err
			}
		}
		return "logged", nil
	})
	tool("update", func(ctx context.Context, _ *sdk.ServerSession, text string) (any, error) {
		return "updated", s.ResourceUpdated(ctx, &sdk.ResourceUpdatedNotificationParams{URI: text})
	})
	tool("later", func(_ context.Context, ss *sdk.ServerSession, text string) (any, error) {
		go officialLater(ss)
		return "later", nil
	})
	return s
}

func officialAsk(ctx context.Context, ss *sdk.ServerSession, text string) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // a lost session waits no longer
	defer cancel()
	switch text {
	case "sampling":
		return ss.CreateMessage(ctx, &sdk.CreateMessageParams{MaxTokens: 1})
	case "elicitation":
		return ss.Elicit(ctx, &sdk.ElicitParams{Message: "who?"})
	}
	return ss.ListRoots(ctx, nil)
}

// officialLater asks and tells when no call is under way.
func officialLater(ss *sdk.ServerSession) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	time.Sleep(100 * time.Millisecond) // the answer of the call comes first
	roots, err := ss.ListRoots(ctx, nil)
	if err != nil {
		ss.NotifyElicitationComplete(ctx, &sdk.ElicitationCompleteParams{ElicitationID: err.Error()})
		return
	}
	ss.NotifyElicitationComplete(ctx, &sdk.ElicitationCompleteParams{ElicitationID: roots.Roots[0].URI})
}

// runOfficial serves one over standard input and output.
func runOfficial() {
	if err := officialServer().Run(context.Background(), &sdk.StdioTransport{}); err != nil {
		os.Exit(1)
	}
}

// legacyOfficials are the ways to run one in the legacy era.
func legacyOfficials() map[string]func(t *testing.T) Config {
	web := func(handler func(*sdk.Server) http.Handler) func(t *testing.T) Config {
		return func(t *testing.T) Config {
			w := httptest.NewServer(handler(officialServer()))
			t.Cleanup(w.Close)
			return Config{URL: w.URL, Protocol: "legacy"}
		}
	}
	streamable := func(o sdk.StreamableHTTPOptions) func(*sdk.Server) http.Handler {
		return func(s *sdk.Server) http.Handler {
			return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &o)
		}
	}
	return map[string]func(t *testing.T) Config{
		"http":           web(streamable(sdk.StreamableHTTPOptions{})),
		"resumable http": web(streamable(sdk.StreamableHTTPOptions{EventStore: sdk.NewMemoryEventStore(nil)})),
		"events": web(func(s *sdk.Server) http.Handler {
			return sdk.NewSSEHandler(func(*http.Request) *sdk.Server { return s }, nil)
		}),
		"stdio": func(t *testing.T) Config {
			c, _ := doubleConfig(t, "official")
			c.Protocol = "legacy"
			return c
		},
	}
}

// legacyPools runs a test against each of them, as the server official.
func legacyPools(t *testing.T, test func(t *testing.T, p *Pool)) {
	for name, config := range legacyOfficials() {
		t.Run(name, func(t *testing.T) {
			o := quick(nil)
			o.Refresh = time.Hour
			p := newPool(t, map[string]Config{"official": config(t)}, o)
			test(t, p)
			p.Close() // before the server waits for its streams to end
		})
	}
}

// TestOfficialAsksDuringACall: what a server asks during a call reaches the
// call, and what it gets comes back.
func TestOfficialAsksDuringACall(t *testing.T) {
	legacyPools(t, func(t *testing.T, p *Pool) {
		peer := ablePeer("ada")
		for text, want := range map[string]string{
			"sampling":    `\"text\":\"during\"`,
			"elicitation": `{\"who\":\"during\"}`,
			"roots":       `file:///during`,
		} {
			call := Call{Server: "official", Peer: peer, Method: "tools/call", Params: ofTool("ask", text)}
			call.Ask = func(_ context.Context, m *mcp.Message) *mcp.Message { return answerAs("during", m) }
			m, err := p.Do(t.Context(), call)
			if got := must(t, m, err); !strings.Contains(got, want) {
				t.Errorf("%s: %s is not in %s", text, want, got)
			}
			call.Ask = nil
			m, err = p.Do(t.Context(), call)
			if got := must(t, m, err); !strings.Contains(got, "the client does not support this method") {
				t.Errorf("%s with nobody to ask: %s", text, got)
			}
		}
		// A peer that declared nothing is not asked by an official server.
		m, err := p.Do(t.Context(), Call{Server: "official", Peer: testPeer("bob"), Method: "tools/call", Params: ofTool("ask", "elicitation")})
		if got := must(t, m, err); !strings.Contains(got, "client does not support elicitation") {
			t.Errorf("a client without capabilities: %s", got)
		}
	})
}

// TestOfficialAsksUnasked: what belongs to no call is for the peer of the
// conversation, and for no other.
func TestOfficialAsksUnasked(t *testing.T) {
	legacyPools(t, func(t *testing.T, p *Pool) {
		ada, bob := ablePeer("ada"), ablePeer("bob")
		for _, peer := range []*tester{ada, bob} {
			m, err := p.Do(t.Context(), Call{Server: "official", Peer: peer, Method: "tools/call", Params: ofTool("later", "")})
			must(t, m, err)
		}
		for _, peer := range []*tester{ada, bob} {
			if got, want := peer.told(t, elicited), `{"elicitationId":"file:///`+peer.key+`"}`; got != want {
				t.Errorf("%s was told %s, want %s", peer.key, got, want)
			}
		}
		if got, want := p.Open("ada"), []string{"official"}; !slices.Equal(got, want) {
			t.Errorf("Open is %q, want %q", got, want)
		}
		p.Release("ada")
		if got := p.Open("ada"); len(got) > 0 {
			t.Errorf("Open after Release is %q", got)
		}
		if got := p.Open("bob"); len(got) != 1 {
			t.Errorf("Open of another key is %q", got)
		}
	})
}

// TestOfficialLogLevel: each call is logged at the level that it wants.
func TestOfficialLogLevel(t *testing.T) {
	legacyPools(t, func(t *testing.T, p *Pool) {
		peer := testPeer("ada")
		for _, tt := range []struct {
			level string
			want  []string
		}{
			{"error", []string{"error"}},
			{"", []string{"error"}},
			{"debug", []string{"debug", "error"}},
			{"debug", []string{"debug", "error"}},
			{"emergency", nil},
		} {
			var got []string
			m, err := p.Do(t.Context(), Call{
				Server: "official", Peer: peer, Method: "tools/call", Params: ofTool("log", "x"), LogLevel: tt.level,
				Notify: func(m *mcp.Message) {
					members, _ := mcp.Split(m.Params)
					level, _ := mcp.Text(mcp.Get(members, "level"))
					got = append(got, level)
				},
			})
			must(t, m, err)
			if !slices.Equal(got, tt.want) {
				t.Errorf("at level %q the messages are of %q, want %q", tt.level, got, tt.want)
			}
		}
	})
}

// TestOfficialSubscriptions: whoever subscribed hears of a change, and nobody
// else.
func TestOfficialSubscriptions(t *testing.T) { legacyPools(t, testSubscriptions) }

func TestOfficialModernSubscriptions(t *testing.T) {
	s := officialServer()
	w := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &sdk.StreamableHTTPOptions{Stateless: true}))
	defer w.Close()
	c, _ := doubleConfig(t, "official")
	c.Protocol = "modern"
	for name, c := range map[string]Config{"http": {URL: w.URL, Protocol: "modern"}, "stdio": c} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t, map[string]Config{"official": c}, quick(nil))
			testSubscriptions(t, p)
			p.Close()
		})
	}
}

func testSubscriptions(t *testing.T, p *Pool) {
	ada, bob := testPeer("ada"), testPeer("bob")
	update := func(uri string) {
		t.Helper()
		for _, peer := range []*tester{ada, bob} { // over stdio each has a server of its own
			m, err := p.Do(t.Context(), Call{Server: "official", Peer: peer, Method: "tools/call", Params: ofTool("update", uri)})
			must(t, m, err)
		}
	}
	for _, uri := range []string{"test://one", "test://two"} {
		m, err := p.Subscribe(t.Context(), "official", ada, uri)
		must(t, m, err)
	}
	m, err := p.Subscribe(t.Context(), "official", bob, "test://two")
	must(t, m, err)
	update("test://one")
	if got, want := ada.told(t, updated), `{"uri":"test://one"}`; plain(got) != want {
		t.Errorf("ada was told %s, want %s", got, want)
	}
	update("test://two")
	if got, want := bob.told(t, updated), `{"uri":"test://two"}`; plain(got) != want {
		t.Errorf("bob was told %s, want %s", got, want)
	}
	if err := p.Unsubscribe(t.Context(), "official", bob, "test://two"); err != nil {
		t.Fatal(err)
	}
	m, err = p.Subscribe(t.Context(), "official", bob, "test://one")
	must(t, m, err)
	for len(bob.notes) > 0 {
		<-bob.notes
	}
	update("test://two")
	update("test://one")
	if got, want := bob.told(t, updated), `{"uri":"test://one"}`; plain(got) != want {
		t.Errorf("bob was told %s, want %s", got, want)
	}
}

// plain is params without an empty _meta.
func plain(params string) string { return strings.Replace(params, `"_meta":{},`, "", 1) }
