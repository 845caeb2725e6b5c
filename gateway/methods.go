package gateway

import (
	"github.com/regogate/regogate/gateway/mcp"
)

// method is one row of the table of what a client may ask. What is not in the
// table is method not found and goes nowhere; no policy can open it.
type method struct {
	legacy, modern bool
	serve          func(x *exchange) *fault
}

func (m method) in(era mcp.Era) bool {
	if era == mcp.Modern {
		return m.modern
	}
	return m.legacy
}

var methods = map[string]method{
	"initialize":      {legacy: true, serve: (*exchange).initialize},
	"ping":            {legacy: true, serve: (*exchange).ping},
	"server/discover": {modern: true, serve: (*exchange).discover},
	"tools/list":      {legacy: true, modern: true, serve: (*exchange).listTools},
	"tools/call":      {legacy: true, modern: true, serve: (*exchange).callTool},
}

// notified takes note of a notification. Those that are not known are dropped,
// as JSON-RPC says.
func (x *exchange) notified() {
	if x.msg.Method == "notifications/cancelled" && x.era == mcp.Legacy {
		x.g.running.cancel(x.session.ID, x.msg)
	}
}
