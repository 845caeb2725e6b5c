package registry

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func validServer(name string) Server {
	return Server{Name: name, Attributes: []string{"web"}, Data: "public", Reach: "closed"}
}

func validTool(server, name string) Tool {
	return Tool{Server: server, Name: name, Attributes: []string{"web"}, Effect: "read", Data: "public", Reach: "closed"}
}

// mustCatalogue is a catalogue of the tools and of an entry for each of their
// servers.
func mustCatalogue(t testing.TB, tools ...Tool) *Catalogue {
	t.Helper()
	names := map[string]bool{}
	for _, tool := range tools {
		names[tool.Server] = true
	}
	var servers []Server
	for name := range names {
		servers = append(servers, validServer(name))
	}
	return both(t, servers, tools...)
}

// both is a catalogue of servers and tools.
func both(t testing.TB, servers []Server, tools ...Tool) *Catalogue {
	t.Helper()
	c, err := NewCatalogue("", Catalogue{Servers: servers, Tools: tools})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// encoded is a catalogue as a cache holds it: the index and the parts in its order.
func encoded(t testing.TB, c *Catalogue) (index string, parts []string) {
	t.Helper()
	data, err := c.index()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range c.split() {
		part, err := encodePart(p)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, string(part))
	}
	return string(data), parts
}

// decoded is the way back, by the functions that the cache uses.
func decoded(head Head, index string, parts []string) (*Catalogue, error) {
	i, err := decodeIndex([]byte(index), head)
	if err != nil {
		return nil, err
	}
	if len(i.Parts) != len(parts) {
		return nil, fmt.Errorf("%d parts of %d", len(parts), len(i.Parts))
	}
	var list []*part
	for n, ref := range i.Parts {
		p, err := decodePart([]byte(parts[n]), ref)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return assemble(head, i, list)
}

// sealed returns the head of an index as it stands.
func sealed(index string) Head {
	sum := digest([]byte(index))
	return Head{Revision: sum[:12], Digest: sum}
}

// The encoding is what replicas share, so a change of it needs a new format.
func TestCanonicalEncoding(t *testing.T) {
	c, err := NewCatalogue("", Catalogue{
		Servers: []Server{
			{Name: "b"},
			{Name: "a", Description: "<é>", Attributes: []string{"web", "ai"}, Data: "public", Reach: "closed", Env: "staging",
				Owner: "o", Labels: map[string]string{"z": "1", "a": "2"}},
		},
		Tools: []Tool{
			{Server: "c", Name: "new", Suggested: true},
			{Server: "a", Name: "t", Description: "<é>", Attributes: []string{"web", "ai"}, Effect: "read", Data: "public",
				Reach: "closed", Env: "staging", Owner: "o", Labels: map[string]string{"z": "1", "a": "2"}, SHA256: strings.Repeat("0", 64)},
		},
		Quarantine: []Quarantined{
			{Server: "z", Tool: "t", Reason: "<é>", By: "someone", Since: time.Date(2026, 1, 2, 4, 4, 5, 6, time.FixedZone("", 3600))},
			{Server: "b", Reason: "r"},
		},
		Signature: "a.b-_.c",
	})
	if err != nil {
		t.Fatal(err)
	}
	parts := []string{
		`{"format":3,"name":"a","server":{"name":"a","description":"<é>","attributes":["ai","web"],"data":"public",` +
			`"reach":"closed","env":"staging","owner":"o","labels":{"a":"2","z":"1"}},` +
			`"tools":[{"server":"a","name":"t","description":"<é>","attributes":["ai","web"],"effect":"read",` +
			`"data":"public","reach":"closed","env":"staging","owner":"o","labels":{"a":"2","z":"1"},"sha256":"` + strings.Repeat("0", 64) + `"}]}`,
		`{"format":3,"name":"b","server":{"name":"b"},"tools":[]}`,
		`{"format":3,"name":"c","tools":[{"server":"c","name":"new","suggested":true}]}`,
	}
	references := make([]string, len(parts))
	for n, p := range parts {
		references[n] = fmt.Sprintf(`{"name":"%c","digest":"%s","size":%d}`, 'a'+n, digest([]byte(p)), len(p))
	}
	content := `{"format":3,"parts":[` + strings.Join(references, ",") + `]`
	want := content + `,"quarantine":[{"server":"b","reason":"r"},{"server":"z","tool":"t","reason":"<é>",` +
		`"by":"someone","since":"2026-01-02T03:04:05Z"}],"signature":"a.b-_.c"}`
	index, got := encoded(t, c)
	if index != want {
		t.Errorf("index\n%s\nwant\n%s", index, want)
	}
	if !slices.Equal(got, parts) {
		t.Errorf("parts\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(parts, "\n"))
	}
	if c.Head != sealed(want) {
		t.Errorf("head %v", c.Head)
	}
	if c.Content != digest([]byte(content+"}")) {
		t.Errorf("content %s", c.Content)
	}
}

func TestDecodeRefuses(t *testing.T) {
	good, err := NewCatalogue("", Catalogue{
		Servers:    []Server{validServer("p"), validServer("q")},
		Tools:      []Tool{validTool("a", "t"), validTool("b", "t")},
		Quarantine: []Quarantined{{Server: "a", Reason: "r"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	index, parts := encoded(t, good) // of a, b, p and q
	if c, err := decoded(good.Head, index, parts); err != nil || !reflect.DeepEqual(c, good) {
		t.Fatalf("the good one: %+v, %v", c, err)
	}
	for _, other := range []*Catalogue{both(t, good.Servers, validTool("a", "t")), mustCatalogue(t, good.Tools...)} {
		if _, err := decoded(other.Head, index, parts); err == nil {
			t.Error("accepted under another digest")
		}
	}
	const whole, a, p = -1, 0, 2
	for _, c := range []struct {
		name     string
		in       int
		old, new string // old "" is all of it
	}{
		{"empty", a, "", ""},
		{"null", a, "", "null"},
		{"truncated", a, "]}", "]"},
		{"trailing", a, "]}", "]} "},
		{"spaces", a, `"tools":`, `"tools": `},
		{"another format", a, `"format":3`, `"format":2`},
		{"unknown member", a, `"format":3`, `"format":3,"x":1`},
		{"duplicate", a, `"effect":"read"`, `"effect":"read","effect":"read"`},
		{"case", a, `"effect"`, `"Effect"`},
		{"vocabulary", a, `"effect":"read"`, `"effect":"any"`},
		{"missing", a, `,"effect":"read"`, ``},
		{"tool's server", a, `"server":"a"`, `"server":"a__b"`},
		{"another server's tool", a, `"server":"a"`, `"server":"b"`},
		{"not sorted", a, `"server":"a"`, `"server":"c"`},
		{"another name", a, `"format":3,"name":"a"`, `"format":3,"name":"b"`},
		{"tools null", p, `"tools":[]`, `"tools":null`},
		{"no tools", p, `,"tools":[]`, ``},
		{"server with tools", p, `{"name":"p"`, `{"name":"p","tools":{}`},
		{"server with an effect", p, `{"name":"p"`, `{"name":"p","effect":"read"`},
		{"server's vocabulary", p, `"data":"public"`, `"data":"any"`},
		{"server's name", p, `{"name":"p"`, `{"name":"p__x"`},
		{"server without a name", p, `{"name":"p",`, `{`},
		{"another server", p, `{"name":"p"`, `{"name":"q"`},
		{"server's empty labels", p, `{"name":"p"`, `{"name":"p","labels":{}`},
		{"server null", p, `"tools"`, `"server":null,"tools"`},

		{"empty index", whole, "", ""},
		{"index null", whole, "", "null"},
		{"index truncated", whole, `"}]}`, `"}]`},
		{"index trailing", whole, `"}]}`, `"}]} `},
		{"index with spaces", whole, `"parts":`, `"parts": `},
		{"index of another format", whole, `"format":3`, `"format":2`},
		{"index without a format", whole, `"format":3,`, ``},
		{"index with an unknown member", whole, `"format":3`, `"format":3,"x":1`},
		{"reference of another name", whole, `"name":"a"`, `"name":"c"`},
		{"reference of another size", whole, `"size":`, `"size":1`},
		{"empty signature", whole, `"}]}`, `"}],"signature":""}`},
		{"signature", whole, `"}]}`, `"}],"signature":"a b"}`},
		{"empty quarantine", whole, `"quarantine":[{"server":"a","reason":"r"}]`, `"quarantine":[]`},
		{"quarantine without a reason", whole, `,"reason":"r"`, ``},
		{"quarantine twice", whole, `{"server":"a","reason":"r"}`, `{"server":"a","reason":"r"},{"server":"a","reason":"r"}`},
		{"quarantine in part of a second", whole, `"reason":"r"`, `"reason":"r","since":"2026-01-02T03:04:05.5Z"`},
	} {
		index, parts := index, slices.Clone(parts)
		place := &index
		if c.in != whole {
			place = &parts[c.in]
		}
		before := *place
		if *place = c.new; c.old != "" {
			*place = strings.Replace(before, c.old, c.new, 1)
		}
		if *place == before {
			t.Fatalf("%s: nothing was changed in %s", c.name, before)
		}
		if _, err := decoded(good.Head, index, parts); err == nil {
			t.Errorf("%s: accepted under the digest of the good one", c.name)
		}
		// Under its own digests, so that only the content can be the reason.
		if c.in != whole {
			ref := good.parts[c.in]
			index = strings.Replace(index, fmt.Sprintf(`"%s","size":%d`, ref.Digest, ref.Size),
				fmt.Sprintf(`"%s","size":%d`, digest([]byte(*place)), len(*place)), 1)
		}
		if _, err := decoded(sealed(index), index, parts); err == nil {
			t.Errorf("%s: accepted", c.name)
		}
	}
}

func TestNewCatalogueReportsEverything(t *testing.T) {
	_, err := NewCatalogue("", Catalogue{
		Servers: []Server{validServer("b"), {Name: "b", Data: "publik"}, {Name: "b__c"}},
		Tools:   []Tool{validTool("a__b", "t"), validTool("s", "x y"), validTool("s", "t"), validTool("s", "t"), {Server: "z", Name: "t"}},
		Quarantine: []Quarantined{
			{Server: "s", Reason: "r"}, {Server: "s", Reason: "another"}, {Server: "s", Tool: "t"},
		},
		Signature: "a b",
	})
	if err == nil {
		t.Fatal("no error")
	}
	want := `"a__b"/"t": ` + ServerRule + `
"b": occurs twice
"b".data: unknown value "publik"; did you mean public?
"b__c": ` + ServerRule + `
"s"/"t": occurs twice
"s"/"x y": ` + ToolRule + `
"z"/"t".attributes: is missing; want one or more of: ` + strings.Join(Attributes(), ", ") + `
"z"/"t".data: is missing; want one of: public, internal, personal, financial, secret
"z"/"t".effect: is missing; want one of: read, write, destructive, admin, execute
"z"/"t".reach: is missing; want one of: closed, external
quarantine of "s"/"": occurs twice
quarantine of "s"/"t".reason: is missing; say why, in a line
signature: want a JWS in compact form`
	if err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
}

// Equal catalogues have equal digests in whatever order they come, different
// ones do not, and every one survives the encoding.
func TestCanonicalProperty(outer *testing.T) {
	rapid.Check(outer, func(t *rapid.T) {
		servers, tools := drawServers(t), drawTools(t)
		first, err := NewCatalogue("r", Catalogue{Servers: slices.Clone(servers), Tools: slices.Clone(tools)})
		if err != nil {
			t.Fatal(err)
		}
		index, parts := encoded(outer, first)
		back, err := decoded(first.Head, index, parts)
		if err != nil || len(back.Tools) != len(first.Tools) || len(back.Servers) != len(first.Servers) {
			t.Fatalf("%v", err)
		}
		slices.Reverse(tools)
		slices.Reverse(servers)
		second, err := NewCatalogue("r", Catalogue{Servers: slices.Clone(servers), Tools: slices.Clone(tools)})
		if err != nil || second.Head != first.Head {
			t.Fatalf("reversed: %v, %v, %v", second, first, err)
		}
		labels := append(labelsOf(servers, func(s *Server) *map[string]string { return &s.Labels }),
			labelsOf(tools, func(t *Tool) *map[string]string { return &t.Labels })...)
		if len(labels) == 0 {
			return
		}
		at := rapid.SampledFrom(labels).Draw(t, "at")
		if *at = maps.Clone(*at); *at == nil {
			*at = map[string]string{}
		}
		(*at)["k"] += "x"
		third, err := NewCatalogue("r", Catalogue{Servers: servers, Tools: tools})
		if err != nil || third.Head.Digest == first.Head.Digest {
			t.Fatalf("changed: %v, %v", third, err)
		}
	})
}

// labelsOf returns where the labels of each are.
func labelsOf[T any](of []T, labels func(*T) *map[string]string) (all []*map[string]string) {
	for i := range of {
		all = append(all, labels(&of[i]))
	}
	return all
}

func drawServers(t *rapid.T) []Server {
	names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-c]{1,3}`), 0, 4, rapid.ID).Draw(t, "servers")
	servers := make([]Server, len(names))
	for i, name := range names {
		servers[i] = Server{
			Name:        name,
			Description: rapid.StringMatching(`[a-z"<&é ]{0,8}`).Draw(t, "description"),
			Attributes:  rapid.SliceOfNDistinct(rapid.SampledFrom(Attributes()), 0, 4, rapid.ID).Draw(t, "attributes"),
			Data:        rapid.SampledFrom(append(DataClasses(), "")).Draw(t, "data"),
			Reach:       rapid.SampledFrom(append(Reaches(), "")).Draw(t, "reach"),
			Labels:      rapid.MapOfN(rapid.StringMatching(`[a-k]`), rapid.StringMatching(`[a-z]{0,2}`), 0, 3).Draw(t, "labels"),
		}
	}
	return servers
}

func drawTools(t *rapid.T) []Tool {
	names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-c_]{1,3}`), 0, 8, rapid.ID).Draw(t, "names")
	tools := make([]Tool, len(names))
	for i, name := range names {
		tools[i] = Tool{
			Server:      rapid.SampledFrom([]string{"a", "b", "a_b"}).Draw(t, "server"),
			Name:        name,
			Description: rapid.StringMatching(`[a-z"<&é ]{0,8}`).Draw(t, "description"),
			Attributes:  rapid.SliceOfNDistinct(rapid.SampledFrom(Attributes()), 1, 4, rapid.ID).Draw(t, "attributes"),
			Effect:      rapid.SampledFrom(Effects()).Draw(t, "effect"),
			Data:        rapid.SampledFrom(DataClasses()).Draw(t, "data"),
			Reach:       rapid.SampledFrom(Reaches()).Draw(t, "reach"),
			Labels:      rapid.MapOfN(rapid.StringMatching(`[a-k]`), rapid.StringMatching(`[a-z]{0,2}`), 0, 3).Draw(t, "labels"),
			Suggested:   rapid.Bool().Draw(t, "suggested"),
		}
	}
	return tools
}

// indexOf is an index of the references.
func indexOf(t testing.TB, refs ...reference) string {
	t.Helper()
	data, err := encodeIndex(index{Parts: refs})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// What is accepted as an index, or as a part, is what would be written.
func FuzzDecode(f *testing.F) {
	good := both(f, []Server{validServer("a"), {Name: "b"}}, validTool("a", "t"))
	index, parts := encoded(f, good)
	f.Add(index, true)
	f.Add(parts[0], false)
	f.Add(`{"format":3,"parts":null}`, true)
	f.Add(`{"format":3,"name":"a","tools":null}`, false)
	f.Fuzz(func(t *testing.T, data string, isIndex bool) {
		index, parts := data, parts
		if !isIndex {
			ref := reference{Name: "a", Digest: digest([]byte(data)), Size: len(data)}
			index, parts = indexOf(t, ref), []string{data}
		}
		c, err := decoded(sealed(index), index, parts)
		if err != nil {
			return
		}
		if i, p := encoded(t, c); i != index || !slices.Equal(p, parts) {
			t.Errorf("accepted %q %q, which is %q %q in canonical form", index, parts, i, p)
		}
	})
}
