package plane

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/plugins"
	"github.com/open-policy-agent/opa/v1/storage"
)

// seen is one version of a bundle.
type seen struct {
	digest   string
	etag     string
	revision string
	since    time.Time
	disk     bool
}

// version is one version of a bundle with what it holds.
type version struct {
	seen
	*bundle.Bundle
}

// tracked is what is known of a bundle. Guarded by Plane.mu.
type tracked struct {
	wanted bool // configured; the others are about to be deactivated
	active seen // what is in force, zero for nothing
	opa    string
	latest seen // what was offered last
	refuse error
	turn   uint64 // of Plane.turn when latest was refused
	passed bool   // the last download was handed to OPA
	own    string // our reason for refusing the last download
	// pending was refused last. It may be what another bundle needs, or need it.
	pending *version
	problem string
}

// offer is shown the bytes of a bundle before OPA is. A good one is in force
// when it returns: OPA then activates the same bytes for its own books. same
// says that OPA need not see them. With an error it must not; a bundle that is
// refused without one OPA refuses itself, for the same reason.
func (p *Plane) offer(ctx context.Context, src *source, raw []byte, etag string, disk bool) (same bool, err error) {
	if src.discovery {
		return false, p.examine(src, raw)
	}
	now := seen{digest: fmt.Sprintf("%x", sha256.Sum256(raw)), etag: etag, disk: disk}
	if known, same := p.known(src.name, now); known {
		return same, nil
	}
	b, err := src.read(raw, etag, time.Now())
	if err == nil {
		now.revision = b.Manifest.Revision
		err = p.activate(ctx, src.name, &version{now, b})
		_, fatal := errors.AsType[panicked](err)
		if !fatal {
			return false, nil
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.of(src.name)
	t.latest, t.refuse, t.pending = now, err, nil
	return false, err
}

// of is what is known of a bundle, or of one that has just been removed. The
// caller holds mu.
func (p *Plane) of(name string) *tracked {
	if t := p.tracked[name]; t != nil {
		return t
	}
	return &tracked{}
}

// known takes note of bytes that are in force already.
func (p *Plane) known(name string, now seen) (known, same bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.of(name)
	if t.active.digest != now.digest {
		return false, false
	}
	same = t.opa == now.digest && t.active.etag == now.etag
	t.active.etag = now.etag
	t.active.disk = t.active.disk && now.disk
	t.latest, t.refuse, t.pending, t.passed = now, nil, nil, !same
	return true, same
}

// examine compiles a discovery bundle as OPA will, but with fewer built-ins:
// OPA evaluates it with all.
func (p *Plane) examine(src *source, raw []byte) (err error) {
	defer caught(&err, "compiling the discovery bundle")
	b, err := src.read(raw, "", time.Now())
	if err != nil {
		return err
	}
	c := ast.NewCompiler().WithCapabilities(p.o.Capabilities)
	if c.Compile(b.ParsedModules("discovery")); c.Failed() {
		return c.Errors
	}
	return nil
}

// activate puts v in force, together with refused bundles that wait for it.
func (p *Plane) activate(ctx context.Context, name string, v *version) error {
	p.mu.Lock()
	t := p.of(name)
	t.latest, t.refuse, t.passed = v.seen, nil, true
	t.pending = nil
	set := map[string]*version{}
	for other, o := range p.tracked {
		if o.pending != nil && o.wanted {
			set[other] = o.pending
		}
	}
	p.mu.Unlock()
	waiting := slices.Sorted(maps.Keys(set))
	set[name] = v
	if len(waiting) > 0 && p.try(ctx, set) == nil {
		return nil
	}
	if err := p.try(ctx, map[string]*version{name: v}); err != nil {
		p.mu.Lock()
		t.refuse, t.turn, t.pending, t.own = err, p.turn, v, reason(err)
		p.mu.Unlock()
		return err
	}
	for again := true; again; {
		again = false
		for i, other := range waiting {
			if p.try(ctx, map[string]*version{other: set[other]}) == nil {
				waiting, again = slices.Delete(waiting, i, i+1), true
				break
			}
		}
	}
	return nil
}

// try activates a set of bundles in one write, or leaves all as it was.
func (p *Plane) try(ctx context.Context, set map[string]*version) (err error) {
	params := storage.WriteParams
	params.Context = storage.NewContext()
	txn, err := p.store.NewTransaction(ctx, params)
	if err != nil {
		return err
	}
	after, err := p.enact(ctx, txn, params.Context, set)
	if err != nil {
		p.store.Abort(ctx, txn)
		return err
	}
	return p.store.commit(ctx, txn, func() {
		p.mu.Lock()
		p.turn++
		p.left = ""
		for name, v := range set {
			t := p.of(name)
			t.active, t.active.since = v.seen, time.Now()
			if t.latest.digest == v.digest {
				was := t.problem
				t.refuse, t.pending, t.problem, t.own = nil, nil, "", ""
				p.tell(name, was, t)
			}
		}
		p.mu.Unlock()
		if after != nil {
			after()
		}
		p.hinted()
	})
}

func (p *Plane) enact(ctx context.Context, txn storage.Transaction, kept *storage.Context, set map[string]*version) (after func(), err error) {
	defer caught(&err, "activating the bundle")
	roots := []string{}
	bundles := map[string]*bundle.Bundle{}
	for name, v := range set {
		bundles[name] = v.Bundle
		roots = append(roots, *v.Manifest.Roots...)
	}
	compiler := ast.NewCompiler().
		WithPathConflictsCheck(storage.NonEmpty(ctx, p.store, txn)).
		WithPathConflictsCheckRoots(roots)
	err = bundle.Activate(&bundle.ActivateOpts{
		Ctx: ctx, Store: p.store, Txn: txn, TxnCtx: kept, Compiler: compiler, Metrics: metrics.New(),
		Bundles: bundles, ParserOptions: ast.ParserOptions{RegoVersion: ast.RegoV1},
	})
	if err != nil {
		return nil, err
	}
	plugins.SetCompilerOnContext(kept, compiler)
	return p.judge(ctx, txn)
}

func (p *Plane) judge(ctx context.Context, txn storage.Transaction) (after func(), err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("judging the policy failed: %v", r)
		}
	}()
	c, err := p.candidate(ctx, txn)
	if err != nil {
		return nil, err
	}
	return p.o.Judge(ctx, c)
}

// before is the store's question about OPA's own writes: activations of what
// was offered, and deactivations, which OPA does not survive being refused.
func (p *Plane) before(ctx context.Context, txn storage.Transaction, name string) (func(), error) {
	if name == "" {
		return p.forget(ctx, txn)
	}
	p.mu.Lock()
	t := p.tracked[name]
	if t == nil {
		p.mu.Unlock()
		return nil, errors.New("this bundle is not configured any more")
	}
	now, refused, current := t.latest, t.refuse, t.turn == p.turn
	inForce := now.digest != "" && now.digest == t.active.digest
	p.mu.Unlock()
	if inForce {
		return func() { p.booked(name, now) }, nil
	}
	if refused != nil && current {
		return nil, refused
	}
	after, err := p.judge(ctx, txn)
	if err != nil {
		return nil, err
	}
	return func() {
		p.booked(name, now)
		if after != nil {
			after()
		}
	}, nil
}

// booked notes that OPA has activated what was offered last.
func (p *Plane) booked(name string, now seen) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.of(name)
	t.opa = now.digest
	if t.active.digest != now.digest {
		p.turn++
		t.active, t.active.since = now, time.Now()
		t.refuse, t.pending = nil, nil
	}
}

// forget judges what is left when bundles have been deactivated. A refusal is
// reported and keeps what the judge has in force; OPA's store goes on.
func (p *Plane) forget(ctx context.Context, txn storage.Transaction) (func(), error) {
	names, err := p.names(ctx, txn)
	if err != nil {
		return nil, nil
	}
	var gone []string
	p.mu.Lock()
	for name, t := range p.tracked {
		if t.active.digest != "" && !slices.Contains(names, name) {
			gone = append(gone, name)
		}
	}
	p.mu.Unlock()
	if len(gone) == 0 {
		return nil, nil
	}
	slices.Sort(gone)
	after, err := p.judge(ctx, txn)
	return func() {
		p.mu.Lock()
		p.turn++
		for _, name := range gone {
			if p.tracked[name].wanted {
				p.tracked[name].active, p.tracked[name].opa = seen{}, ""
				continue
			}
			delete(p.tracked, name)
		}
		p.left = ""
		if err != nil {
			p.left = fmt.Sprintf("without %s the policy is refused, so what was in force stays: %s", strings.Join(gone, ", "), reason(err))
			p.log.Error("%s", p.left)
		}
		p.mu.Unlock()
		if err == nil && after != nil {
			after()
		}
		p.hinted()
	}, nil
}

// reason is an error in one line.
func reason(err error) string {
	list, ok := errors.AsType[ast.Errors](err)
	if !ok {
		return strings.Join(strings.Fields(err.Error()), " ")
	}
	lines := make([]string, len(list))
	for i, e := range list {
		lines[i] = strings.Join(strings.Fields(e.Error()), " ")
	}
	return strings.Join(lines, "; ")
}
