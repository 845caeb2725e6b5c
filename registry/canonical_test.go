package registry

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

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
	c, err := NewCatalogue("", servers, tools)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The encoding is what replicas share, so a change of it needs a new format.
func TestCanonicalEncoding(t *testing.T) {
	c := both(t, []Server{
		{Name: "b"},
		{Name: "a", Description: "<é>", Attributes: []string{"web", "ai"}, Data: "public", Reach: "closed", Env: "staging",
			Owner: "o", Labels: map[string]string{"z": "1", "a": "2"}},
	},
		Tool{Server: "b", Name: "new", Suggested: true},
		Tool{Server: "a", Name: "t", Description: "<é>", Attributes: []string{"web", "ai"}, Effect: "read", Data: "public",
			Reach: "closed", Env: "staging", Owner: "o", Labels: map[string]string{"z": "1", "a": "2"}, SHA256: strings.Repeat("0", 64)},
	)
	encoded, err := encode(c)
	want := `{"format":2,"servers":[{"name":"a","description":"<é>","attributes":["ai","web"],"data":"public",` +
		`"reach":"closed","env":"staging","owner":"o","labels":{"a":"2","z":"1"}},{"name":"b"}],` +
		`"tools":[{"server":"a","name":"t","description":"<é>","attributes":["ai","web"],"effect":"read",` +
		`"data":"public","reach":"closed","env":"staging","owner":"o","labels":{"a":"2","z":"1"},"sha256":"` +
		strings.Repeat("0", 64) + `"},{"server":"b","name":"new","suggested":true}]}`
	if err != nil || string(encoded) != want {
		t.Errorf("error %v, encoding\n%s\nwant\n%s", err, encoded, want)
	}
	if c.Head.Digest != digest([]byte(want)) {
		t.Errorf("digest %s", c.Head.Digest)
	}
	if c.Head.Revision != c.Head.Digest[:12] {
		t.Errorf("revision %s of digest %s", c.Head.Revision, c.Head.Digest)
	}
}

func TestDecodeRefuses(t *testing.T) {
	good := both(t, []Server{validServer("p"), validServer("q")}, validTool("a", "t"), validTool("b", "t"))
	encoded, err := encode(good)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := decode(encoded, good.Head); err != nil || !reflect.DeepEqual(c, good) {
		t.Fatalf("the good one: %+v, %v", c, err)
	}
	for _, other := range []*Catalogue{both(t, good.Servers, validTool("a", "t")), mustCatalogue(t, good.Tools...)} {
		if _, err := decode(encoded, other.Head); err == nil {
			t.Error("accepted under another digest")
		}
	}
	text := string(encoded)
	for name, bad := range map[string]string{
		"empty":          "",
		"truncated":      text[:len(text)-1],
		"trailing":       text + " ",
		"spaces":         strings.Replace(text, ":", ": ", 1),
		"another format": strings.Replace(text, `"format":2`, `"format":1`, 1),
		"unknown member": strings.Replace(text, `"format":2`, `"format":2,"x":1`, 1),
		"duplicate":      strings.Replace(text, `"effect":"read"`, `"effect":"read","effect":"read"`, 1),
		"case":           strings.Replace(text, `"effect"`, `"Effect"`, 1),
		"vocabulary":     strings.Replace(text, `"effect":"read"`, `"effect":"any"`, 1),
		"missing":        strings.Replace(text, `,"effect":"read"`, ``, 1),
		"name":           strings.Replace(text, `"server":"a"`, `"server":"a__b"`, 1),
		"not sorted":     strings.Replace(text, `"server":"a"`, `"server":"c"`, 1),
		"pair twice":     strings.Replace(text, `"server":"a"`, `"server":"b"`, 1),
		"null":           "null",

		"server with tools":      strings.Replace(text, `"name":"p"`, `"name":"p","tools":{}`, 1),
		"server with an effect":  strings.Replace(text, `"name":"p"`, `"name":"p","effect":"read"`, 1),
		"server's vocabulary":    strings.Replace(text, `"data":"public"`, `"data":"any"`, 1),
		"server's name":          strings.Replace(text, `"name":"p"`, `"name":"p__x"`, 1),
		"server without a name":  strings.Replace(text, `"name":"p",`, ``, 1),
		"server's empty list":    strings.Replace(text, `"name":"p"`, `"name":"p","labels":{}`, 1),
		"servers not sorted":     strings.Replace(text, `"name":"p"`, `"name":"r"`, 1),
		"server twice":           strings.Replace(text, `"name":"p"`, `"name":"q"`, 1),
		"servers null":           regexp.MustCompile(`"servers":\[.*?}],`).ReplaceAllString(text, `"servers":null,`),
		"no servers":             regexp.MustCompile(`"servers":\[.*?}],`).ReplaceAllString(text, ``),
		"servers after tools":    regexp.MustCompile(`("servers":\[.*?}]),("tools":\[.*}])`).ReplaceAllString(text, `$2,$1`),
		"the format before them": regexp.MustCompile(`"format":2,"servers":\[.*?}],`).ReplaceAllString(text, `"format":1,`),
	} {
		if bad == text {
			t.Fatalf("%s: nothing was changed", name)
		}
		// Under its own digest, so that only the content can be the reason.
		sum := digest([]byte(bad))
		if _, err := decode([]byte(bad), Head{Revision: sum[:12], Digest: sum}); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if _, err := decode([]byte(bad), good.Head); err == nil {
			t.Errorf("%s: accepted under the digest of the good one", name)
		}
	}
}

func TestNewCatalogueReportsEverything(t *testing.T) {
	_, err := NewCatalogue("", []Server{validServer("b"), {Name: "b", Data: "publik"}, {Name: "b__c"}}, []Tool{validTool("a__b", "t"), validTool("s", "x y"), validTool("s", "t"), validTool("s", "t"), {Server: "z", Name: "t"}})
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
"z"/"t".reach: is missing; want one of: closed, external`
	if err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
}

// Equal catalogues have equal digests in whatever order they come, different
// ones do not, and every one survives the encoding.
func TestCanonicalProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		servers, tools := drawServers(t), drawTools(t)
		first, err := NewCatalogue("r", slices.Clone(servers), slices.Clone(tools))
		if err != nil {
			t.Fatal(err)
		}
		encoded, err := encode(first)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decode(encoded, first.Head)
		if err != nil || len(back.Tools) != len(first.Tools) || len(back.Servers) != len(first.Servers) {
			t.Fatalf("%v", err)
		}
		slices.Reverse(tools)
		slices.Reverse(servers)
		second, err := NewCatalogue("r", slices.Clone(servers), slices.Clone(tools))
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
		third, err := NewCatalogue("r", servers, tools)
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

func FuzzDecode(f *testing.F) {
	encoded, err := encode(both(f, []Server{validServer("a"), {Name: "b"}}, validTool("a", "t")))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(encoded)
	f.Add([]byte(`{"format":2,"servers":[],"tools":null}`))
	f.Add([]byte(`{"format":2,"servers":null,"tools":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		sum := digest(data)
		c, err := decode(data, Head{Revision: "r", Digest: sum})
		if err != nil {
			return
		}
		again, err := encode(c)
		if err != nil || string(again) != string(data) {
			t.Errorf("accepted %q, which is %q in canonical form", data, again)
		}
	})
}
