package gateway

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/arguments"
	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/registry"
)

// validates reports whether the arguments of a tool are held against its schema.
func (s *Server) validates(tool string) bool {
	if v, set := s.Validate[tool]; set {
		return v
	}
	return s.ValidateArguments
}

// schemaOf is the schema that a tool's arguments are held against. It is nil for
// a tool whose server's are not, and, with the reason, where it cannot be used:
// such a tool's arguments are not looked at, as if that were not asked for.
func (c *Config) schemaOf(server, tool string, input jsontext.Value) (*arguments.Schema, error) {
	s := c.Servers[server]
	switch {
	case !s.validates(tool):
		return nil, nil
	case input == nil:
		return nil, errors.New("there is none")
	}
	return arguments.Compile(input)
}

// unvalidated lists the tools whose arguments are not held against their schema
// although the configuration says so, by name.
func (c *Config) unvalidated(s *upstream.Server) (list []Unvalidated) {
	for _, d := range s.Tools {
		members, err := mcp.Members(d.Raw)
		if err == nil {
			_, err = c.schemaOf(s.Name, d.Name, mcp.Get(members, "inputSchema"))
		}
		if err != nil {
			list = append(list, Unvalidated{d.Name, err.Error()})
		}
	}
	slices.SortFunc(list, func(a, b Unvalidated) int { return strings.Compare(a.Tool, b.Tool) })
	return list
}

// strangers lists the names in a server's validate and in limits.rate.tools that it
// does not offer.
func (c *Config) strangers(s *upstream.Server) (names []string) {
	named := sortedKeys(c.Servers[s.Name].Validate)
	for _, exposed := range sortedKeys(c.Limits.Rate.Tools) {
		if server, tool, _ := registry.SplitExposed(exposed); server == s.Name {
			named = append(named, tool)
		}
	}
	for _, name := range named {
		if s.Tool(name) == nil && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// unfit answers a call whose arguments do not fit the tool's schema, and reports
// whether it did. A model is to read what was wrong and to try again, so the
// answer is a result with isError (MCP 2025-11-25, server/tools, error handling);
// a client that asked for a task gets an error instead, since it expects another
// result.
func (x *exchange) unfit(t target, u *use) (answered bool, f *fault) {
	if u.method != mcp.MethodToolsCall || t.offer == nil || t.offer.schema == nil {
		return false, nil
	}
	faults := t.offer.schema.Check(u.arguments)
	if len(faults) == 0 {
		return false, nil
	}
	lines := make([]string, len(faults))
	for i, fault := range faults {
		lines[i] = fault.String()
	}
	text := "The call was not made, because its arguments do not fit the tool's inputSchema: " + strings.Join(lines, "; ")
	if u.asksTask {
		return false, faultRPC(http.StatusOK, codeArguments, mcp.NewError(mcp.CodeInvalidParams, text))
	}
	content := object(mcp.Set{Name: "type", Value: mcp.String("text")}, mcp.Set{Name: "text", Value: mcp.String(text)})
	sets := []mcp.Set{
		{Name: "content", Value: jsontext.Value("[" + string(content) + "]")},
		{Name: "isError", Value: jsontext.Value("true")},
	}
	if x.era == mcp.Modern {
		sets = append(sets, mcp.Set{Name: "resultType", Value: mcp.String("complete")})
	}
	x.outcome = codeArguments
	x.reply(x.result(object(sets...)))
	return true, nil
}
