package policy

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

var update = flag.Bool("update", false, "write schema/input.json anew")

const schemaFile = "schema/input.json"

// TestSchema holds the schema to the structs: it is what the structs say.
func TestSchema(t *testing.T) {
	g := generator{t, comments(t)}
	root := g.object(reflect.TypeFor[input]())
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	root["title"] = "Input of package mcp.authz"
	var want bytes.Buffer
	enc := json.NewEncoder(&want)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(root); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(schemaFile, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if Schema() != want.String() {
		t.Errorf("%s is not what input.go says: run go test -run TestSchema -update . in gateway/policy", schemaFile)
	}
}

type generator struct {
	t        *testing.T
	comments map[string]string // by "Type.Field" and by constant
}

// kinds is the constant and the struct of each kind of thing.
func everyKind() map[Kind]kind {
	return map[Kind]kind{
		KindTool:     {"KindTool", reflect.TypeFor[Tool]()},
		KindResource: {"KindResource", reflect.TypeFor[Resource]()},
		KindPrompt:   {"KindPrompt", reflect.TypeFor[Prompt]()},
		KindServer:   {"KindServer", reflect.TypeFor[Server]()},
	}
}

type kind struct {
	constant string
	thing    reflect.Type
}

// object describes a struct. What has no omitzero is always there.
func (g generator) object(typ reflect.Type) map[string]any {
	properties := map[string]any{}
	required := []string{}
	var oneOf []any
	for _, f := range reflect.VisibleFields(typ) {
		switch {
		case f.Anonymous:
			continue
		case f.Type == reflect.TypeFor[*Item]():
			oneOf = g.things(properties)
			continue
		}
		owner := typ
		if len(f.Index) > 1 {
			owner = typ.Field(f.Index[0]).Type
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		comment := g.comments[owner.Name()+"."+f.Name]
		if name == "" || comment == "" {
			g.t.Fatalf("%s.%s lacks a JSON name or a comment", owner.Name(), f.Name)
		}
		property := g.value(f.Type)
		property["description"] = comment
		properties[name] = property
		if options != "omitzero" {
			required = append(required, name)
		}
	}
	object := map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		object["required"] = required
	}
	if oneOf != nil {
		object["oneOf"] = oneOf
	}
	return object
}

// things adds a property for each kind, and returns that exactly one of them is
// there.
func (g generator) things(properties map[string]any) (oneOf []any) {
	all := everyKind()
	for _, key := range slices.Sorted(maps.Keys(all)) {
		kind := all[key]
		property := g.object(kind.thing)
		property["description"] = g.comments[kind.constant]
		if property["description"] == "" {
			g.t.Fatalf("%s lacks a comment", kind.constant)
		}
		properties[string(key)] = property
		oneOf = append(oneOf, map[string]any{"required": []string{string(key)}})
	}
	return oneOf
}

func (g generator) value(typ reflect.Type) map[string]any {
	switch typ {
	case reflect.TypeFor[*Subject](), reflect.TypeFor[jsontext.Value]():
		return map[string]any{"type": "object", "additionalProperties": true}
	}
	switch typ.Kind() {
	case reflect.Struct:
		return g.object(typ)
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": g.value(typ.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": g.value(typ.Elem())}
	}
	g.t.Fatalf("the generator does not know %s", typ)
	return nil
}

// comments reads what input.go says of its structs' fields and of its constants.
func comments(t *testing.T) map[string]string {
	f, err := parser.ParseFile(token.NewFileSet(), "input.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for _, name := range n.Names {
				out[name.Name] = oneLine(n.Doc.Text())
			}
		case *ast.TypeSpec:
			s, ok := n.Type.(*ast.StructType)
			if !ok {
				return false
			}
			for _, field := range s.Fields.List {
				for _, name := range field.Names {
					out[n.Name.Name+"."+name.Name] = oneLine(field.Doc.Text())
				}
			}
		}
		return true
	})
	return out
}
