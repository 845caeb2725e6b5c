package upstream

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

const (
	reserved = "io.modelcontextprotocol/"
	// relatedTask is the one reserved name that a legacy revision defines
	// (2025-11-25, tasks).
	relatedTask = mcp.MetaRelatedTask
)

// Notifications that are ours to act on and go no further: the client leg says
// for itself that a list changed, from the state that the pool publishes, and
// the rest belongs to the backend leg alone.
const (
	toolsChanged     = mcp.NotifyToolsChanged
	promptsChanged   = mcp.NotifyPromptsChanged
	resourcesChanged = mcp.NotifyResourcesChanged
	cancelled        = mcp.NotifyCancelled
	acknowledged     = mcp.NotifyAcknowledged
)

// Notifications that are a peer's whatever is under way.
const (
	updated    = mcp.NotifyResourceUpdated
	elicited   = mcp.NotifyElicited
	taskStatus = mcp.NotifyTaskStatus
)

const (
	discover    = mcp.MethodDiscover
	listen      = mcp.MethodListen
	subscribe   = mcp.MethodSubscribe
	unsubscribe = mcp.MethodUnsubscribe
	setLevel    = mcp.MethodSetLevel
	progress    = mcp.NotifyProgress
	greeted     = mcp.NotifyInitialized

	// A server tells of those lists that it has.
	listenArgs = `{"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}}`
)

// outbound turns params as they came from the client leg into what this server
// is sent. Only _meta changes, every other byte stays: a legacy server gets
// none of the modern era's reserved names, a modern one gets ours and the
// capabilities that a modern client brought along, and a progress token becomes
// the id of our own request, which is unique where the client's need not be.
// The client's token is returned, nil where there was none.
func outbound(r request, h *hello, client jsontext.Value, id mcp.ID) (out, token jsontext.Value, err error) {
	meta, e := mcp.ReadMeta(r.params)
	if e != nil {
		return nil, nil, broken("read the _meta of a request: %w", e)
	}
	var sets []mcp.Set
	if meta.ProgressToken != nil {
		sets = append(sets, mcp.Set{Name: mcp.MetaProgressToken, Value: id.Raw()})
	}
	if h.era == mcp.Modern {
		sets = append(sets,
			mcp.Set{Name: mcp.MetaProtocolVersion, Value: mcp.String(h.version)},
			mcp.Set{Name: mcp.MetaClientInfo, Value: client})
		sets = append(sets, modernSets(r, meta.Raw)...)
	} else {
		sets = append(sets, withoutReserved(meta.Raw)...)
	}
	if len(sets) == 0 {
		return r.params, meta.ProgressToken, nil
	}
	out, err = mcp.EditMeta(r.params, sets...)
	if err != nil {
		return nil, nil, broken("write the _meta of a request: %w", err)
	}
	return out, meta.ProgressToken, nil
}

// modernSets is what a modern server is told of the client.
func modernSets(r request, meta jsontext.Value) (sets []mcp.Set) {
	members, err := mcp.Split(meta)
	brought := err == nil && object(mcp.Get(members, mcp.MetaClientCapabilities)) != nil
	if !brought || r.peer == nil || r.peer.Era() != mcp.Modern {
		sets = append(sets, mcp.Set{Name: mcp.MetaClientCapabilities, Value: declared(r.peer, mcp.Modern)})
	}
	if r.level != "" {
		sets = append(sets, mcp.Set{Name: mcp.MetaLogLevel, Value: mcp.String(r.level)})
	}
	return sets
}

func withoutReserved(meta jsontext.Value) (sets []mcp.Set) {
	members, err := mcp.Split(meta)
	if err != nil {
		return nil
	}
	for _, m := range members {
		if strings.HasPrefix(m.Name, reserved) && m.Name != relatedTask {
			sets = append(sets, mcp.Set{Name: m.Name})
		}
	}
	return sets
}

// restore puts the client's progress token back into a notification. It
// returns nil where the notification is not about the request id, or the
// client has not asked for it.
func restore(m *mcp.Message, id mcp.ID, token jsontext.Value) *mcp.Message {
	if token == nil || progressOf(m) != id {
		return nil
	}
	params, err := mcp.Edit(m.Params, mcp.Set{Name: mcp.MetaProgressToken, Value: token})
	if err != nil {
		return nil
	}
	return mcp.NewRequest(mcp.ID{}, m.Method, params)
}

// progressOf returns the token of a progress notification, or the zero ID.
func progressOf(m *mcp.Message) mcp.ID {
	members, err := mcp.Split(m.Params)
	if err != nil {
		return mcp.ID{}
	}
	id, _ := mcp.ReadID(mcp.Get(members, mcp.MetaProgressToken))
	return id
}

// cancelledID returns the id of the request that a notifications/cancelled is
// about.
func cancelledID(m *mcp.Message) (mcp.ID, bool) {
	members, err := mcp.Split(m.Params)
	if err != nil {
		return mcp.ID{}, false
	}
	return mcp.ReadID(mcp.Get(members, "requestId"))
}

// subscriptionOf returns the id of the subscriptions/listen that a
// notification came from, or the zero ID.
func subscriptionOf(m *mcp.Message) mcp.ID {
	meta, e := mcp.ReadMeta(m.Params)
	if e != nil {
		return mcp.ID{}
	}
	members, err := mcp.Split(meta.Raw)
	if err != nil {
		return mcp.ID{}
	}
	id, _ := mcp.ReadID(mcp.Get(members, mcp.MetaSubscriptionID))
	return id
}

// unsubscribed takes the id of our own subscription out of a notification. It
// returns nil where that cannot be done.
func unsubscribed(m *mcp.Message) *mcp.Message {
	params, err := mcp.EditMeta(m.Params, mcp.Set{Name: mcp.MetaSubscriptionID})
	if err != nil {
		return nil
	}
	return mcp.NewRequest(mcp.ID{}, m.Method, params)
}
