//lint:file-ignore SA1019 what the modern era gives up is still what legacy servers ask for

package real_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.yaml.in/yaml/v3"

	"github.com/regogate/regogate/e2e/clients"
)

// The servers behind the gateway that shares out more than tools, in the order
// of a list. The first of them that has a URI is the one that it is read from.
const (
	notes   = "a-notes"   // of the Go SDK, modern, over HTTP
	papers  = "b-papers"  // of the second TypeScript SDK, of both eras, over stdio
	piped   = "c-piped"   // server-everything over stdio
	rested  = "d-rested"  // the same over Streamable HTTP
	sent    = "e-sent"    // the same over HTTP+SSE
	asker   = "g-asker"   // of the Go SDK, legacy, over HTTP: it asks its clients
	strange = "f-strange" // server-sequential-thinking, which the registry does not know
)

// The personas; testdata/shares/data.json says what is theirs.
const (
	owner = "owner"
	guest = "guest"
	mute  = "mute" // whom no server may ask anything
)

// thing is one thing as its server offers it: input.tool, input.prompt or
// input.resource, but for what the policy here does not ask about.
type thing struct {
	kind        string
	Server      string `json:"server"`
	Name        string `json:"name,omitempty"`
	ExposedName string `json:"exposed_name,omitempty"`
	URI         string `json:"uri,omitempty"`
	URITemplate string `json:"uri_template,omitempty"`
	Owner       string `json:"owner,omitempty"`
	Registered  bool   `json:"registered"`
}

// The kinds of things that there are lists of.
const (
	tool     = "tool"
	prompt   = "prompt"
	resource = "resource"
	template = "template"
)

// shown is the thing's name on the aggregate route.
func (o thing) shown() string {
	switch o.kind {
	case resource:
		return o.URI
	case template:
		return o.URITemplate
	}
	return o.ExposedName
}

// method is the one that uses the thing.
func (o thing) method() string {
	switch o.kind {
	case tool:
		return "tools/call"
	case prompt:
		return "prompts/get"
	}
	return "resources/read"
}

// shares is a gateway in front of servers of both eras with tools, prompts and
// resources.
type shares struct {
	*gate
	recorders map[string]recorder
	notes     *clients.GoServer
	things    []thing
	tokens    map[string]string
	policies  string
}

func newShares(t *testing.T) *shares {
	t.Helper()
	clients.Dir(t)
	dir := t.TempDir()
	stand := &stand{dir: dir, recorders: map[string]recorder{}, tokens: map[string]string{}}
	s := &shares{recorders: stand.recorders, tokens: stand.tokens, policies: filepath.Join("testdata", "shares")}
	stand.issuer = newIssuer(t, dir, "first")
	for _, persona := range []string{owner, guest, mute} {
		s.tokens[persona] = stand.issuer.token(t, persona, "1h")
	}
	s.notes = clients.NewGoServer(t, "go")
	config := map[string]any{}
	for server, url := range map[string]string{
		notes:  s.notes.URL,
		rested: clients.Everything(t.Context(), t, clients.StreamableHTTP),
		sent:   clients.Everything(t.Context(), t, clients.SSE),
		asker:  clients.NewAsker(t),
	} {
		s.ask(t, server, transportTo(url))
		front := newRelay(t, url)
		s.recorders[server] = front
		config[server] = map[string]any{"url": front.URL + url[strings.LastIndex(url, "/"):]}
	}
	for server, command := range map[string]clients.Command{
		papers:  clients.Stdio(t, "typescript", "ts"),
		piped:   clients.Stdio(t, "everything", ""),
		strange: clients.Stdio(t, "sequential-thinking", ""),
	} {
		s.ask(t, server, &mcp.CommandTransport{Command: process(t.Context(), command)})
		config[server] = stand.teed(t, server, command)
	}
	slices.SortStableFunc(s.things, func(a, b thing) int { return strings.Compare(a.Server, b.Server) })
	catalogue := filepath.Join(dir, "catalogue.yaml")
	s.register(t, catalogue)
	policies, err := filepath.Abs(s.policies)
	if err != nil {
		t.Fatal(err)
	}
	s.gate = start(t, dir, map[string]any{
		"auth": stand.issuer.config(), "servers": config,
		"registry": map[string]any{"path": catalogue}, "policy": map[string]any{"dir": policies},
		"decision_log": map[string]any{"file": filepath.Join(dir, "decisions.jsonl")},
	})
	return s
}

func process(ctx context.Context, command clients.Command) *exec.Cmd {
	cmd := exec.CommandContext(ctx, command.Path, command.Args...)
	cmd.Env = os.Environ()
	for name, value := range command.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

func transportTo(url string) mcp.Transport {
	if strings.HasSuffix(url, "/sse") {
		return &mcp.SSEClientTransport{Endpoint: url}
	}
	return &mcp.StreamableClientTransport{Endpoint: url}
}

// ownerOf says whose a server is; "" is nobody's.
func ownerOf(server string) string {
	return map[string]string{notes: "notes", papers: "notes", piped: "platform", rested: "platform", sent: "platform", asker: "asker"}[server]
}

// ask asks a server itself what it offers, of everything that servers have.
func (s *shares) ask(t *testing.T, server string, transport mcp.Transport) {
	t.Helper()
	// As the gateway discovers: some tools are there for such clients only.
	able := &mcp.ClientCapabilities{
		RootsV2: &mcp.RootCapabilities{}, Sampling: &mcp.SamplingCapabilities{},
		Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{}},
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "real", Version: "1"}, &mcp.ClientOptions{Capabilities: able})
	session, err := client.Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatalf("asking server %s what it offers: %v", server, err)
	}
	defer session.Close()
	add := func(o thing) {
		o.Server, o.Owner = server, ownerOf(server)
		o.Registered = o.Owner != ""
		if o.Name != "" {
			o.ExposedName = server + "__" + o.Name
		}
		s.things = append(s.things, o)
	}
	has := session.InitializeResult().Capabilities
	for found, err := range session.Tools(t.Context(), nil) {
		fatal(t, err)
		add(thing{kind: tool, Name: found.Name})
	}
	if has.Prompts != nil {
		for found, err := range session.Prompts(t.Context(), nil) {
			fatal(t, err)
			add(thing{kind: prompt, Name: found.Name})
		}
	}
	if has.Resources == nil {
		return
	}
	for found, err := range session.Resources(t.Context(), nil) {
		fatal(t, err)
		add(thing{kind: resource, URI: found.URI})
	}
	for found, err := range session.ResourceTemplates(t.Context(), nil) {
		fatal(t, err)
		add(thing{kind: template, URITemplate: found.URITemplate})
	}
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// register writes the catalogue: every tool of every server that is somebody's.
func (s *shares) register(t *testing.T, path string) {
	t.Helper()
	servers := map[string]any{}
	for _, server := range []string{notes, papers, piped, rested, sent, asker} {
		tools := map[string]any{}
		for _, o := range s.things {
			if o.kind == tool && o.Server == server {
				tools[o.Name] = map[string]any{"effect": "read"}
			}
		}
		servers[server] = map[string]any{
			"owner": ownerOf(server), "attributes": []string{"developer"}, "data": "public", "reach": "closed", "env": "test", "tools": tools,
		}
	}
	text, err := yaml.Marshal(map[string]any{"version": 1, "servers": servers})
	fatal(t, err)
	fatal(t, os.WriteFile(path, text, 0o600))
}

// expected returns the names of a kind that OPA lets the persona see on the
// route, in the order of a list. A URI that several servers have is there once.
func (s *shares) expected(t testing.TB, persona, kind string) []string {
	t.Helper()
	var names []string
	for _, o := range s.allowed(t, persona) {
		if o.kind == kind && !slices.Contains(names, o.shown()) {
			names = append(names, o.shown())
		}
	}
	return names
}

// allowed asks OPA about each thing.
func (s *shares) allowed(t testing.TB, persona string) []thing {
	t.Helper()
	var questions []map[string]any
	for _, o := range s.things {
		kind := o.kind
		if kind == template {
			kind = resource
		}
		questions = append(questions, map[string]any{
			"method": o.method(), "claims": claimsOf(t, s.tokens[persona]), kind: o, "request": map[string]any{"route": "/mcp"},
		})
	}
	var visible []thing
	for _, i := range opaAllows(t, s.policies, questions) {
		visible = append(visible, s.things[i])
	}
	return visible
}

// opaAllows has OPA's command line evaluate the policies in dir, and returns
// the places of the questions that are answered with yes.
func opaAllows(t testing.TB, dir string, questions []map[string]any) []int {
	t.Helper()
	const query = `[i | some i, question in input; data.mcp.authz.allow == true with input as question]`
	input, err := json.Marshal(questions)
	fatal(t, err)
	path := filepath.Join(t.TempDir(), "input.json")
	fatal(t, os.WriteFile(path, input, 0o600))
	out := regogate(t, "opa", "eval", "--strict-builtin-errors", "--format", "json", "--data", dir, "--input", path, query)
	var answer struct {
		Result []struct {
			Expressions []struct{ Value []int }
		}
	}
	if err := json.Unmarshal(out, &answer); err != nil || len(answer.Result) != 1 {
		t.Fatalf("opa eval: %v: %s", err, out)
	}
	return answer.Result[0].Expressions[0].Value
}

// uses are the messages by which things are used.
var uses = []string{"tools/call", "prompts/get", "resources/read", "resources/subscribe", "completion/complete", "notifications/cancelled"}

// used returns what arrived at each server that uses something, oldest first,
// as a method and what it names. Cancellations name nothing.
func (s *shares) used(t testing.TB) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for server, r := range s.recorders {
		for _, m := range r.messages(t) {
			if !slices.Contains(uses, m.Method) {
				continue
			}
			var named struct {
				Params struct {
					Name, URI string
					Ref       struct{ Name, URI string }
				}
			}
			fatal(t, json.Unmarshal([]byte(m.raw), &named))
			p := named.Params
			all[server] = append(all[server], strings.TrimSpace(m.Method+" "+p.Name+p.URI+p.Ref.Name+p.Ref.URI))
		}
	}
	return all
}

// usedSince is what arrived after before was taken.
func (s *shares) usedSince(t testing.TB, before map[string][]string) map[string][]string {
	t.Helper()
	now := s.used(t)
	for server := range now {
		if now[server] = now[server][len(before[server]):]; len(now[server]) == 0 {
			delete(now, server)
		}
	}
	return now
}
