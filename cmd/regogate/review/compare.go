package review

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/diff"
)

// Kinds of differences. The first three are ones between what is offered and what
// is registered; the others are for people to know.
const (
	New         = "new"         // offered, without an entry
	Gone        = "gone"        // with an entry, and not offered any more
	Changed     = "changed"     // offered with another definition than the pinned one
	Unpinned    = "not pinned"  // offered, with an entry without a pin
	Quarantined = "quarantined" // a tool, or a whole server
)

// Difference is one between what a server offers and what the registry says. Of
// what the server says nothing is to be trusted, the tool's name apart, which keeps
// to the name rules.
type Difference struct {
	Kind      string       `json:"kind"`
	Server    string       `json:"server"`
	Tool      string       `json:"tool,omitempty"`
	Suggested bool         `json:"suggested,omitzero"` // its entry is not in force
	Pinned    string       `json:"pinned,omitempty"`   // digest that was approved
	Current   string       `json:"current,omitempty"`  // digest of what is offered
	Fields    []diff.Field `json:"fields,omitempty"`   // from what was approved to what is offered
	Unkept    bool         `json:"unkept,omitzero"`    // what was approved is not there to compare with
	Reason    string       `json:"reason,omitempty"`   // of the quarantine
	By        string       `json:"by,omitempty"`

	// Definition is what is offered, in the form that the digest is of; nil where
	// nothing is.
	Definition jsontext.Value `json:"-"`
}

// Name is what people call the tool, or the server.
func (d *Difference) Name() string { return registry.Name(d.Server, d.Tool) }

// Definitions keeps what was approved.
type Definitions interface {
	// Definition is as that of registry.Store.
	Definition(ctx context.Context, server, tool, sha256 string) ([]byte, error)
}

// Compare returns how what the servers offer differs from the catalogue, by server,
// tool and kind. Servers that are not among the live ones have no differences.
func Compare(ctx context.Context, c *registry.Catalogue, kept Definitions, live *Live) (list []Difference, err error) {
	for i := range live.Servers {
		found, err := compareServer(ctx, c, kept, &live.Servers[i])
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	slices.SortStableFunc(list, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Tool, b.Tool))
	})
	return list, nil
}

func compareServer(ctx context.Context, c *registry.Catalogue, kept Definitions, s *upstream.Server) (list []Difference, err error) {
	entries, offered := map[string]*registry.Tool{}, map[string]bool{}
	for i := range s.Tools {
		offered[s.Tools[i].Name] = true
	}
	for i := range c.Tools {
		if t := &c.Tools[i]; t.Server == s.Name {
			entries[t.Name] = t
			if !s.Partial && !offered[t.Name] {
				list = append(list, Difference{Kind: Gone, Server: s.Name, Tool: t.Name, Suggested: t.Suggested, Pinned: t.SHA256})
			}
		}
	}
	for i := range s.Tools {
		d, err := CompareTool(ctx, entries[s.Tools[i].Name], kept, s.Name, &s.Tools[i])
		if err != nil {
			return nil, err
		}
		if d.Kind != "" {
			list = append(list, d)
		}
	}
	for _, q := range c.Quarantine {
		if q.Server == s.Name {
			list = append(list, Difference{Kind: Quarantined, Server: q.Server, Tool: q.Tool, Reason: q.Reason, By: q.By})
		}
	}
	return list, nil
}

// CompareTool is Compare for one tool that is offered and its entry, which is nil
// where there is none. The kind is empty where there is no difference.
func CompareTool(ctx context.Context, entry *registry.Tool, kept Definitions, server string, offered *upstream.Definition) (d Difference, err error) {
	d = Difference{Server: server, Tool: offered.Name, Current: offered.SHA256}
	if d.Definition, err = upstream.Canonical(offered.Raw); err != nil {
		return d, fmt.Errorf("%s: %w", d.Name(), err)
	}
	if entry == nil {
		d.Kind = New
		return d, nil
	}
	d.Suggested, d.Pinned = entry.Suggested, entry.SHA256
	switch {
	case entry.SHA256 == "":
		d.Kind = Unpinned
	case entry.SHA256 != offered.SHA256:
		d.Kind = Changed
		approved, err := approved(ctx, kept, entry)
		if err != nil {
			return d, err
		}
		if d.Unkept = approved == nil; !d.Unkept {
			d.Fields = diff.Definitions(approved, d.Definition)
		}
	}
	return d, nil
}

// approved is the definition that the entry is pinned to, or nil where it was not
// kept: by that digest nothing else will do.
func approved(ctx context.Context, kept Definitions, entry *registry.Tool) (jsontext.Value, error) {
	text, err := kept.Definition(ctx, entry.Server, entry.Name, entry.SHA256)
	if errors.Is(err, registry.ErrUnknown) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if digest, err := upstream.Digest(text); err != nil || digest != entry.SHA256 {
		return nil, nil
	}
	return upstream.Canonical(text)
}
