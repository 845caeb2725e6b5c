package registry

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/regogate/regogate/registry/strictyaml"
)

// format is the version of the canonical encoding. Replicas with different
// formats differ in digests, hence never share an entry of a cache.
const format = 2

type document struct {
	Format  int      `json:"format"`
	Servers []Server `json:"servers"`
	Tools   []Tool   `json:"tools"`
}

// NewCatalogue checks servers and tools, sorts them and computes the head. An
// empty revision becomes the beginning of the digest. The catalogue takes both
// slices over; the error has a line for every problem.
func NewCatalogue(revision string, servers []Server, tools []Tool) (*Catalogue, error) {
	problems := append(normaliseServers(servers), normaliseTools(tools)...)
	strictyaml.Sort(problems)
	if err := strictyaml.Err(problems); err != nil {
		return nil, err
	}
	c := &Catalogue{Servers: servers, Tools: tools}
	encoded, err := encode(c)
	if err != nil {
		return nil, err
	}
	c.Head = Head{Revision: revision, Digest: digest(encoded)}
	if revision == "" {
		c.Head.Revision = c.Head.Digest[:12]
	}
	return c, nil
}

func normaliseServers(servers []Server) (problems []strictyaml.Problem) {
	slices.SortFunc(servers, func(a, b Server) int { return cmp.Compare(a.Name, b.Name) })
	for i := range servers {
		s := &servers[i]
		slices.Sort(s.Attributes)
		path := fmt.Sprintf("%.64q", s.Name)
		switch {
		case !ValidServer(s.Name):
			problems = append(problems, strictyaml.Problem{Path: path, Message: ServerRule})
		case i > 0 && servers[i-1].Name == s.Name:
			problems = append(problems, strictyaml.Problem{Path: path, Message: "occurs twice"})
		}
		problems = append(problems, s.check(path)...)
	}
	return problems
}

func normaliseTools(tools []Tool) (problems []strictyaml.Problem) {
	slices.SortFunc(tools, compareTools)
	for i := range tools {
		t := &tools[i]
		slices.Sort(t.Attributes)
		path := fmt.Sprintf("%.64q/%.128q", t.Server, t.Name)
		switch {
		case !ValidServer(t.Server):
			problems = append(problems, strictyaml.Problem{Path: path, Message: ServerRule})
		case !ValidTool(t.Name):
			problems = append(problems, strictyaml.Problem{Path: path, Message: ToolRule})
		case i > 0 && compareTools(tools[i-1], *t) == 0:
			problems = append(problems, strictyaml.Problem{Path: path, Message: "occurs twice"})
		}
		problems = append(problems, t.check(path)...)
		problems = append(problems, t.missing(path)...)
	}
	return problems
}

func compareTools(a, b Tool) int {
	return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Name, b.Name))
}

// encode returns the canonical encoding of a catalogue, whose head is no part
// of it: equal servers and tools, equal bytes.
func encode(c *Catalogue) ([]byte, error) {
	data, err := json.Marshal(document{Format: format, Servers: c.Servers, Tools: c.Tools}, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode the catalogue: %w", err)
	}
	return data, nil
}

func digest(encoded []byte) string {
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:])
}

// decode reads what encode wrote and accepts nothing else: servers and tools
// pass the same checks as those of a source, and they encode to the digest of
// the head.
func decode(data []byte, head Head) (*Catalogue, error) {
	if digest(data) != head.Digest {
		return nil, fmt.Errorf("decode the catalogue: its digest is not %.12s", head.Digest)
	}
	var doc document
	if err := json.Unmarshal(data, &doc, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("decode the catalogue: %w", err)
	}
	if doc.Format != format {
		return nil, fmt.Errorf("decode the catalogue: format %d is not %d", doc.Format, format)
	}
	c, err := NewCatalogue(head.Revision, doc.Servers, doc.Tools)
	if err != nil {
		return nil, fmt.Errorf("decode the catalogue: %w", err)
	}
	if c.Head != head {
		return nil, fmt.Errorf("decode the catalogue: it is not in canonical form")
	}
	return c, nil
}
