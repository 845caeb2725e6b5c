package upstream

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// Subscribe has the server tell of every change of the resource uri: from then
// on until Unsubscribe or Release, peer's Notify gets its
// notifications/resources/updated, also over a new conversation when the one
// there was is lost. The message is the server's answer, a result or an error;
// an error subscribes to nothing. So does an *Error, as in Do.
func (p *Pool) Subscribe(ctx context.Context, server string, peer Peer, uri string) (*mcp.Message, error) {
	return p.Do(ctx, Call{Server: server, Peer: peer, Method: "resources/subscribe", Params: uriParams(uri)})
}

// Unsubscribe ends what Subscribe began; where there is nothing to end it does
// nothing. The error, an *Error, says that the server could not be told so.
func (p *Pool) Unsubscribe(ctx context.Context, server string, peer Peer, uri string) error {
	_, err := p.Do(ctx, Call{Server: server, Peer: peer, Method: "resources/unsubscribe", Params: uriParams(uri)})
	return err
}

func uriParams(uri string) jsontext.Value {
	return append(mcp.AppendString([]byte(`{"uri":`), uri), '}')
}

// Tell sends a notification to the server over the open conversation of the
// key, if there is one that can carry it; "" is every server. It does not wait
// for anything.
func (p *Pool) Tell(server, key string, m *mcp.Message) {}

// Open returns the servers with an open conversation of the key, sorted.
func (p *Pool) Open(key string) []string { return nil }

// Release ends all conversations and subscriptions of the key, and what is
// under way over them. It does not wait for servers.
func (p *Pool) Release(key string) {}
