package decisionlog

import (
	"bytes"
	"context"
	"errors"
	"strconv"

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

const maxMaskers = 2

func newMasking(paths policy.MaskPaths, local *policy.Masker) masking {
	return masking{paths, local, remember[*policy.Snapshot, maskers](maxMaskers)}
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

// mask fills in the event's input and masks the event, or reports that it is to
// be dropped. Whatever goes wrong, the event stays.
func (e *encoder) mask(ctx context.Context, v *event) (drop bool) {
	defer func() { // what somebody sent must not end the process
		if r := recover(); r != nil {
			v.fail("mask", errors.New("masking panicked"))
			drop = false
		}
	}()
	ask := e.masking.of(v.Snapshot)
	if ask.mask == nil && ask.drop == nil && ask.err == nil {
		e.withoutArguments(v)
		return false
	}
	input, err := v.Document(v.Arguments)
	if err != nil {
		v.fail("input", err)
		return false
	}
	whole, err := e.seen(v, input)
	if err != nil {
		v.fail("event", err)
		return false
	}
	if ask.drop != nil {
		if drop, err = ask.drop.Drop(ctx, whole); drop {
			return true
		}
	}
	switch failure := e.maskWith(ctx, ask, v, input, whole); {
	case failure != nil:
		v.fail("mask", failure)
	case err != nil:
		v.maskError = "drop: " + brief(err) // it is not dropped, and masked
	}
	return false
}

func (e *encoder) maskWith(ctx context.Context, ask maskers, v *event, input, whole ast.Value) error {
	if ask.err != nil {
		return ask.err
	}
	if ask.mask == nil {
		e.withoutArguments(v)
		return nil
	}
	answer, ok, err := ask.mask.Mask(ctx, whole)
	if err != nil {
		return err
	}
	if !ok { // then it says no more than a policy without the rule
		e.withoutArguments(v)
		return nil
	}
	rules, err := readRules(answer)
	if err != nil {
		return err
	}
	if len(rules) == 0 {
		v.input, v.shortened = appendValue(nil, input)
		return nil
	}
	document, err := ast.JSON(input) // a copy: what it is made from is shared
	if err != nil {
		return errors.New("the input is no JSON")
	}
	return rules.apply(v, document)
}

// withoutArguments is what is on record where no policy says what to mask.
func (e *encoder) withoutArguments(v *event) {
	claims, thing, ok := v.Parts()
	if !ok {
		v.fail("input", errors.New("the question lacks its method, its subject or its item"))
		return
	}
	request, cut := appendValue(nil, v.Request.Value())
	subject := shared(e.subjects, v.Subject, claims)
	w := append([]byte(nil), `{"claims":`...)
	w = append(w, subject.json...)
	w = appendMember(w, "method", appendText(nil, v.Method))
	v.shortened = cut || subject.cut
	kind := string(v.Thing().Kind)
	if kind > "request" {
		w = appendMember(w, "request", request)
	}
	if thing != nil {
		item := shared(e.items, v.Item, thing)
		w = appendMember(w, kind, item.json)
		v.shortened = v.shortened || item.cut
	}
	if kind <= "request" {
		w = appendMember(w, "request", request)
	}
	v.input = append(w, '}')
	if v.Arguments != nil || v.Cut {
		v.erased = []string{argumentsPath}
	}
}

// shared returns a value as JSON that may have been made for an event before.
func shared[K comparable](known *simplelru.LRU[K, part], key K, v ast.Value) part {
	p, ok := known.Get(key)
	if !ok {
		p.json, p.cut = appendValue(nil, v)
		if len(p.json) <= maxPart {
			known.Add(key, p)
		}
	}
	return p
}

// fail keeps of the event what cannot need a mask.
func (v *event) fail(at string, err error) {
	v.input, v.shortened = v.named(), false
	v.erased, v.masked = nil, nil
	v.maskError = at + ": " + brief(err)
}

// seen is the event as the policy gets to see it, not masked yet.
func (e *encoder) seen(v *event, input ast.Value) (ast.Value, error) {
	b := &building{{}}
	v.before(b)
	v.after(b)
	b.put("input", ast.NewTerm(input))
	labels, err := ast.ValueFromReader(bytes.NewReader(e.labels))
	if err != nil {
		return nil, errors.New("the labels are no JSON")
	}
	b.put("labels", ast.NewTerm(labels))
	result, err := ast.ValueFromReader(bytes.NewReader(v.result))
	if err != nil {
		return nil, errors.New("the result is no JSON")
	}
	b.put("result", ast.NewTerm(result))
	return b.top(), nil
}

// building puts members down as terms: those of the objects that are open, the
// outermost first.
type building [][][2]*ast.Term

func (b *building) put(name string, value *ast.Term) {
	last := len(*b) - 1
	(*b)[last] = append((*b)[last], ast.Item(ast.InternedTerm(name), value))
}

func (b *building) top() ast.Value { return ast.NewObject((*b)[len(*b)-1]...) }

func (b *building) text(name, value string) {
	if value != "" {
		b.put(name, ast.StringTerm(value))
	}
}

func (b *building) texts(name string, values []string) {
	if len(values) == 0 {
		return
	}
	all := make([]*ast.Term, len(values))
	for i, v := range values {
		all[i] = ast.StringTerm(v)
	}
	b.put(name, ast.ArrayTerm(all...))
}

func (b *building) number(name string, value int64) {
	b.put(name, ast.NewTerm(ast.Number(strconv.FormatInt(value, 10))))
}

func (b *building) open(name string) {
	*b = append(*b, [][2]*ast.Term{ast.Item(ast.InternedTerm(name), nil)})
}

func (b *building) close() {
	last := (*b)[len(*b)-1]
	*b = (*b)[:len(*b)-1]
	b.put(string(last[0][0].Value.(ast.String)), ast.ObjectTerm(last[1:]...))
}
