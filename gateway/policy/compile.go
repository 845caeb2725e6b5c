package policy

import (
	"context"
	_ "embed" // the schema
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
)

//go:embed schema/input.json
var schema string

// Schema is the JSON Schema of the policy input, for `opa check --schema` and
// for editors.
func Schema() string { return schema }

// maxCompileErrors is how many errors of one compilation are told. Most of
// those after the first few follow from these.
const maxCompileErrors = 20

// offBuiltins are the built-in functions that a policy may call only where the
// operator says so. The first three reach the network or the process's
// environment. The last two answer differently each time, so that a list and a
// call could disagree.
func offBuiltins() []string {
	return []string{"http.send", "net.lookup_ip_addr", "opa.runtime", "rand.intn", "uuid.rfc4122"}
}

// capabilities are what policies may use: everything of this OPA but the
// built-ins that are off. With the network off, no built-in fetches remote JSON
// schemas either.
func capabilities(insecure []string) (*ast.Capabilities, error) {
	off := offBuiltins()
	for _, name := range insecure {
		if !slices.Contains(off, name) {
			return nil, fmt.Errorf("insecure_builtins: %q is not off; names that can stand here are %s",
				name, strings.Join(off, ", "))
		}
	}
	caps := ast.CapabilitiesForThisVersion(ast.CapabilitiesRegoVersion(ast.RegoV1))
	caps.Builtins = slices.DeleteFunc(slices.Clone(caps.Builtins), func(b *ast.Builtin) bool {
		return slices.Contains(off, b.Name) && !slices.Contains(insecure, b.Name)
	})
	if !slices.Contains(insecure, "http.send") {
		caps.AllowNet = []string{}
	}
	return caps, nil
}

// forgivenBuiltins are those whose failure OPA's rule index hides: it looks up
// which rules can match instead of calling them, and takes a value of a wrong
// type for one that does not match. `not` of that allows, where the call itself
// would have failed and denied. Policies that call them go without the index.
func forgivenBuiltins() []string {
	return []string{"endswith", "glob.match", "startswith", "strings.any_prefix_match", "strings.any_suffix_match"}
}

// program is a compiled policy with its data, private to one snapshot.
type program struct {
	compiler *ast.Compiler
	store    storage.Store
	txn      storage.Transaction // a read transaction that stays open
	hasCall  bool
	indexed  bool     // whether evaluation may use OPA's rule index
	masks    *program // of the decision log; nil without
}

// entry is the reference of a rule of the entry package.
func entry(rule string) ast.Ref { return ast.MustParseRef("data.mcp.authz." + rule) }

// compile builds the program. Its problems are complete enough to mend
// everything of one stage at once.
func compile(c *content, caps *ast.Capabilities, prints bool) (*program, Problems) {
	modules, problems := parseModules(c, caps)
	if len(problems) > 0 {
		return nil, problems
	}
	p := &program{store: inmem.NewFromASTObject(c.data)}
	// Neither call fails or waits: the store is in memory and private.
	ctx := context.Background()
	txn, err := p.store.NewTransaction(ctx)
	if err != nil {
		return nil, Problems{{File: c.origin, Message: oneLine(err.Error())}}
	}
	p.txn = txn
	if problems := p.compileMasks(modules, caps); len(problems) > 0 {
		return nil, problems
	}
	p.compiler = ast.NewCompiler().
		SetErrorLimit(maxCompileErrors).
		WithCapabilities(caps).
		WithDefaultRegoVersion(ast.RegoV1).
		WithStrict(true).
		WithSchemas(schemas()).
		WithUseTypeCheckAnnotations(true).
		WithEnablePrintStatements(prints).
		WithPathConflictsCheck(storage.NonEmpty(ctx, p.store, txn))
	if p.compiler.Compile(modules); p.compiler.Failed() {
		return nil, explainOff(opaProblems(c.origin, p.compiler.Errors))
	}
	if problems := checkEntry(c.origin, p.compiler); len(problems) > 0 {
		return nil, problems
	}
	p.hasCall = defined(p.compiler, entry("call"))
	p.indexed = indexable(p.compiler)
	return p, nil
}

// schemas gives the input's schema to the type checker, and to annotations
// under the name that `opa check --schema DIR` would give it.
func schemas() *ast.SchemaSet {
	var raw any
	if err := json.Unmarshal([]byte(schema), &raw); err != nil {
		panic("the embedded schema is not JSON: " + err.Error())
	}
	set := ast.NewSchemaSet()
	set.Put(ast.SchemaRootRef, raw)
	set.Put(ast.MustParseRef("schema.input"), raw)
	return set
}

func parseModules(c *content, caps *ast.Capabilities) (map[string]*ast.Module, Problems) {
	modules := make(map[string]*ast.Module, len(c.modules))
	var problems Problems
	options := ast.ParserOptions{RegoVersion: ast.RegoV1, Capabilities: caps, ProcessAnnotation: true}
	for _, f := range c.modules {
		shown := f.name
		if !utf8.Valid(f.data) {
			problems = append(problems, Problem{File: shown, Message: "not UTF-8: save it in that encoding"})
			continue
		}
		m, err := ast.ParseModuleWithOpts(shown, string(f.data), options)
		if err != nil {
			problems = append(problems, opaProblems(shown, err)...)
			continue
		}
		if path := m.Package.Path; !ours(path) {
			problems = append(problems, Problem{shown, m.Package.Location.Row, fmt.Sprintf(
				"package %s lies outside mcp and system.log: rename it to mcp.something", strings.TrimPrefix(path.String(), "data."))})
		}
		modules[shown] = m
	}
	return modules, problems
}

func ours(path ast.Ref) bool {
	return path.HasPrefix(ast.MustParseRef("data.mcp")) || path.HasPrefix(ast.MustParseRef("data.system.log"))
}

// explainOff says why a built-in function that OPA documents is not there.
func explainOff(problems Problems) Problems {
	for i, p := range problems {
		name, ok := strings.CutPrefix(p.Message, "undefined function ")
		if ok && slices.Contains(offBuiltins(), name) {
			problems[i].Message = name + " is off: do without it, or name it in insecure_builtins"
		}
	}
	return problems
}

// checkEntry holds the entry package to its contract: allow exists, what
// decides is one value, not a set, an object or a function, and problems is not
// a function, which would have no value to ask for.
func checkEntry(origin string, c *ast.Compiler) Problems {
	if len(c.GetRulesExact(entry("allow"))) == 0 {
		return Problems{{File: origin, Message: "no rule allow in package mcp.authz: without it nothing could ever be allowed"}}
	}
	var problems Problems
	for _, name := range []string{"allow", "call"} {
		for _, rule := range c.GetRulesExact(entry(name)) {
			kind := ""
			switch {
			case len(rule.Head.Args) > 0:
				kind = "a function"
			case rule.Head.RuleKind() == ast.MultiValue:
				kind = "a set"
			case !rule.Ref().Equal(entry(name)):
				kind = "an object"
			default:
				continue
			}
			problems = append(problems, Problem{rule.Location.File, rule.Location.Row,
				fmt.Sprintf("%s is %s: it must be a rule that is true or false", name, kind)})
		}
	}
	for _, rule := range c.GetRulesExact(entry("problems")) {
		if len(rule.Head.Args) > 0 {
			problems = append(problems, Problem{rule.Location.File, rule.Location.Row,
				"problems is a function: it must be a set or an array of strings"})
		}
	}
	return problems
}

// defined reports whether any rule could give ref a value: one of that name,
// one below it, or one whose name is only known when it is evaluated.
func defined(c *ast.Compiler, ref ast.Ref) bool {
	return len(c.GetRulesDynamicWithOpts(ref, ast.RulesOptions{IncludeHiddenModules: true})) > 0
}
