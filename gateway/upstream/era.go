package upstream

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// hello is what a server said of itself when a conversation with it began, and
// the revision that the two sides speak. It does not change.
type hello struct {
	era          mcp.Era
	version      string
	capabilities jsontext.Value // an object, or nil
	info         jsontext.Value // name and version, self-reported; or nil
	instructions string
}

// has reports whether the server declares the capability, and where a setting
// is given, whether that is true in it.
func (h *hello) has(capability, setting string) bool {
	return declares(h.capabilities, capability, setting)
}

// declares reports whether capabilities hold one, whatever is in it, and where a
// setting is given, whether that is on.
func declares(capabilities jsontext.Value, capability, setting string) bool {
	if setting == "" {
		return mcp.Find(capabilities, capability) != nil
	}
	return mcp.Declares(capabilities, capability, setting)
}

// notifies reports whether the server declares to tell of changes of any list.
func (h *hello) notifies() bool {
	return slices.ContainsFunc([]string{"tools", "prompts", "resources"}, func(capability string) bool {
		return h.has(capability, "listChanged")
	})
}

// modernLeg is the hello of a server that is spoken to in the modern era
// before it has said anything.
func modernLeg() *hello { return &hello{era: mcp.Modern, version: mcp.V20260728} }

// legacyLeg is that of a server that is sent initialize.
func legacyLeg() *hello { return &hello{era: mcp.Legacy, version: mcp.V20251125} }

// discovered reads the answer to server/discover. The verdict is Modern with a
// hello, Modern with an error (a modern server that we cannot talk to, which
// initialize would not mend), or Legacy: whatever is no modern answer comes
// from a server that does not know the method.
func discovered(m *mcp.Message) (mcp.Era, *hello, error) {
	if m.Error != nil {
		return refused(m.Err())
	}
	members, err := mcp.Split(m.Result)
	if err != nil {
		return mcp.Legacy, nil, nil
	}
	versions := texts(mcp.Get(members, "supportedVersions"))
	if !slices.Contains(versions, mcp.V20260728) {
		return elsewhere(versions)
	}
	h := modernLeg()
	h.capabilities = object(mcp.Get(members, "capabilities"))
	h.instructions, _ = mcp.Text(mcp.Get(members, "instructions"))
	if meta, err := mcp.Split(mcp.Get(members, "_meta")); err == nil {
		h.info = object(mcp.Get(meta, mcp.MetaServerInfo))
	}
	return mcp.Modern, h, nil
}

// discoverTwice calls server/discover, and once more where the server refused
// our revision and names it as one of its own: it has not looked at the first.
func discoverTwice(call func() (*mcp.Message, error)) (*mcp.Message, error) {
	m, err := call()
	if err != nil || m.Error == nil {
		return m, err
	}
	versions, ok := m.Err().IsUnsupportedVersion()
	if !ok || !slices.Contains(versions, mcp.V20260728) {
		return m, nil
	}
	return call()
}

// refused reads an error that came instead of a modern result. A server that
// names the revisions it supports may well name legacy ones only.
func refused(e *mcp.Error) (mcp.Era, *hello, error) {
	if versions, ok := e.IsUnsupportedVersion(); ok {
		return elsewhere(versions)
	}
	if e.Code == mcp.CodeHeaderMismatch || e.Code == mcp.CodeMissingCapability {
		return mcp.Modern, nil, broken("%s was refused with code %d: %s", discover, e.Code, escape([]byte(e.Message)))
	}
	return mcp.Legacy, nil, nil
}

// elsewhere is the verdict on a server that does not speak our modern
// revision.
func elsewhere(versions []string) (mcp.Era, *hello, error) {
	isLegacy := func(v string) bool { return mcp.EraOf(v) == mcp.Legacy }
	if len(versions) == 0 || slices.ContainsFunc(versions, isLegacy) {
		return mcp.Legacy, nil, nil
	}
	return mcp.Modern, nil, broken("it speaks only protocol versions that we do not: %q", versions)
}

// initialized reads the answer to initialize.
func initialized(m *mcp.Message) (*hello, error) {
	if m.Error != nil {
		e := m.Err()
		return nil, broken("initialize was refused with code %d: %s", e.Code, escape([]byte(e.Message)))
	}
	members, err := mcp.Split(m.Result)
	if err != nil {
		return nil, broken("read the result of initialize: %w", err)
	}
	h := legacyLeg()
	h.capabilities = object(mcp.Get(members, "capabilities"))
	h.info = object(mcp.Get(members, "serverInfo"))
	h.version, _ = mcp.Text(mcp.Get(members, "protocolVersion"))
	h.instructions, _ = mcp.Text(mcp.Get(members, "instructions"))
	if mcp.EraOf(h.version) != mcp.Legacy {
		return nil, broken("initialize was answered with a protocol version that we do not speak: %q", h.version)
	}
	return h, nil
}

// initializeRequest is how we begin with a legacy server for a peer.
func initializeRequest(client jsontext.Value, peer Peer) request {
	params := []byte(`{"protocolVersion":"` + mcp.V20251125 + `","capabilities":`)
	params = append(append(params, declared(peer, mcp.Legacy)...), `,"clientInfo":`...)
	return request{method: mcp.MethodInitialize, params: append(append(params, client...), '}')}
}

// texts returns the strings of a JSON array, and nil for any other value.
func texts(v jsontext.Value) (out []string) {
	list, err := mcp.Elements(v)
	if err != nil {
		return nil
	}
	for _, element := range list {
		if s, ok := mcp.Text(element); ok {
			out = append(out, s)
		}
	}
	return out
}

func object(v jsontext.Value) jsontext.Value {
	if v == nil || v.Kind() != '{' {
		return nil
	}
	return v
}
