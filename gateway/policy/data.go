package policy

import (
	"bytes"
	"errors"
	"io"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/util"
	"go.yaml.in/yaml/v3"
)

// readData merges the data files, each under the path of its directory, as opa
// does.
func readData(t *tree) (ast.Object, Problems) {
	root := ast.NewObject()
	var problems Problems
	for _, f := range t.files {
		if !isDatum(path.Base(f.name)) {
			continue
		}
		shown := t.shown(f.name)
		value, p := readDatum(f)
		if p == nil {
			p = checkData(value)
		}
		if p == nil {
			merged, conflict := merge(root, value, "data")
			if conflict == "" {
				root = merged
				continue
			}
			p = &Problem{Message: conflict + " is given by another file already: keep it in one"}
		}
		p.File = shown
		problems = append(problems, *p)
	}
	return root, problems
}

// readDatum returns the file's value wrapped into the names of its directories.
func readDatum(f file) (ast.Object, *Problem) {
	var t *ast.Term
	var p *Problem
	if strings.HasSuffix(f.name, ".json") {
		t, p = readJSON(f.data)
	} else {
		t, p = readYAML(f.data)
	}
	if p != nil {
		return nil, p
	}
	if dir := path.Dir(f.name); dir != "." {
		names := strings.Split(dir, "/")
		for i := len(names) - 1; i >= 0; i-- {
			t = ast.ObjectTerm(ast.Item(ast.StringTerm(names[i]), t))
		}
	}
	root, ok := t.Value.(ast.Object)
	if !ok {
		return nil, &Problem{Message: "the data must be an object, not " + ast.ValueName(t.Value)}
	}
	return root, nil
}

func readJSON(data []byte) (*ast.Term, *Problem) {
	t, err := parse(data)
	if err == nil {
		return t, nil
	}
	var syntax *jsontext.SyntacticError
	switch {
	case !errors.As(err, &syntax):
		return nil, &Problem{Message: err.Error()}
	case errors.Is(err, jsontext.ErrDuplicateName):
		return nil, &Problem{Line: lineAt(data, syntax.ByteOffset), Message: "duplicate member name in JSON: " + string(syntax.JSONPointer)}
	}
	return nil, &Problem{Line: lineAt(data, syntax.ByteOffset), Message: "not valid JSON: " + oneLine(syntax.Err.Error())}
}

// yamlLine finds where the YAML decoder puts the line number.
var yamlLine = regexp.MustCompile(`line (\d+): (.*)`)

func readYAML(data []byte) (*ast.Term, *Problem) {
	// OPA's reader takes the last of several equal keys; this one refuses them,
	// and it knows the line.
	var strict any
	dec := yaml.NewDecoder(bytes.NewReader(data))
	err := dec.Decode(&strict)
	if err == nil && !errors.Is(dec.Decode(&strict), io.EOF) {
		err = errors.New("more than one document in the file")
	}
	if err != nil {
		p := &Problem{Message: "not valid YAML: " + oneLine(err.Error())}
		if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
			p.Line, _ = strconv.Atoi(m[1])
			p.Message = "not valid YAML: " + oneLine(m[2])
		}
		return nil, p
	}
	var value any
	if err := util.Unmarshal(data, &value); err != nil {
		return nil, &Problem{Message: "not valid YAML: " + oneLine(err.Error())}
	}
	v, err := ast.InterfaceToValue(value)
	if err != nil {
		return nil, &Problem{Message: oneLine(err.Error())}
	}
	return ast.NewTerm(v), nil
}

// checkData keeps data under mcp and system.log, and out of the entry package,
// where it would answer in place of a rule.
func checkData(root ast.Object) *Problem {
	for _, key := range root.Keys() {
		name := keyName(key)
		if name != "mcp" && name != "system" {
			return &Problem{Message: "data." + name + " lies outside mcp and system.log: move it to mcp." + name}
		}
		below, ok := root.Get(key).Value.(ast.Object)
		if !ok {
			return &Problem{Message: "data." + name + " must be an object"}
		}
		for _, key := range below.Keys() {
			switch under := keyName(key); {
			case name == "mcp" && under == "authz":
				return &Problem{Message: "data.mcp.authz is for rules, and data there would stand in for them: move it, such as to mcp.grants"}
			case name == "system" && under != "log":
				return &Problem{Message: "data.system." + under + " lies outside mcp and system.log: move it to mcp." + under}
			}
		}
	}
	return nil
}

// merge returns a and b as one object and leaves both as they are. Where both
// give a value and these are not both objects, it returns the path below at.
func merge(a, b ast.Object, at string) (merged ast.Object, conflict string) {
	var items [][2]*ast.Term
	for _, key := range a.Keys() {
		value, other := a.Get(key), b.Get(key)
		if other != nil {
			below := at + "." + keyName(key)
			x, xok := value.Value.(ast.Object)
			y, yok := other.Value.(ast.Object)
			if !xok || !yok {
				return nil, below
			}
			inner, conflict := merge(x, y, below)
			if conflict != "" {
				return nil, conflict
			}
			value = ast.NewTerm(inner)
		}
		items = append(items, ast.Item(key, value))
	}
	for _, key := range b.Keys() {
		if a.Get(key) == nil {
			items = append(items, ast.Item(key, b.Get(key)))
		}
	}
	return ast.NewObject(items...), ""
}

func keyName(key *ast.Term) string {
	if s, ok := key.Value.(ast.String); ok {
		return string(s)
	}
	return key.String()
}
