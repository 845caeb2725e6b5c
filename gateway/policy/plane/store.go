package plane

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
)

// store is OPA's in-memory store with a say before each commit. OPA's bundle
// plugin has no other place where an activation can be refused: it does not ask
// the activator that its manager was given.
type store struct {
	storage.Store
	// before is asked about each write that is about to be committed; an error
	// aborts it. name is the bundle being activated, "" for any other write. The
	// returned function, which may be nil, runs after the commit and before the
	// next write begins.
	before func(ctx context.Context, txn storage.Transaction, name string) (func(), error)

	turn    sync.Mutex // held by the one write
	writing atomic.Uint64
	name    string // guarded by turn
}

func newStore() *store {
	return &store{Store: inmem.NewWithOpts(inmem.OptReturnASTValuesOnRead(true), inmem.OptRoundTripOnWrite(false))}
}

func (s *store) NewTransaction(ctx context.Context, params ...storage.TransactionParams) (storage.Transaction, error) {
	write := len(params) > 0 && params[0].Write
	if !write {
		return s.Store.NewTransaction(ctx, params...)
	}
	s.turn.Lock()
	txn, err := s.Store.NewTransaction(ctx, params...)
	if err != nil {
		s.turn.Unlock()
		return nil, err
	}
	s.name = ""
	s.writing.Store(txn.ID())
	return txn, nil
}

func (s *store) Abort(ctx context.Context, txn storage.Transaction) {
	s.Store.Abort(ctx, txn)
	s.done(txn)
}

func (s *store) Commit(ctx context.Context, txn storage.Transaction) error {
	if s.writing.Load() != txn.ID() {
		return s.Store.Commit(ctx, txn)
	}
	after, err := s.before(ctx, txn, s.name)
	if err != nil {
		s.Abort(ctx, txn)
		return err
	}
	return s.commit(ctx, txn, after)
}

// commit commits a write without asking.
func (s *store) commit(ctx context.Context, txn storage.Transaction, after func()) error {
	defer s.done(txn)
	if err := s.Store.Commit(ctx, txn); err != nil {
		return err
	}
	if after != nil {
		after()
	}
	return nil
}

func (s *store) done(txn storage.Transaction) {
	if s.writing.CompareAndSwap(txn.ID(), 0) {
		s.turn.Unlock()
	}
}

// MakeDir is found by OPA through a type assertion.
func (s *store) MakeDir(ctx context.Context, txn storage.Transaction, path storage.Path) error {
	return storage.MakeDir(ctx, s.Store, txn, path)
}

// OnBundlePreActivate is called by OPA inside the write that activates a bundle.
func (s *store) OnBundlePreActivate(_ context.Context, name string, _ bundle.Manifest) error {
	s.name = name
	return nil
}
