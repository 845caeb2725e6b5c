package upstream

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// tester is a peer that says what it is told.
type tester struct {
	key          string
	era          mcp.Era
	capabilities string
	notes        chan *mcp.Message // takes notifications, unless it is nil
	ask          func(ctx context.Context, m *mcp.Message) *mcp.Message
}

// testPeer is a peer of the legacy era that wants nothing.
func testPeer(key string) *tester { return &tester{key: key, era: mcp.Legacy} }

func (p *tester) Key() string                  { return p.key }
func (p *tester) Era() mcp.Era                 { return p.era }
func (p *tester) Capabilities() jsontext.Value { return jsontext.Value(p.capabilities) }

func (p *tester) Notify(_ string, m *mcp.Message) {
	if p.notes != nil {
		p.notes <- m
	}
}

func (p *tester) Ask(ctx context.Context, _ string, m *mcp.Message) *mcp.Message {
	if p.ask == nil {
		return reply(m)
	}
	return p.ask(ctx, m)
}
