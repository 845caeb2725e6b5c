package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Problem is one thing that keeps a policy from being used.
type Problem struct {
	File    string // as the operator would name it; "" when no file is to blame
	Line    int    // starts at 1; 0 when no line is to blame
	Message string // what is wrong and how to mend it, one line
}

func (p Problem) String() string {
	switch {
	case p.File == "":
		return p.Message
	case p.Line == 0:
		return p.File + ": " + p.Message
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Message)
}

// Problems is an error that holds at least one problem, one a line.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// opaProblems turns what OPA's parser or compiler says into problems. file is
// named where OPA names none.
func opaProblems(file string, err error) Problems {
	var several ast.Errors
	var one *ast.Error
	switch {
	case errors.As(err, &several):
	case errors.As(err, &one):
		several = ast.Errors{one}
	default:
		return Problems{{File: file, Message: oneLine(err.Error())}}
	}
	problems := make(Problems, 0, len(several))
	for _, e := range several {
		p := Problem{File: file, Message: oneLine(e.Message + hint(e.Details))}
		if e.Location != nil {
			p.Line = e.Location.Row
			if e.Location.File != "" {
				p.File = e.Location.File
			}
		}
		problems = append(problems, p)
	}
	return problems
}

// hint says what would be right there, as far as OPA knows.
func hint(details ast.ErrorDetails) string {
	switch d := details.(type) {
	case *ast.RefErrInvalidDetail:
		if len(d.OneOf) == 0 || d.Pos >= len(d.Ref) {
			return ""
		}
		names := make([]string, len(d.OneOf))
		for i, v := range d.OneOf {
			names[i] = strings.Trim(v.String(), `"`)
		}
		return fmt.Sprintf("; %s has %s", d.Ref[:d.Pos], strings.Join(names, ", "))
	case *ast.ArgErrDetail, *ast.UnificationErrDetail:
		return "; " + strings.Join(d.Lines(), ", ")
	}
	return ""
}

// oneLine joins the lines and squeezes white space, so that no problem breaks
// out of its line in a log.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// maxOwnProblems is how many problems a policy can tell of itself. Whoever has
// mended these is told the next.
const maxOwnProblems = 20

// ownProblems asks the policy what is wrong with itself and its data: its rule
// problems, a set or an array of strings, which is optional. There is no input
// to go by. What cannot be answered with such strings is a problem as well.
func (p *program) ownProblems(deadline time.Duration, prefix string, log *slog.Logger) Problems {
	ref := entry("problems")
	if !defined(p.compiler, ref) {
		return nil
	}
	q, err := p.prepare(ref.String(), log)
	if err != nil {
		return opaProblems(prefix, err)
	}
	answer, err := p.eval(context.Background(), deadline, q, ast.NewObject())
	switch {
	case err != nil:
		return Problems{{File: prefix, Message: "problems cannot be evaluated: " + err.Error()}}
	case answer == nil:
		return nil
	}
	all, ok := members(answer)
	if !ok {
		return Problems{{File: prefix, Message: fmt.Sprintf(
			"problems is of type %s: it must be a set or an array of strings", ast.ValueName(answer.Value))}}
	}
	var problems Problems
	for i, t := range all {
		if i == maxOwnProblems {
			return append(problems, Problem{File: prefix, Message: fmt.Sprintf("%d more problems", len(all)-i)})
		}
		problems = append(problems, Problem{File: prefix, Message: ownMessage(t)})
	}
	return problems
}

func ownMessage(t *ast.Term) string {
	text, ok := t.Value.(ast.String)
	if !ok {
		return fmt.Sprintf("problems holds a value of type %s: it must hold strings", ast.ValueName(t.Value))
	}
	message := shorten(oneLine(string(text)), maxProblem)
	if message == "" {
		return "problems holds an empty string: say what is wrong and how to mend it"
	}
	return message
}

// maxProblem bounds a problem that a policy tells of itself.
const maxProblem = 512
