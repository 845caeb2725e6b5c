package upstream

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// Definition is one tool as its server defines it. Nothing in it is to be
// trusted. It is immutable.
type Definition struct {
	Name string // the server's own name of the tool; keeps to the name rules
	// Raw is the whole object, byte for byte as the server sent it.
	Raw    jsontext.Value
	SHA256 string // Digest of Raw
	// Annotations is the value of annotations in Raw, or nil where it is no
	// object.
	Annotations jsontext.Value

	headers mcp.ParamHeaders // arguments that a modern HTTP server wants as headers
}

// Digest returns the digest that pins a definition: SHA-256, in lower-case
// hex, of the canonical form of an object that holds those of the members
//
//	annotations, description, inputSchema, name, outputSchema, title
//
// which the definition has, with their values. Anything else, such as icons,
// _meta or execution, can change without changing the digest.
//
// The canonical form is that of RFC 8785 (no white space, members sorted by
// the UTF-16 code units of their names at every depth, strings with the fewest
// escapes), save that a number stays the literal that the server wrote: RFC
// 8785 rounds to a double, which would give 9007199254740992 and …993 the same
// digest. A lone surrogate counts as U+FFFD. The order of array elements
// counts.
//
// definition is one object of a tools/list result as the server sent it. The
// error says that it is not a JSON object without duplicate names.
func Digest(definition jsontext.Value) (string, error) {
	canonical := definition.Clone()
	err := canonical.Canonicalize(jsontext.AllowInvalidUTF8(true), // lone surrogates
		jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
	if err != nil {
		return "", fmt.Errorf("bring the definition of a tool into canonical form: %w", err)
	}
	members, err := mcp.Split(canonical)
	if err != nil {
		return "", fmt.Errorf("read the definition of a tool: %w", err)
	}
	pinned := []byte{'{'}
	for _, m := range members { // sorted by now
		switch m.Name {
		case "annotations", "description", "inputSchema", "name", "outputSchema", "title":
			if len(pinned) > 1 {
				pinned = append(pinned, ',')
			}
			pinned = append(mcp.AppendString(pinned, m.Name), ':')
			pinned = append(pinned, m.Value...)
		}
	}
	sum := sha256.Sum256(append(pinned, '}'))
	return hex.EncodeToString(sum[:]), nil
}

// define reads one element of a parsed tools/list result. The error says,
// safely for a log, why the tool is left out. http asks for the headers of the
// modern HTTP transport to be worked out, and their rules to be kept.
func define(raw jsontext.Value, valid func(name string) bool, http bool) (Definition, error) {
	members, err := mcp.Split(raw)
	if err != nil {
		return Definition{}, errors.New("its definition is not an object")
	}
	name, ok := mcp.Text(mcp.Get(members, "name"))
	if !ok {
		return Definition{}, errors.New("its definition has no name")
	}
	if !valid(name) {
		return Definition{}, errors.New("its name breaks the rules for names")
	}
	d := Definition{Name: name, Raw: raw, Annotations: object(mcp.Get(members, "annotations"))}
	schema := object(mcp.Get(members, "inputSchema"))
	if schema == nil {
		return d, errors.New("its inputSchema is not an object")
	}
	if http {
		if d.headers, err = mcp.ReadParamHeaders(schema); err != nil {
			return d, fmt.Errorf("its inputSchema: %w", err)
		}
	}
	d.SHA256, err = Digest(raw)
	return d, err
}

// nameOf returns the name in a definition for a log, whatever it is.
func nameOf(raw jsontext.Value) string {
	members, err := mcp.Split(raw)
	if err != nil {
		return "?"
	}
	name, ok := mcp.Text(mcp.Get(members, "name"))
	if !ok {
		return "?"
	}
	return quote(name)
}

// quote writes a name with every code point outside of printable ASCII
// escaped, so that look-alikes show, and cut where it is very long.
func quote(name string) string {
	const most = 160
	if len(name) > most {
		return strconv.QuoteToASCII(name[:most]) + "…"
	}
	return strconv.QuoteToASCII(name)
}
