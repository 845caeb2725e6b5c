package plane

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/storage"
)

// names lists the bundles that a write would leave active, sorted.
func (p *Plane) names(ctx context.Context, txn storage.Transaction) ([]string, error) {
	names, err := bundle.ReadBundleNamesFromStore(ctx, p.store, txn)
	if err != nil && !storage.IsNotFound(err) {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}

// candidate is what a write would leave active.
func (p *Plane) candidate(ctx context.Context, txn storage.Transaction) (*Candidate, error) {
	names, err := p.names(ctx, txn)
	if err != nil {
		return nil, err
	}
	c := &Candidate{Bundles: map[string]string{}, Complete: p.complete(names)}
	for _, name := range names {
		revision, err := bundle.ReadBundleRevisionFromStore(ctx, p.store, txn, name)
		if err != nil && !storage.IsNotFound(err) {
			return nil, err
		}
		c.Bundles[name] = revision
	}
	ids, err := p.store.ListPolicies(ctx, txn)
	if err != nil {
		return nil, err
	}
	slices.Sort(ids)
	for _, id := range ids {
		raw, err := p.store.GetPolicy(ctx, txn, id)
		if err != nil {
			return nil, err
		}
		m := Module{Path: id, Raw: slices.Clone(raw)}
		for _, name := range names {
			if path, ok := strings.CutPrefix(id, name+"/"); ok && len(name) > len(m.Bundle) {
				m.Bundle, m.Path = name, path
			}
		}
		c.Modules = append(c.Modules, m)
	}
	c.Data, err = p.data(ctx, txn)
	return c, err
}

// complete says whether every configured bundle is among names.
func (p *Plane) complete(names []string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, t := range p.tracked {
		if t.wanted && !slices.Contains(names, name) {
			return false
		}
	}
	return true
}

// data copies every document; later writes edit those of the store in place.
func (p *Plane) data(ctx context.Context, txn storage.Transaction) (ast.Object, error) {
	value, err := p.store.Read(ctx, txn, storage.RootPath)
	if err != nil {
		return nil, err
	}
	root, ok := value.(ast.Object)
	if !ok {
		return nil, fmt.Errorf("OPA's store holds %T, not an object", value)
	}
	return without(root, ast.String("system"), func(system ast.Object) ast.Object {
		for _, name := range []ast.String{"bundles", "bundle", "modules", "version"} {
			system = without(system, name, nil)
		}
		return system
	}), nil
}

// without is a deep copy of o in which the member name is replaced by what
// other makes of it, and is missing where that is empty.
func without(o ast.Object, name ast.String, other func(ast.Object) ast.Object) ast.Object {
	copied := ast.NewObject()
	o.Foreach(func(k, v *ast.Term) {
		if k.Value.Compare(name) != 0 {
			copied.Insert(k.Copy(), v.Copy())
			return
		}
		below, ok := v.Value.(ast.Object)
		if !ok || other == nil {
			return
		}
		if kept := other(below); kept.Len() > 0 {
			copied.Insert(k.Copy(), ast.NewTerm(kept))
		}
	})
	return copied
}
