package gateway

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// capabilities is what the gateway serves; listChanged is always true, since a
// policy or the registry may change what is visible at any time.
var capabilities = jsontext.Value(`{"tools":{"listChanged":true}}`)

// listTTL is how long a modern-era client may take a list for fresh. A list
// changes with the policy, so it is never long.
const listTTL = "0"

func (x *exchange) initialize() *fault {
	params, err := mcp.ReadInitialize(x.msg.Params)
	if err != nil {
		return faultRPC(400, codeMalformed, err)
	}
	x.version = mcp.Negotiate(params.ProtocolVersion)
	s, e := x.g.sessions.Open(x.ctx, Session{
		Principal: x.principal.Key(), Version: x.version, Capabilities: params.Capabilities,
		Client: Implementation{Name: clip(params.Client.Name), Version: clip(params.Client.Version)},
	})
	if e != nil {
		return faultBusy(codeSessionsFull, "too many sessions: end one and try again")
	}
	x.session = s
	x.w.Header().Set("Mcp-Session-Id", s.ID)
	x.reply(x.result(object(
		mcp.Set{Name: "protocolVersion", Value: mcp.String(x.version)},
		mcp.Set{Name: "capabilities", Value: capabilities},
		mcp.Set{Name: "serverInfo", Value: x.g.serverInfo()},
	)))
	return nil
}

func (x *exchange) ping() *fault {
	x.reply(x.result(jsontext.Value("{}")))
	return nil
}

func (x *exchange) discover() *fault {
	x.reply(x.result(object(
		mcp.Set{Name: "resultType", Value: mcp.String("complete")},
		mcp.Set{Name: "supportedVersions", Value: stringArray(mcp.Supported())},
		mcp.Set{Name: "capabilities", Value: capabilities},
		mcp.Set{Name: "ttlMs", Value: jsontext.Value(listTTL)},
		mcp.Set{Name: "cacheScope", Value: mcp.String("private")},
		mcp.Set{Name: "_meta", Value: object(mcp.Set{Name: "io.modelcontextprotocol/serverInfo", Value: x.g.serverInfo()})},
	)))
	return nil
}

func (g *Gateway) serverInfo() jsontext.Value {
	return object(
		mcp.Set{Name: "name", Value: mcp.String("regogate")},
		mcp.Set{Name: "title", Value: mcp.String("regogate")},
		mcp.Set{Name: "version", Value: mcp.String(g.version)},
	)
}

// result makes the response with this result to the exchange's request.
func (x *exchange) result(result jsontext.Value) []byte {
	out := make([]byte, 0, len(result)+64)
	out = append(append(out, `{"jsonrpc":"2.0","id":`...), x.msg.ID.Raw()...)
	return append(append(append(out, `,"result":`...), result...), '}')
}
