package upstream

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/upstream/credentials"
)

// Subject is the principal on whose behalf a server is called. The zero value
// is nobody, who gets nothing from a server that is to see the user.
type Subject = credentials.Subject

// Peer is the client for whom conversations with servers are held. Its methods
// may be called concurrently, by any goroutine of the pool, and also after the
// pool was told to release its key.
type Peer interface {
	// Key is what conversations (sessions, processes) are kept by: one for
	// each server and key, made for the peer that came first. It is not
	// empty, does not change, and is never shared between principals.
	Key() string
	// Era is that of the client leg.
	Era() mcp.Era
	// Capabilities are those that the client declared: an object, or nil.
	// Servers of the same era are told of them, others of none.
	Capabilities() jsontext.Value
	// Subject is the client's principal by the latest token that it has proven
	// itself with: for what is done beside its Calls. It is always the same
	// principal.
	Subject() Subject
	// Notify takes a notification that belongs to no Call, in the order in
	// which the server sent it. It must return soon: the conversation waits.
	Notify(server string, m *mcp.Message)
	// Ask answers a request of the server that belongs to no Call. The
	// response is never nil; its ID has no meaning. It must return soon after
	// ctx has ended: when the server no longer wants to know, or the
	// conversation is over.
	Ask(ctx context.Context, server string, m *mcp.Message) *mcp.Message
}

// Call is one request to one server.
type Call struct {
	Server string
	// Peer is the client that the request is made for, never nil. No state
	// that a server keeps of one key is seen by another.
	Peer Peer
	// Subject is the principal that made the request, by the very token that it
	// was judged on.
	Subject Subject
	Method  string
	// Params are the client's, with the server's own names in them, or nil.
	// Their _meta is translated to what the server's era knows; every other
	// byte is sent as it is. They are valid JSON and not modified.
	Params jsontext.Value
	// LogLevel is the least severe level of log messages that the client
	// wants to see; "" leaves it as it is.
	LogLevel string

	// Notify, unless it is nil, is called with every notification that belongs
	// to the request, in order, one at a time and before Do returns, with the
	// client's own progress token in it. A slow one delays the answer.
	Notify func(*mcp.Message)
	// Ask answers a request that the server makes during the call: the
	// response, never nil, whose ID has no meaning. Several may be under way at
	// once. It must return soon after its ctx has ended. The call's deadline
	// does not run while one is under way. Nil refuses them all.
	Ask func(context.Context, *mcp.Message) *mcp.Message
}
