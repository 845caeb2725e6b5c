package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/regogate/regogate/gateway/policy/reads"
)

// unasked are the parts of the input that allow must not depend on: it is never
// given arguments, and the request's ID is another one in a list than in a call,
// so that what is seen would not be what can be called.
func unasked() []unaskedPath {
	return []unaskedPath{
		{[]string{"arguments"}, "allow never gets them: put the condition into call"},
		{[]string{"request", "id"}, "it differs between a list and a call: decide on something else"},
	}
}

type unaskedPath struct {
	path []string
	why  string
}

// examine holds the compiled policy to what no compiler checks: what allow reads.
// A read that is proven is refused, or a warning where the operator says so; one
// that is only possible is a warning, as are the habits that Lint knows of.
func examine(c *ast.Compiler, r *reads.Reads, check string) (refused, warnings Problems) {
	for _, u := range unasked() {
		chain, proven, possible := r.Reaches(u.path...)
		switch {
		case proven && check != CheckWarn:
			refused = append(refused, readProblem(chain, "allow reads input."+strings.Join(u.path, ".")+": "+u.why))
		case proven:
			warnings = append(warnings, readProblem(chain, "allow reads input."+strings.Join(u.path, ".")+": "+u.why))
		case possible:
			warnings = append(warnings, readProblem(chain, "allow may read input."+strings.Join(u.path, ".")+
				", since it looks at more of the input than can be followed: name what it needs, such as input.tool.attributes"))
		}
	}
	if !trusted(r) {
		warnings = append(warnings, Problem{Message: "allow looks at nothing that the registry says of a tool: " +
			"one that is not registered, or in quarantine, is as good as any other; ask for input.tool.registered"})
	}
	for _, f := range reads.Lint(c) {
		warnings = append(warnings, Problem{f.File, f.Line, f.Message})
	}
	return refused, warnings
}

// trusted reports whether allow may depend on anything that the registry says of
// a tool, all of which is gone with a quarantine.
func trusted(r *reads.Reads) bool {
	return slices.ContainsFunc(registryFacts(), func(fact string) bool {
		_, proven, possible := r.Reaches("tool", fact)
		return proven || possible
	})
}

func registryFacts() []string {
	return []string{"registered", "quarantined", "attributes", "effect", "data", "reach", "env", "owner", "labels"}
}

// readProblem is at the read, with the rules that lead there.
func readProblem(chain []reads.Step, message string) Problem {
	if len(chain) == 0 {
		return Problem{Message: message}
	}
	last := chain[len(chain)-1]
	if len(chain) > 1 {
		names := make([]string, len(chain))
		for i, s := range chain {
			names[i] = fmt.Sprintf("%s (%s:%d)", s.Rule, s.File, s.Line)
		}
		message += "; the way there is " + strings.Join(names, " > ")
	}
	return Problem{last.File, last.Line, message}
}
