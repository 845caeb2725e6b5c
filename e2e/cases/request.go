package cases

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/regogate/regogate/gateway/mcp"
)

const (
	legacyVersion = "2025-11-25"
	modernVersion = "2026-07-28"
	modernMeta    = `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modernVersion + `",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"cases","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
)

// request makes what goes over the wire for a step, and opens the session that
// it belongs to where there is none yet.
func (w *world) request(ctx context.Context, s *Step) (outgoing, error) {
	if s.Raw != "" {
		// A block of YAML ends its lines in LF.
		return outgoing{head: strings.ReplaceAll(s.Raw, "\n", "\r\n"), pace: s.Pace}, nil
	}
	body := s.message()
	headers, err := w.headers(ctx, s)
	if err != nil {
		return outgoing{}, err
	}
	method, path := s.Method, s.Path
	if method == "" {
		method = "POST"
	}
	if path == "" {
		path = "/mcp"
	}
	head := method + " " + path + " HTTP/1.1\r\n" + strings.Join(headers, "\r\n") + "\r\n"
	out := outgoing{body: body, pace: s.Pace}
	switch {
	case s.Fill != nil:
		out.filler, out.chunked = int64(s.Fill.Size), s.Fill.Chunked
		if s.Fill.Chunked {
			head += "Transfer-Encoding: chunked\r\n"
		} else {
			head += "Content-Length: " + strconv.FormatInt(out.filler, 10) + "\r\n"
		}
	case body != "" || method == "POST":
		head += "Content-Length: " + strconv.Itoa(len(body)) + "\r\n"
	}
	out.head = head + "\r\n"
	return out, nil
}

// message is the step's body.
func (s *Step) message() string {
	meta := ""
	if s.Era == "modern" {
		meta = "," + modernMeta
	}
	switch {
	case s.Body != nil:
		return *s.Body
	case s.Call != "":
		arguments := s.Arguments
		if arguments == "" {
			arguments = "{}"
		}
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":` + string(mcp.String(s.Call)) + `,"arguments":` + arguments + meta + `}}`
	case s.List:
		params := strings.TrimSuffix(strings.TrimPrefix(s.Arguments, "{"), "}")
		if params == "" {
			meta = strings.TrimPrefix(meta, ",")
		}
		return `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + params + meta + `}}`
	}
	return ""
}

// headers returns the header lines: the usual ones with what the step says, in
// the order of the usual ones.
func (w *world) headers(ctx context.Context, s *Step) ([]string, error) {
	usual, err := w.usual(ctx, s)
	if err != nil {
		return nil, err
	}
	var lines []string
	written := map[string]bool{}
	for _, h := range usual {
		name, value := h[0], h[1]
		for own, v := range s.Headers {
			if strings.EqualFold(own, name) {
				name, value, written[own] = own, v, true
			}
		}
		if !containsFold(s.Without, name) {
			lines = append(lines, name+": "+value)
		}
	}
	for name, value := range s.Headers {
		if !written[name] {
			lines = append(lines, name+": "+value)
		}
	}
	return append(lines, s.Lines...), nil
}

func (w *world) usual(ctx context.Context, s *Step) ([][2]string, error) {
	h := [][2]string{{"Host", w.gate.addr}}
	token, err := w.tokenOf(s)
	if err != nil {
		return nil, err
	}
	if token != "" {
		h = append(h, [2]string{"Authorization", "Bearer " + token})
	}
	if s.Method == "" || s.Method == "POST" {
		h = append(h, [2]string{"Content-Type", "application/json"})
	}
	h = append(h, [2]string{"Accept", "application/json, text/event-stream"})
	if s.Era == "modern" {
		h = append(h, [2]string{"MCP-Protocol-Version", modernVersion})
		if s.Call != "" {
			h = append(h, [2]string{"Mcp-Method", "tools/call"}, [2]string{"Mcp-Name", mcp.EncodeHeader(s.Call)})
		}
		if s.List {
			h = append(h, [2]string{"Mcp-Method", "tools/list"})
		}
		return h, nil
	}
	h = append(h, [2]string{"MCP-Protocol-Version", legacyVersion})
	session, err := w.session(ctx, s)
	if session != "" {
		h = append(h, [2]string{"Mcp-Session-Id", session})
	}
	return h, err
}

// tokenOf is the token that the step sends, "" for none.
func (w *world) tokenOf(s *Step) (string, error) {
	switch {
	case s.Forge != nil:
		return w.mint(*s.Forge)
	case s.Token == "none":
		return "", nil
	}
	return w.token(s.Token)
}

// session returns the id of the step's session. main, which is the usual one,
// belongs to the good token; any other is opened with the token of the first
// step that names it.
func (w *world) session(ctx context.Context, s *Step) (string, error) {
	name := s.Session
	switch name {
	case "none":
		return "", nil
	case "":
		name = "main"
	}
	w.mu.Lock()
	id := w.sessions[name]
	w.mu.Unlock()
	if id != "" {
		return id, nil
	}
	opener := &Step{Session: "none", Token: s.Token, Forge: s.Forge}
	if name == "main" {
		opener = &Step{Session: "none"}
	}
	id, err := w.initialize(ctx, opener)
	if err != nil {
		return "", fmt.Errorf("open session %s: %w", name, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sessions[name] = id
	return id, nil
}

func (w *world) initialize(ctx context.Context, s *Step) (string, error) {
	hello := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + legacyVersion + `","capabilities":{},"clientInfo":{"name":"cases","version":"1"}}}`
	s.Body = &hello
	out, err := w.request(ctx, s)
	if err != nil {
		return "", err
	}
	r := exchange(ctx, w.gate.addr, out)
	id := ""
	if r.err == nil {
		id = r.header.Get("Mcp-Session-Id")
	}
	if r.status != 200 || id == "" {
		return "", errors.Join(fmt.Errorf("initialize was answered with status %d: %s", r.status, clip(string(r.body))), r.err)
	}
	ready := `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	told := &Step{Token: s.Token, Forge: s.Forge, Session: "none", Headers: map[string]string{"Mcp-Session-Id": id}, Body: &ready}
	if out, err = w.request(ctx, told); err != nil {
		return "", err
	}
	if r := exchange(ctx, w.gate.addr, out); r.status != 202 {
		return "", fmt.Errorf("notifications/initialized was answered with status %d: %w", r.status, r.err)
	}
	return id, nil
}

func containsFold(list []string, name string) bool {
	for _, s := range list {
		if strings.EqualFold(s, name) {
			return true
		}
	}
	return false
}
