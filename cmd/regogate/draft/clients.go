package draft

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/registry/strictyaml"
)

// client is one server as a desktop client's file describes it. Values are as
// they stand there.
type client struct {
	name         string
	command, cwd string
	args         []string
	env, headers map[string]string
	url          string
	out          string   // why it cannot be taken over; "" where it can
	ignored      []string // keys that mean nothing here
}

// readClients reads an mcpServers file. The servers are sorted by name, the
// notices and the error have a line each for what is ignored and what is wrong.
func readClients(file string) (servers []client, notices []string, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("--from: %w: name the file in which a client keeps its mcpServers", err)
	}
	var root map[string]jsontext.Value
	if err := json.Unmarshal(bytes.TrimPrefix(data, []byte("\ufeff")), &root); err != nil {
		return nil, nil, badJSON(file, data, err)
	}
	key := "mcpServers"
	if root[key] == nil && root["servers"] != nil {
		key = "servers" // as in the mcp.json of some editors
	}
	r := &clientReader{file: file}
	listed, ok := r.members(root[key], key)
	if !ok && root[key] == nil {
		r.problems = []string{file + ": has no mcpServers: name the file in which a client keeps its servers"}
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		servers = append(servers, r.server(strictyaml.Field(key, name), name, listed[name]))
	}
	delete(root, key)
	if len(root) > 0 {
		notices = append(notices, fmt.Sprintf("%s: not for a gateway, ignored: %s", file, strings.Join(slices.Sorted(maps.Keys(root)), ", ")))
	}
	for _, s := range servers {
		if len(s.ignored) > 0 {
			notices = append(notices, fmt.Sprintf("%s: %s: not for a gateway, ignored: %s", file, strictyaml.Field(key, s.name), strings.Join(s.ignored, ", ")))
		}
	}
	if len(r.problems) > 0 {
		return nil, nil, errors.New(strings.Join(r.problems, "\n"))
	}
	return servers, notices, nil
}

func badJSON(file string, data []byte, err error) error {
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) {
		return fmt.Errorf("%s: is not a JSON object", file)
	}
	line := 1 + bytes.Count(data[:min(int(syntax.ByteOffset), len(data))], []byte("\n"))
	return fmt.Errorf("%s:%d: is not valid JSON: %w: comments and commas before a closing bracket are not part of it", file, line, syntax.Err)
}

// clientReader collects what is wrong in the file.
type clientReader struct {
	file     string
	problems []string
}

func (r *clientReader) want(path, what string) {
	r.problems = append(r.problems, r.file+": "+path+": want "+what)
}

func (r *clientReader) members(v jsontext.Value, path string) (map[string]jsontext.Value, bool) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(v, &members); err != nil || members == nil {
		r.want(path, "an object")
		return nil, false
	}
	return members, true
}

func (r *clientReader) text(v jsontext.Value, path string) string {
	s, ok := mcp.Text(v)
	if !ok {
		r.want(path, "a string")
	}
	return s
}

func (r *clientReader) list(v jsontext.Value, path string) (list []string) {
	var values []jsontext.Value
	if err := json.Unmarshal(v, &values); err != nil {
		r.want(path, "a list of strings")
	}
	for i, value := range values {
		list = append(list, r.text(value, strictyaml.Index(path, i)))
	}
	return list
}

func (r *clientReader) texts(v jsontext.Value, path string) map[string]string {
	members, _ := r.members(v, path)
	texts := make(map[string]string, len(members))
	for _, name := range slices.Sorted(maps.Keys(members)) {
		texts[name] = r.text(members[name], strictyaml.Field(path, name))
	}
	return texts
}

func (r *clientReader) server(path, name string, v jsontext.Value) client {
	c := client{name: name}
	members, _ := r.members(v, path)
	var kind string
	for _, key := range slices.Sorted(maps.Keys(members)) {
		v, at := members[key], strictyaml.Field(path, key)
		switch key {
		case "command":
			c.command = r.text(v, at)
		case "cwd":
			c.cwd = r.text(v, at)
		case "url", "serverUrl", "httpUrl":
			c.url = r.text(v, at)
		case "type", "transport":
			kind = r.text(v, at)
		case "args":
			c.args = r.list(v, at)
		case "env":
			c.env = r.texts(v, at)
		case "headers":
			c.headers = r.texts(v, at)
		case "disabled":
			if string(v) == "true" {
				c.out = "is disabled there"
			}
		default:
			c.ignored = append(c.ignored, key)
		}
	}
	c.transport(kind)
	return c
}

// transport says why the server cannot be taken over, if it cannot.
func (c *client) transport(kind string) {
	if c.out != "" {
		return
	}
	switch strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(kind)) {
	case "", "stdio", "http", "streamablehttp", "sse", "local", "remote":
	default:
		c.out = fmt.Sprintf("type %q is not known: want stdio, http or sse", comment(kind))
		return
	}
	if c.command == "" && c.url == "" {
		c.out = "has neither command nor url"
	}
}
