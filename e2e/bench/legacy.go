package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// legacyVersion is the protocol revision of the legacy-era clients.
const legacyVersion = "2025-11-25"

// legacy makes the same request in the legacy era, from that many clients with
// a session each.
func (t *target) legacy(ctx context.Context, clients int) (*target, error) {
	m, bad := mcp.Parse(t.body)
	if bad != nil {
		return nil, bad
	}
	params, err := mcp.Edit(m.Params, mcp.Set{Name: "_meta"})
	if err != nil {
		return nil, err
	}
	old := &target{url: t.url, client: newClient(), judge: t.judge, body: mcp.NewRequest(m.ID, m.Method, params).Append(nil)}
	for range clients {
		header := http.Header{}
		for _, key := range []string{"Authorization", "Content-Type", "Accept"} {
			header.Set(key, t.headers[0].Get(key))
		}
		session, err := old.initialize(ctx, header)
		if err != nil {
			return nil, fmt.Errorf("begin a legacy session: %w", err)
		}
		header.Set("Mcp-Session-Id", session)
		header.Set("Mcp-Protocol-Version", legacyVersion)
		old.headers = append(old.headers, header)
	}
	return old, nil
}

// initialize begins a session and returns its id.
func (t *target) initialize(ctx context.Context, header http.Header) (string, error) {
	params := jsontext.Value(`{"protocolVersion":"` + legacyVersion + `","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}`)
	hello := mcp.NewRequest(mcp.NumberID(1), "initialize", params)
	resp, err := t.post(ctx, header.Clone(), hello)
	if err != nil {
		return "", err
	}
	session := resp.Header.Get("Mcp-Session-Id")
	if resp.StatusCode != http.StatusOK || session == "" {
		return "", fmt.Errorf("HTTP status %d, session %q", resp.StatusCode, session)
	}
	header = header.Clone()
	header.Set("Mcp-Session-Id", session)
	_, err = t.post(ctx, header, mcp.NewRequest(mcp.ID{}, "notifications/initialized", nil))
	return session, err
}

// post sends a message and reads the answer's body away.
func (t *target) post(ctx context.Context, header http.Header, m *mcp.Message) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url.String(), bytes.NewReader(m.Append(nil)))
	if err != nil {
		return nil, err
	}
	r.Header = header
	resp, err := t.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp, err
}
