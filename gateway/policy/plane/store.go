package plane

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
)

// judgedStore is the store that OPA's plugins write to. It commits what the
// judge does not refuse. Nothing is decided on it.
type judgedStore struct {
	storage.Store
	plane *Plane

	order   sync.Mutex // held from judging to committing, so that commits are told in order
	mu      sync.Mutex
	writing map[uint64]bool
	active  map[string]string // guarded by order
}

func newStore(p *Plane) *judgedStore {
	return &judgedStore{
		Store:   inmem.NewWithOpts(inmem.OptReturnASTValuesOnRead(true), inmem.OptRoundTripOnWrite(false)),
		plane:   p,
		writing: map[uint64]bool{},
	}
}

// NewTransaction notes which transactions write.
func (s *judgedStore) NewTransaction(ctx context.Context, params ...storage.TransactionParams) (storage.Transaction, error) {
	txn, err := s.Store.NewTransaction(ctx, params...)
	if err == nil && len(params) > 0 && params[0].Write {
		s.mu.Lock()
		s.writing[txn.ID()] = true
		s.mu.Unlock()
	}
	return txn, err
}

// wrote reports, once, whether the transaction is one that writes.
func (s *judgedStore) wrote(txn storage.Transaction) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer delete(s.writing, txn.ID())
	return s.writing[txn.ID()]
}

// Abort implements storage.Store.
func (s *judgedStore) Abort(ctx context.Context, txn storage.Transaction) {
	s.wrote(txn)
	s.Store.Abort(ctx, txn)
}

// Commit puts what would be in force to the judge, and aborts the transaction
// where that is refused.
func (s *judgedStore) Commit(ctx context.Context, txn storage.Transaction) error {
	if !s.wrote(txn) {
		return s.Store.Commit(ctx, txn)
	}
	s.order.Lock()
	defer s.order.Unlock()
	c, err := s.candidate(ctx, txn)
	if err != nil {
		s.Store.Abort(ctx, txn)
		return err
	}
	c.Complete = s.plane.complete(c.Bundles)
	commit, err := s.plane.options.Judge(ctx, c)
	if err != nil && !s.shrinks(c) {
		s.Store.Abort(ctx, txn)
		return err
	}
	if err != nil {
		// OPA cannot do without taking a bundle away that is configured no more.
		// What was in force before stays in force.
		s.plane.options.Log.Error("the bundles that are left are refused", "problem", err.Error())
		commit = nil
	}
	if err := s.Store.Commit(ctx, txn); err != nil {
		return err
	}
	s.active = c.Bundles
	s.plane.committed(c.Bundles)
	if commit != nil {
		commit()
	}
	return nil
}

// shrinks reports whether the candidate lacks a bundle that is active.
func (s *judgedStore) shrinks(c *Candidate) bool {
	for name := range s.active {
		if _, ok := c.Bundles[name]; !ok {
			return true
		}
	}
	return false
}

// candidate reads everything as the transaction would leave it.
func (s *judgedStore) candidate(ctx context.Context, txn storage.Transaction) (*Candidate, error) {
	c := &Candidate{Bundles: map[string]string{}}
	names, err := bundle.ReadBundleNamesFromStore(ctx, s.Store, txn)
	if err != nil && !storage.IsNotFound(err) {
		return nil, fmt.Errorf("read the names of the bundles: %w", err)
	}
	for _, name := range names {
		revision, err := bundle.ReadBundleRevisionFromStore(ctx, s.Store, txn, name)
		if err != nil && !storage.IsNotFound(err) {
			return nil, fmt.Errorf("read the revision of bundle %s: %w", name, err)
		}
		c.Bundles[name] = revision
	}
	ids, err := s.ListPolicies(ctx, txn)
	if err != nil {
		return nil, fmt.Errorf("list the modules of the bundles: %w", err)
	}
	for _, id := range ids {
		raw, err := s.GetPolicy(ctx, txn, id)
		if err != nil {
			return nil, fmt.Errorf("read the module %s: %w", id, err)
		}
		name, path := split(id, slices.Sorted(maps.Keys(c.Bundles)))
		c.Modules = append(c.Modules, Module{Bundle: name, Path: path, Raw: slices.Clone(raw)})
	}
	slices.SortFunc(c.Modules, func(a, b Module) int {
		return cmp.Or(cmp.Compare(a.Bundle, b.Bundle), cmp.Compare(a.Path, b.Path))
	})
	c.Data, err = s.data(ctx, txn)
	return c, err
}

// split takes the bundle's name off the id that OPA gives a module.
func split(id string, bundles []string) (name, path string) {
	for _, b := range slices.Backward(bundles) { // of two that fit, the longer one
		if rest, ok := strings.CutPrefix(id, b+"/"); ok {
			return b, strings.TrimPrefix(rest, "/")
		}
	}
	return "", id
}

// data is a copy of everything but what OPA itself keeps there. Values in the
// store are modified by later writes.
func (s *judgedStore) data(ctx context.Context, txn storage.Transaction) (ast.Object, error) {
	read, err := s.Read(ctx, txn, storage.Path{})
	if err != nil {
		return nil, fmt.Errorf("read the data of the bundles: %w", err)
	}
	root, ok := read.(ast.Object)
	if !ok {
		return nil, fmt.Errorf("the data of the bundles is %T, not an object", read)
	}
	all := ast.NewTerm(root).Copy().Value.(ast.Object)
	system, ok := value(all, "system").(ast.Object)
	if !ok {
		return all, nil
	}
	rest := without(system, "bundles", "bundle", "modules", "version", "wasm")
	all = without(all, "system")
	if rest.Len() > 0 {
		all.Insert(ast.StringTerm("system"), ast.NewTerm(rest))
	}
	return all, nil
}

func value(o ast.Object, key string) ast.Value {
	if t := o.Get(ast.StringTerm(key)); t != nil {
		return t.Value
	}
	return nil
}

func without(o ast.Object, names ...string) ast.Object {
	out := ast.NewObject()
	o.Foreach(func(key, value *ast.Term) {
		if name, ok := key.Value.(ast.String); !ok || !slices.Contains(names, string(name)) {
			out.Insert(key, value)
		}
	})
	return out
}
