package world

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// hello is what the server says of itself, after the given pairs.
func (s *Server) hello(pairs ...any) jsontext.Value {
	s.mu.Lock()
	defer s.mu.Unlock()
	pairs = append(pairs, "capabilities", s.capabilities())
	if s.Instructions != "" {
		pairs = append(pairs, "instructions", mcp.String(s.Instructions))
	}
	return object(pairs...)
}

func (s *Server) capabilities() jsontext.Value {
	if s.Capabilities != nil {
		return s.Capabilities
	}
	changing, live := "{}", "{}"
	if s.Tells {
		changing, live = `{"listChanged":true}`, `{"listChanged":true,"subscribe":true}`
	}
	pairs := []any{"tools", changing}
	if s.Prompts != nil {
		pairs = append(pairs, "prompts", changing)
	}
	if s.Resources != nil || s.Templates != nil {
		pairs = append(pairs, "resources", live)
	}
	if s.Prompts != nil || s.Templates != nil {
		pairs = append(pairs, "completions", "{}")
	}
	if s.Tells {
		pairs = append(pairs, "logging", "{}")
	}
	return object(pairs...)
}

// list answers the four lists, each on one page.
func (s *Server) list(method string) (jsontext.Value, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	member, list := "", []jsontext.Value(nil)
	switch method {
	case mcp.MethodToolsList:
		member, list = "tools", s.Tools
	case mcp.MethodPromptsList:
		member, list = "prompts", s.Prompts
	case mcp.MethodResourcesList:
		member, list = "resources", s.Resources
	case mcp.MethodTemplatesList:
		member, list = "resourceTemplates", s.Templates
	default:
		return nil, false
	}
	parts := make([]string, len(list))
	for i, one := range list {
		parts[i] = string(one)
	}
	return object(member, "["+strings.Join(parts, ",")+"]", "resultType", `"complete"`, "ttlMs", "0", "cacheScope", `"public"`), true
}

// offers reports whether a list holds a definition with this name.
func (s *Server) offers(list *[]jsontext.Value, member, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range *list {
		if text, ok := mcp.Text(mcp.Find(one, member)); ok && text == name {
			return true
		}
	}
	return false
}

func (s *Server) prompt(msg *mcp.Message) (jsontext.Value, *mcp.Error) {
	params, err := mcp.ReadGet(msg.Params)
	if err != nil {
		return nil, err
	}
	if !s.offers(&s.Prompts, "name", params.Name) {
		return nil, mcp.NewError(mcp.CodeInvalidParams, "Unknown prompt: "+params.Name)
	}
	text := object("type", `"text"`, "text", mcp.String(s.Name+" says "+params.Name))
	message := object("role", `"user"`, "content", text)
	return object("messages", "["+string(message)+"]", "resultType", `"complete"`), nil
}

// read answers for every URI, listed or not.
func (s *Server) read(msg *mcp.Message) (jsontext.Value, *mcp.Error) {
	params, err := mcp.ReadURI(msg.Params)
	if err != nil {
		return nil, err
	}
	content := object("uri", mcp.String(params.URI), "text", mcp.String(s.Name+" has "+params.URI))
	return object("contents", "["+string(content)+"]", "resultType", `"complete"`, "ttlMs", "0", "cacheScope", `"public"`), nil
}

// Prompt, Resource and Template are definitions that say no more than they
// have to.

// Prompt defines a prompt with one argument.
func Prompt(name string) jsontext.Value {
	return object("name", mcp.String(name), "arguments", `[{"name":"topic"}]`)
}

// Resource defines a resource.
func Resource(uri string) jsontext.Value {
	return object("uri", mcp.String(uri), "name", mcp.String(uri))
}

// Template defines a template of resources.
func Template(uri string) jsontext.Value {
	return object("uriTemplate", mcp.String(uri), "name", mcp.String(uri))
}
