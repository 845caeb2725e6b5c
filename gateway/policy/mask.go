package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
)

// MaskPaths names the rules that mask and drop decision log events, as OPA's
// decision_logs.mask_decision and drop_decision do: segments separated by
// slashes, below data. "" means the default.
type MaskPaths struct{ Mask, Drop string }

// Validate returns what is wrong with the paths.
func (p MaskPaths) Validate() error {
	for _, path := range []string{p.Mask, p.Drop} {
		if _, err := parsePath(path, DefaultMaskPath); err != nil {
			return err
		}
	}
	return nil
}

func parsePath(path, usual string) (storage.Path, error) {
	parsed, ok := storage.ParsePath("/" + strings.TrimPrefix(cmp.Or(path, usual), "/"))
	if !ok || len(parsed) == 0 {
		return nil, fmt.Errorf("%q is no path of a rule: write it like %s", path, usual)
	}
	return parsed, nil
}

// Defaults of MaskPaths, OPA's own.
const (
	DefaultMaskPath = "/system/log/mask"
	DefaultDropPath = "/system/log/drop"
)

// Masker asks one policy how events of the decision log are to be masked. It is
// immutable and safe for concurrent use.
type Masker struct {
	program    *program
	deadline   time.Duration
	mask, drop *query // nil where the policy says nothing of it
}

// Masker prepares the rules at these paths of the snapshot. It takes as long as
// compiling two queries: keep it with the snapshot. Every evaluation has the
// deadline of a decision, and a built-in that fails is an error, not undefined.
func (s *Snapshot) Masker(paths MaskPaths) (*Masker, error) {
	p := s.program
	if p.masks != nil {
		p = p.masks
	}
	return newMasker(p, paths, s.deadline)
}

// NewMasker compiles one module, whose package has to be system.log or below it.
// name is what errors call the module; each line of an error is one problem.
func NewMasker(name string, source []byte, paths MaskPaths, deadline time.Duration) (*Masker, error) {
	caps, err := capabilities(nil)
	if err != nil {
		return nil, err
	}
	m, err := ast.ParseModuleWithOpts(name, string(source), ast.ParserOptions{RegoVersion: ast.RegoV1, Capabilities: caps, ProcessAnnotation: true})
	if err != nil {
		return nil, opaProblems(name, err)
	}
	if !masks(m) {
		return nil, Problems{{name, m.Package.Location.Row, fmt.Sprintf(
			"package %s cannot mask: rename it to system.log", strings.TrimPrefix(m.Package.Path.String(), "data."))}}
	}
	p := &program{store: inmem.NewFromASTObject(ast.NewObject())}
	if p.txn, err = p.store.NewTransaction(context.Background()); err != nil {
		return nil, err
	}
	if problems := p.compileMasks(map[string]*ast.Module{name: m}, caps); len(problems) > 0 {
		return nil, problems
	}
	return newMasker(p.masks, paths, deadline)
}

func newMasker(p *program, paths MaskPaths, deadline time.Duration) (*Masker, error) {
	if deadline == 0 {
		deadline = DefaultDeadline
	}
	m := &Masker{program: p, deadline: deadline}
	for _, q := range []struct {
		query       **query
		path, usual string
	}{{&m.mask, paths.Mask, DefaultMaskPath}, {&m.drop, paths.Drop, DefaultDropPath}} {
		path, err := parsePath(q.path, q.usual)
		if err != nil {
			return nil, err
		}
		ref := path.Ref(ast.DefaultRootDocument)
		if _, err := storage.ReadOne(context.Background(), p.store, path); err != nil && !defined(p.compiler, ref) {
			continue
		}
		prepared, err := p.prepare(ref.String(), slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, fmt.Errorf("prepare %s: %w", ref, err)
		}
		*q.query = &prepared
	}
	return m, nil
}

// Masks reports whether the policy says how to mask, by a rule or by data.
func (m *Masker) Masks() bool { return m.mask != nil }

// Drops reports whether the policy says which events to drop.
func (m *Masker) Drops() bool { return m.drop != nil }

// Mask is the policy's answer for the event, as OPA gives it: JSON as Go values,
// which are the caller's. ok is false where it is undefined.
func (m *Masker) Mask(ctx context.Context, event ast.Value) (answer any, ok bool, err error) {
	t, err := m.program.eval(ctx, m.deadline, *m.mask, event)
	if err != nil || t == nil {
		return nil, false, err
	}
	answer, err = ast.JSON(t.Value)
	if err != nil {
		return nil, false, errors.New("the answer is no JSON")
	}
	return answer, true, nil
}

// Drop reports whether the event is to be dropped: the answer is true.
func (m *Masker) Drop(ctx context.Context, event ast.Value) (bool, error) {
	t, err := m.program.eval(ctx, m.deadline, *m.drop, event)
	if err != nil || t == nil {
		return false, err
	}
	return t.Value.Compare(ast.Boolean(true)) == 0, nil
}

// Document is the input as the policy gets it for the question: without the
// arguments for allow, with them for call. Without an item, as a list is asked
// about, it lacks the thing. Nobody may modify it.
func (q *Question) Document(arguments jsontext.Value) (ast.Value, error) {
	in := input{*q, arguments}
	if q.Item == nil {
		// What is asked for all things alike.
		if q.Method == "" || q.Subject == nil || q.Subject.claims == nil {
			return nil, errIncomplete
		}
		o := make(object, 0, 3)
		o.text("method", q.Method)
		o.set("claims", q.Subject.claims)
		o.set("request", q.Request.term())
		return o.term().Value, nil
	}
	t, err := in.term(q.Request.term())
	if err != nil {
		return nil, err
	}
	return t.Value, nil
}

func masks(m *ast.Module) bool {
	return m.Package.Path.HasPrefix(ast.MustParseRef("data.system.log"))
}

// compileMasks takes the modules that mask out of modules and compiles them, with
// all others, for themselves: their input is an event, not what the schema of the
// policy input says.
func (p *program) compileMasks(modules map[string]*ast.Module, caps *ast.Capabilities) Problems {
	var own []string
	for name, m := range modules {
		if masks(m) {
			own = append(own, name)
		}
	}
	if len(own) == 0 {
		return nil
	}
	c := ast.NewCompiler().
		SetErrorLimit(maxCompileErrors).
		WithCapabilities(caps).
		WithDefaultRegoVersion(ast.RegoV1).
		WithStrict(true).
		WithPathConflictsCheck(storage.NonEmpty(context.Background(), p.store, p.txn))
	if c.Compile(modules); c.Failed() {
		return explainOff(opaProblems("", c.Errors))
	}
	p.masks = &program{compiler: c, store: p.store, txn: p.txn, indexed: indexable(c)}
	for _, name := range own {
		delete(modules, name)
	}
	return readsMasks(modules)
}

// readsMasks finds what a policy reads of the masks: it is decided without them.
func readsMasks(modules map[string]*ast.Module) (problems Problems) {
	log := ast.MustParseRef("data.system.log")
	for name, m := range modules {
		ast.WalkRefs(m, func(r ast.Ref) bool {
			if r.HasPrefix(log) {
				problems = append(problems, Problem{name, m.Package.Location.Row,
					"reads data.system.log, which is for the decision log alone: move what both need below mcp"})
			}
			return false
		})
	}
	slices.SortFunc(problems, func(a, b Problem) int { return strings.Compare(a.File, b.File) })
	return slices.Compact(problems)
}

func indexable(c *ast.Compiler) bool {
	return !slices.ContainsFunc(c.Required.Builtins, func(b *ast.Builtin) bool {
		return slices.Contains(forgivenBuiltins(), b.Name)
	})
}
