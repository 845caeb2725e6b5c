package decisionlog

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/regogate/regogate/gateway/policy"
)

// argumentsPath is what is erased where no policy says what to mask.
const argumentsPath = "/input/arguments"

// masking asks the policy that decided how to mask, and where that says nothing
// of it, the local one. It belongs to one goroutine.
type masking struct {
	paths policy.MaskPaths
	local *policy.Masker // may be nil
	// known keeps the maskers of few snapshots: records come in order, so that an
	// older one does not come back for long.
	known *simplelru.LRU[*policy.Snapshot, maskers]
}

// maskers is whom to ask about each; nil where nobody says anything.
type maskers struct {
	mask, drop *policy.Masker
	err        error // there would be somebody to ask
}

const maxMaskers = 4

func newMasking(paths policy.MaskPaths, local *policy.Masker) masking {
	known, err := simplelru.NewLRU[*policy.Snapshot, maskers](maxMaskers, nil)
	if err != nil {
		panic(err) // the size is a positive constant
	}
	return masking{paths, local, known}
}

func (m *masking) of(s *policy.Snapshot) maskers {
	if found, ok := m.known.Get(s); ok {
		return found
	}
	var found maskers
	ask := func(p *policy.Masker) {
		if p != nil && found.mask == nil && p.Masks() {
			found.mask = p
		}
		if p != nil && found.drop == nil && p.Drops() {
			found.drop = p
		}
	}
	if s != nil {
		own, err := s.Masker(m.paths)
		if found.err = err; err == nil {
			ask(own)
		}
	}
	ask(m.local)
	m.known.Add(s, found)
	return found
}

// apply fills in the event's input and masks the event, or reports that it is to
// be dropped. Whatever goes wrong, the event stays.
func (m *masking) apply(ctx context.Context, v *event) (drop bool) {
	ask := m.of(v.Snapshot)
	if ask.mask == nil && ask.drop == nil && ask.err == nil {
		m.withoutArguments(v)
		return false
	}
	input, err := v.Document(v.Arguments)
	if err != nil {
		v.fail("input", err)
		return false
	}
	v.input = input
	whole, err := v.ast()
	if err != nil {
		v.fail("event", err)
		return false
	}
	if ask.drop != nil {
		if drop, err = ask.drop.Drop(ctx, whole); drop {
			return true
		}
	}
	switch failure := m.mask(ctx, ask, v, whole); {
	case failure != nil:
		v.fail("mask", failure)
	case err != nil:
		v.maskError = "drop: " + err.Error() // it is not dropped, and masked
	}
	return false
}

// withoutArguments is what is on record where no policy says what to mask.
func (m *masking) withoutArguments(v *event) {
	input, err := v.Document(nil)
	if err != nil {
		v.fail("input", err)
		return
	}
	v.input = input
	if v.Arguments != nil || v.Cut {
		v.erased = []string{argumentsPath}
	}
}

func (m *masking) mask(ctx context.Context, ask maskers, v *event, whole ast.Value) error {
	if ask.err != nil {
		return ask.err
	}
	if ask.mask == nil {
		m.withoutArguments(v)
		return nil
	}
	answer, ok, err := ask.mask.Mask(ctx, whole)
	if err != nil {
		return err
	}
	if !ok { // then it says no more than a policy without the rule
		m.withoutArguments(v)
		return nil
	}
	rules, err := readRules(answer)
	if err != nil {
		return err
	}
	return rules.apply(v)
}

// fail keeps of the event what cannot need a mask. The text is the event's.
func (v *event) fail(at string, err error) {
	v.input = v.named()
	v.erased, v.masked = nil, nil
	v.maskError = shorten(at+": "+strings.ReplaceAll(err.Error(), "\n", " "), maxText)
}

// ast is the event as the policy gets to see it, not masked yet.
func (v *event) ast() (ast.Value, error) {
	rest, err := ast.ValueFromReader(bytes.NewReader(v.appendTo(nil, nil)))
	if err != nil {
		return nil, fmt.Errorf("read the event: %w", err)
	}
	o, ok := rest.(ast.Object)
	if !ok {
		return nil, fmt.Errorf("the event is no object")
	}
	o.Insert(ast.InternedTerm("input"), ast.NewTerm(v.input))
	return o, nil
}
