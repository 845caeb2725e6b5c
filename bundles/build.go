// Package bundles makes OPA bundles of policy directories, signs and verifies
// them, and says what is in them. A bundle holds the policy as it is written:
// nothing is optimised or evaluated in advance, which can turn a no into a yes.
// Plain OPA reads and verifies what it makes, and the other way round.
package bundles

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/bundle"

	"github.com/regogate/regogate/bundles/keys"
	"github.com/regogate/regogate/gateway/policy"
)

// Options say how to build.
type Options struct {
	Revision string    // "" is the digest of the content
	Roots    []string  // nil is mcp, and system/log where the policy has something there
	Key      *keys.Key // nil leaves the bundle unsigned
	Claims   Claims
}

// Built is a bundle with what its manifest says.
type Built struct {
	Bytes    []byte
	Revision string
	Roots    []string
}

// Build makes a bundle of the modules and data in a directory, the files that a
// gateway would read there. Whether a gateway would use them is for the caller to
// check. The same files and options give the same bytes, wherever the directory
// is; a signature may hold chance, as those of PS256 and ES256 do. An error is
// policy.Problems where the files are to blame.
func Build(dir string, o Options) (*Built, error) {
	files, problems := policy.ReadFiles(dir)
	if len(problems) > 0 {
		return nil, problems
	}
	if len(files.Modules) == 0 {
		return nil, policy.Problems{{File: dir, Message: "no .rego file: there is nothing to make a bundle of"}}
	}
	data, ok := files.Data.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s: the data is no object", dir)
	}
	b := &bundle.Bundle{Data: data}
	packages := map[string]bool{}
	for _, m := range files.Modules {
		parsed, err := ast.ParseModuleWithOpts(m.Name, string(m.Raw), ast.ParserOptions{RegoVersion: ast.RegoV1})
		if err != nil {
			return nil, fmt.Errorf("%s: %s", dir, oneLine(err))
		}
		packages[place(parsed)] = true
		path := "/" + m.Name
		b.Modules = append(b.Modules, bundle.ModuleFile{URL: path, Path: path, Raw: m.Raw, Parsed: parsed})
	}
	b.Manifest.Revision = o.Revision
	if o.Revision == "" {
		b.Manifest.Revision = files.Revision
	}
	roots := o.Roots
	if roots == nil {
		roots = rootsOf(packages, data)
	}
	b.Manifest.Roots = &roots
	b.Manifest.SetRegoVersion(ast.RegoV1)
	if entries := entrypoints(b); len(entries) > 0 {
		b.Manifest.Metadata = map[string]any{"entrypoints": entries}
	}
	var out bytes.Buffer
	if err := bundle.NewWriter(&out).UseModulePath(true).DisableFormat(true).Write(*b); err != nil {
		return nil, fmt.Errorf("build a bundle of %s: %s", dir, oneLine(err))
	}
	built := &Built{Bytes: out.Bytes(), Revision: b.Manifest.Revision, Roots: roots}
	if err := built.finish(o); err != nil {
		return nil, fmt.Errorf("build a bundle of %s: %w", dir, err)
	}
	return built, nil
}

// finish holds the bundle to what its readers will, and signs it where there is a
// key.
func (b *Built) finish(o Options) (err error) {
	if _, err = unpack(b.Bytes, time.Time{}); err != nil {
		return err
	}
	back, err := read(b.Bytes, nil)
	if err != nil {
		return fmt.Errorf("%w: name roots that hold every package and all data, none within another", err)
	}
	b.Roots = *back.Manifest.Roots
	if o.Key != nil {
		b.Bytes, err = Sign(b.Bytes, o.Key, o.Claims)
	}
	return err
}

// place is the path of a module's package, as roots are written.
func place(m *ast.Module) string {
	path, err := m.Package.Path.Ptr()
	if err != nil {
		return ""
	}
	return path
}

// rootsOf keeps a bundle to what it has: another may bring the masks.
func rootsOf(packages map[string]bool, data map[string]any) []string {
	roots := []string{"mcp"}
	system, _ := data["system"].(map[string]any)
	logs := system["log"] != nil
	for p := range packages {
		logs = logs || p == "system/log" || strings.HasPrefix(p, "system/log/")
	}
	if logs {
		roots = append(roots, "system/log")
	}
	return roots
}

// entrypoints are the rules of the entry package that a gateway asks for.
func entrypoints(b *bundle.Bundle) []string {
	found := map[string]bool{}
	for _, m := range b.Modules {
		if place(m.Parsed) != "mcp/authz" {
			continue
		}
		for _, rule := range m.Parsed.Rules {
			name := rule.Head.Name.String()
			if ref := rule.Head.Ref(); len(ref) > 0 {
				name = ref[0].Value.String()
			}
			if slices.Contains([]string{"allow", "call", "reasons", "scopes", "problems"}, name) {
				found["mcp/authz/"+name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}
