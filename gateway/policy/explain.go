package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// Limits of what is taken from an explanation.
const (
	maxReasons      = 32
	maxReasonLength = 256
)

// Explanation is what the policy says about a decision that it has made. It
// never changes the decision.
type Explanation struct {
	Reasons []string // codes that may be shown to the caller, sorted
	Private []string // reasons that are no codes, as JSON text and perhaps cut; for the record only
	Scopes  []string // OAuth scopes that would help, sorted
	// Err says why something of the above is missing. Its text never holds
	// values of the input.
	Err error
}

// Explain asks for the rules reasons and scopes, both sets of strings and both
// optional, on the input that the decision was made on: after Allow arguments
// is nil, after Call it is what Call got.
func (s *Snapshot) Explain(ctx context.Context, q Question, arguments jsontext.Value) Explanation {
	leave, err := s.room(ctx, arguments)
	if err != nil {
		return Explanation{Err: err}
	}
	defer leave()
	in := input{q, arguments}
	t, err := in.term(q.Request.term())
	if err != nil {
		return Explanation{Err: err}
	}
	var e Explanation
	reasons, reasonsErr := s.collect(ctx, s.reasons, t.Value)
	for _, r := range reasons {
		if text, ok := r.Value.(ast.String); ok && isCode(string(text)) {
			e.Reasons = append(e.Reasons, string(text))
		} else {
			e.Private = append(e.Private, cut(r.Value.String()))
		}
	}
	scopes, scopesErr := s.collect(ctx, s.scopes, t.Value)
	for _, sc := range scopes {
		if text, ok := sc.Value.(ast.String); ok && isScope(string(text)) {
			e.Scopes = append(e.Scopes, string(text))
		} else {
			scopesErr = errors.New("a value of scopes is not an OAuth scope")
		}
	}
	e.Reasons, e.Scopes = tidy(e.Reasons), tidy(e.Scopes)
	e.Err = errors.Join(named("reasons", reasonsErr), named("scopes", scopesErr))
	return e
}

func named(rule string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", rule, err)
}

// collect returns the members of a set or an array; undefined has none.
func (s *Snapshot) collect(ctx context.Context, q query, in ast.Value) ([]*ast.Term, error) {
	answer, err := s.program.eval(ctx, s.deadline, q, in)
	if err != nil || answer == nil {
		return nil, err
	}
	all, ok := members(answer)
	if !ok {
		return nil, fmt.Errorf("the value is of type %s, not a set of strings", ast.ValueName(answer.Value))
	}
	if len(all) > maxReasons {
		return all[:maxReasons], fmt.Errorf("more than %d values", maxReasons)
	}
	return all, nil
}

// members returns what a set or an array holds, and whether t is one.
func members(t *ast.Term) (all []*ast.Term, ok bool) {
	switch v := t.Value.(type) {
	case ast.Set:
		return v.Slice(), true
	case *ast.Array:
		v.Foreach(func(t *ast.Term) { all = append(all, t) })
		return all, true
	}
	return nil, false
}

// tidy sorts and removes duplicates; an empty list is nil.
func tidy(values []string) []string {
	slices.Sort(values)
	return slices.Compact(values)
}

// isCode reports whether s matches [a-z][a-z0-9_]{0,63}.
func isCode(s string) bool {
	if s == "" || len(s) > 64 || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return true
}

// isScope reports whether s is a scope-token of RFC 6749, section 3.3. Anything
// else could break out of the header that it is sent in.
func isScope(s string) bool {
	if s == "" || len(s) > maxReasonLength {
		return false
	}
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// cut shortens s to maxReasonLength bytes, at a character, and marks it.
func cut(s string) string { return shorten(s, maxReasonLength) }
