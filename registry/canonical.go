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
const format = 1

type document struct {
	Format int    `json:"format"`
	Tools  []Tool `json:"tools"`
}

// NewCatalogue checks tools, sorts them and computes the head. An empty
// revision becomes the beginning of the digest. The catalogue takes the tools
// over; the error has a line for every problem.
func NewCatalogue(revision string, tools []Tool) (*Catalogue, error) {
	if err := normalise(tools); err != nil {
		return nil, err
	}
	encoded, err := encode(tools)
	if err != nil {
		return nil, err
	}
	head := Head{Revision: revision, Digest: digest(encoded)}
	if revision == "" {
		head.Revision = head.Digest[:12]
	}
	return &Catalogue{Head: head, Tools: tools}, nil
}

func normalise(tools []Tool) error {
	var problems []strictyaml.Problem
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
	strictyaml.Sort(problems)
	return strictyaml.Err(problems)
}

func compareTools(a, b Tool) int {
	return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Name, b.Name))
}

// encode returns the canonical encoding of sorted tools: equal tools, equal
// bytes.
func encode(tools []Tool) ([]byte, error) {
	data, err := json.Marshal(document{Format: format, Tools: tools}, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode the catalogue: %w", err)
	}
	return data, nil
}

func digest(encoded []byte) string {
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:])
}

// decode reads what encode wrote and accepts nothing else: the tools pass the
// same checks as those of a source, and they encode to the digest of the head.
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
	c, err := NewCatalogue(head.Revision, doc.Tools)
	if err != nil {
		return nil, fmt.Errorf("decode the catalogue: %w", err)
	}
	if c.Head != head {
		return nil, fmt.Errorf("decode the catalogue: it is not in canonical form")
	}
	return c, nil
}
