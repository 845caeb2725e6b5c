package registry

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/regogate/regogate/registry/strictyaml"
)

// format is the version of the canonical encoding. Replicas with different
// formats differ in digests, hence never share an entry of a cache.
const format = 3

// The canonical encoding of a catalogue is one part for each server and an
// index that refers to them by their digests, so that a change of one server
// costs as much as that server. The index's own digest is that of the head.
type index struct {
	Format     int           `json:"format"`
	Parts      []reference   `json:"parts"`
	Quarantine []Quarantined `json:"quarantine,omitempty"`
	Signature  string        `json:"signature,omitempty"`
}

// reference is to the part of one server.
type reference struct {
	Name   string `json:"name"`
	Digest string `json:"digest"` // SHA-256 of the part, lower-case hex
	Size   int    `json:"size"`   // of the part, in bytes
}

// part is one server's. Server is nil where only its tools name it.
type part struct {
	Format int     `json:"format"`
	Name   string  `json:"name"`
	Server *Server `json:"server,omitempty"`
	Tools  []Tool  `json:"tools"`
}

// NewCatalogue checks what is given, sorts it and computes the digests. An empty
// revision becomes the beginning of the head's digest. The catalogue takes over
// the slices of given, whose head and content do not matter; the error has a line
// for every problem.
func NewCatalogue(revision string, given Catalogue) (*Catalogue, error) {
	c := &Catalogue{Servers: given.Servers, Tools: given.Tools, Quarantine: given.Quarantine, Signature: given.Signature}
	problems := append(normaliseServers(c.Servers), normaliseTools(c.Tools)...)
	problems = append(problems, normaliseQuarantine(c.Quarantine)...)
	if !validSignature(c.Signature) {
		problems = append(problems, strictyaml.Problem{Path: "signature", Message: "want a JWS in compact form"})
	}
	strictyaml.Sort(problems)
	if err := strictyaml.Err(problems); err != nil {
		return nil, err
	}
	for _, p := range c.split() {
		encoded, err := encodePart(p)
		if err != nil {
			return nil, err
		}
		c.parts = append(c.parts, reference{Name: p.Name, Digest: digest(encoded), Size: len(encoded)})
	}
	content, err := encodeIndex(index{Parts: c.parts})
	if err != nil {
		return nil, err
	}
	c.Content = digest(content)
	return c, c.name(revision)
}

// name gives the catalogue its head.
func (c *Catalogue) name(revision string) error {
	whole, err := c.index()
	if err != nil {
		return err
	}
	c.Head = Head{Revision: revision, Digest: digest(whole)}
	if revision == "" {
		c.Head.Revision = c.Head.Digest[:12]
	}
	return nil
}

// withQuarantine returns the catalogue with more in quarantine, or with other words
// of what is in it already, under a head of its own: nothing is released. Each of
// more is valid, none is there twice. The two share memory.
func (c *Catalogue) withQuarantine(more []Quarantined) (*Catalogue, error) {
	with := *c
	with.Quarantine = slices.Clone(more)
	for _, q := range c.Quarantine {
		if !slices.ContainsFunc(more, q.same) {
			with.Quarantine = append(with.Quarantine, q)
		}
	}
	if err := strictyaml.Err(normaliseQuarantine(with.Quarantine)); err != nil {
		return nil, err
	}
	return &with, with.name("")
}

// index returns the encoding of the index.
func (c *Catalogue) index() ([]byte, error) {
	return encodeIndex(index{Parts: c.parts, Quarantine: c.Quarantine, Signature: c.Signature})
}

// split returns the parts, sorted by name. They share the catalogue's memory.
func (c *Catalogue) split() []part {
	var parts []part
	servers, tools := c.Servers, c.Tools
	for len(servers) > 0 || len(tools) > 0 {
		var p part
		switch {
		case len(servers) == 0:
			p.Name = tools[0].Server
		case len(tools) == 0:
			p.Name = servers[0].Name
		default:
			p.Name = min(servers[0].Name, tools[0].Server)
		}
		if len(servers) > 0 && servers[0].Name == p.Name {
			p.Server, servers = &servers[0], servers[1:]
		}
		n := 0
		for n < len(tools) && tools[n].Server == p.Name {
			n++
		}
		p.Tools, tools = tools[:n:n], tools[n:]
		parts = append(parts, p)
	}
	return parts
}

func encodePart(p part) ([]byte, error) {
	p.Format = format
	data, err := json.Marshal(p, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode server %s of the catalogue: %w", p.Name, err)
	}
	return data, nil
}

func encodeIndex(i index) ([]byte, error) {
	i.Format = format
	data, err := json.Marshal(i, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode the catalogue: %w", err)
	}
	return data, nil
}

func digest(encoded []byte) string {
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:])
}

// decodeIndex reads the index of the head.
func decodeIndex(data []byte, head Head) (*index, error) {
	if digest(data) != head.Digest {
		return nil, fmt.Errorf("decode the catalogue: its digest is not %.12s", head.Digest)
	}
	var i index
	if err := json.Unmarshal(data, &i, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("decode the catalogue: %w", err)
	}
	if i.Format != format {
		return nil, fmt.Errorf("decode the catalogue: format %d is not %d", i.Format, format)
	}
	return &i, nil
}

// decodePart reads the part that an index refers to.
func decodePart(data []byte, ref reference) (*part, error) {
	var p part
	switch err := json.Unmarshal(data, &p, json.RejectUnknownMembers(true)); {
	case digest(data) != ref.Digest:
		return nil, fmt.Errorf("decode server %.64q of the catalogue: its digest is not %.12s", ref.Name, ref.Digest)
	case err != nil:
		return nil, fmt.Errorf("decode server %.64q of the catalogue: %w", ref.Name, err)
	case p.Format != format:
		return nil, fmt.Errorf("decode server %.64q of the catalogue: format %d is not %d", ref.Name, p.Format, format)
	}
	return &p, nil
}

// assemble puts a catalogue together from the parts of an index, in its order. It
// accepts only what NewCatalogue makes: servers and tools pass the same checks as
// those of a source, and they encode to the digest of the head.
func assemble(head Head, i *index, parts []*part) (*Catalogue, error) {
	given := Catalogue{Quarantine: i.Quarantine, Signature: i.Signature}
	for _, p := range parts {
		if p.Server != nil {
			given.Servers = append(given.Servers, *p.Server)
		}
		given.Tools = append(given.Tools, p.Tools...)
	}
	c, err := NewCatalogue(head.Revision, given)
	if err != nil {
		return nil, fmt.Errorf("decode the catalogue: %w", err)
	}
	if c.Head != head {
		return nil, errors.New("decode the catalogue: it is not in canonical form")
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

func normaliseQuarantine(list []Quarantined) (problems []strictyaml.Problem) {
	slices.SortFunc(list, compareQuarantined)
	for i := range list {
		q := &list[i]
		q.Since = q.Since.UTC().Truncate(time.Second)
		path := fmt.Sprintf("quarantine of %.64q/%.128q", q.Server, q.Tool)
		problems = append(problems, q.check(path)...)
		if i > 0 && compareQuarantined(list[i-1], *q) == 0 {
			problems = append(problems, strictyaml.Problem{Path: path, Message: "occurs twice"})
		}
	}
	return problems
}

func compareQuarantined(a, b Quarantined) int {
	return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Tool, b.Tool))
}
