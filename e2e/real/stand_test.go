package real_test

import (
	"encoding/json"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/e2e/clients"
	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/policies"
)

// The servers behind the gateway.
const (
	everything     = "everything"      // server-everything over stdio
	everythingHTTP = "everything-http" // the same over Streamable HTTP
	files          = "files"           // server-filesystem
	ledger         = "ledger"          // ours, which speaks both eras
	memory         = "memory"          // server-memory, one process for all
)

// The personas, each with one role. testdata/grants.json says what they may do.
const (
	builder = "builder"
	clerk   = "clerk"
)

func personas() []string { return []string{builder, clerk} }

// stand is a gateway, the servers behind it with their recorders, and all files
// that it is configured with.
type stand struct {
	*gate
	dir       string
	policies  string // directory
	catalogue string // file
	files     string // directory that server-filesystem serves
	graph     string // file that server-memory keeps
	issuer    *issuer
	config    map[string]any
	recorders map[string]recorder
	offered   []offered // in the order of a list
	tokens    map[string]string
	books     *world.Server    // the ledger's
	ledger    *httptest.Server // that serves them
}

// newStand prepares a gateway in front of some of the servers; it is yet to be
// run. The test is skipped where the servers are not installed.
func newStand(t testing.TB, servers ...string) *stand {
	t.Helper()
	clients.Dir(t)
	dir := t.TempDir()
	s := &stand{
		dir: dir, policies: filepath.Join(dir, "policies"), catalogue: filepath.Join(dir, "catalogue.yaml"),
		files: filepath.Join(dir, "files"), graph: filepath.Join(dir, "memory.jsonl"),
		recorders: map[string]recorder{}, tokens: map[string]string{},
	}
	keys := filepath.Join(dir, "keys")
	for _, d := range []string{s.files, s.policies, keys} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s.issuer = newIssuer(t, keys, "first")
	for _, persona := range personas() {
		s.tokens[persona] = s.issuer.token(t, persona, "1h")
	}
	slices.Sort(servers)
	configured := map[string]any{}
	for _, server := range servers {
		configured[server] = s.add(t, server)
	}
	s.writePolicies(t)
	s.writeCatalogue(t)
	s.config = map[string]any{
		"auth": s.issuer.config(), "servers": configured,
		"registry": map[string]any{"path": s.catalogue}, "policy": map[string]any{"dir": s.policies},
		"decision_log": map[string]any{"file": filepath.Join(dir, "decisions.jsonl")},
	}
	return s
}

// run starts the gateway.
func (s *stand) run(t testing.TB, env ...string) {
	t.Helper()
	s.gate = start(t, s.dir, s.config, env...)
}

// add puts a recorder before a server, asks the server what it offers and
// returns how the gateway reaches it.
func (s *stand) add(t testing.TB, server string) map[string]any {
	t.Helper()
	switch server {
	case everything:
		return s.stdio(t, server, clients.Stdio(t, "everything", ""))
	case files:
		return s.stdio(t, server, clients.Stdio(t, "filesystem", s.files))
	case memory:
		config := s.stdio(t, server, clients.Stdio(t, "memory", s.dir))
		config["shared"] = true
		return config
	case everythingHTTP:
		target := clients.Everything(t.Context(), t, clients.StreamableHTTP)
		s.offered = append(s.offered, askHTTP(t, server, target)...)
		front := newRelay(t, target)
		s.recorders[server] = front
		return map[string]any{"url": front.URL + "/mcp"}
	case ledger:
		s.books = &world.Server{Name: ledger}
		for _, name := range []string{"list_charges", "get_charge", "create_refund", "forget_charge", "export_everything"} {
			raw := json.RawMessage(`{"name":"` + name + `","description":"Part of the ledger.","inputSchema":{"type":"object"}}`)
			s.books.Tools = append(s.books.Tools, jsontext.Value(raw))
			s.offered = append(s.offered, offered{ledger, name, raw})
		}
		s.recorders[server] = own{s.books}
		s.ledger = httptest.NewServer(s.books)
		t.Cleanup(func() { s.ledger.Close() })
		return map[string]any{"url": s.ledger.URL + "/mcp"}
	}
	t.Fatalf("there is no server %q", server)
	return nil
}

func (s *stand) stdio(t testing.TB, server string, command clients.Command) map[string]any {
	t.Helper()
	s.offered = append(s.offered, askStdio(t, server, command)...)
	return s.teed(t, server, command)
}

// teed puts a recorder before a server over stdio and returns how the gateway
// runs the two.
func (s *stand) teed(t testing.TB, server string, command clients.Command) map[string]any {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(s.dir, server+".log")
	s.recorders[server] = teed(log)
	env := map[string]string{teeVariable: log}
	for name, value := range command.Env {
		env[name] = value
	}
	return map[string]any{"command": self, "args": slices.Insert(slices.Clone(command.Args), 0, command.Path), "env": env}
}

// writePolicies copies the shipped policies, with the grants of the personas
// here instead of the shipped ones.
func (s *stand) writePolicies(t testing.TB) {
	t.Helper()
	err := fs.WalkDir(policies.FS, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(policies.FS, path)
		if err != nil {
			return err
		}
		to := filepath.Join(s.policies, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	s.grant(t, json.RawMessage(grants(t)))
}

// grants are those that the personas begin with.
func grants(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "grants.json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// grant saves other grants, beside whatever else the policies' data says.
func (s *stand) grant(t testing.TB, grants json.RawMessage) {
	t.Helper()
	path := filepath.Join(s.policies, "data.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var data map[string]map[string]json.RawMessage
	if err := json.Unmarshal(text, &data); err != nil {
		t.Fatalf("reading data.json: %v", err)
	}
	data["mcp"]["grants"] = grants
	if text, err = json.MarshalIndent(data, "", "  "); err != nil {
		t.Fatal(err)
	}
	save(t, path, string(text))
}

// writeCatalogue puts two digests into the catalogue: one of the tool as it is,
// and one of another tool, so that the first seems to have changed.
func (s *stand) writeCatalogue(t testing.TB) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "catalogue.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	pinned, drifted := strings.Repeat("0", 64), strings.Repeat("0", 64)
	for _, o := range s.offered {
		switch o.exposed() {
		case everythingHTTP + "__get-structured-content":
			pinned = digest(t, o.raw)
		case everythingHTTP + "__get-sum":
			drifted = digest(t, o.raw)
		}
	}
	save(t, s.catalogue, strings.NewReplacer("PINNED", pinned, "DRIFTED", drifted).Replace(string(text)))
}

// save writes a file the way that most editors do: beside it, then over it.
func save(t testing.TB, path, text string) {
	t.Helper()
	beside := filepath.Join(filepath.Dir(path), ".new-"+filepath.Base(path))
	if err := os.WriteFile(beside, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(beside, path); err != nil {
		t.Fatal(err)
	}
}

// expected returns the exposed names that OPA allows a persona, in the order of
// a list, and all others.
func (s *stand) expected(t testing.TB, persona string) (visible, hidden []string) {
	t.Helper()
	entries := readCatalogue(t, s.catalogue)
	var inputs []toolInput
	for _, o := range s.offered {
		inputs = append(inputs, describe(t, o, entries))
	}
	visible = opaEval(t, s.policies, claimsOf(t, s.tokens[persona]), inputs)
	for _, o := range s.offered {
		if !slices.Contains(visible, o.exposed()) {
			hidden = append(hidden, o.exposed())
		}
	}
	return visible, hidden
}

// arrivals returns the tools that were called so far, by server, oldest first.
// No message may have arrived that the gateway has no business to send.
func (s *stand) arrivals(t testing.TB) map[string][]string {
	t.Helper()
	expected := []string{
		"initialize", "notifications/initialized", "server/discover", "tools/list", "prompts/list", "resources/list",
		"resources/templates/list", "ping", "notifications/cancelled", "subscriptions/listen",
	}
	calls := map[string][]string{}
	for server, r := range s.recorders {
		for _, m := range r.messages(t) {
			if m.Method == "tools/call" {
				calls[server] = append(calls[server], m.Params.Name)
			} else if !slices.Contains(expected, m.Method) && !m.refusal {
				t.Errorf("server %s was sent %s", server, m.raw)
			}
		}
	}
	return calls
}
