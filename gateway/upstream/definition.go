package upstream

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/registry"
)

// Definition is one tool, prompt, resource or resource template as its server
// defines it. Nothing in it is to be trusted. It is immutable.
type Definition struct {
	// Name identifies it among the server's own of its kind: the name of a
	// tool or a prompt, which keeps to the name rules, the uri of a resource,
	// the uriTemplate of a template.
	Name string
	// Raw is the whole object, byte for byte as the server sent it.
	Raw jsontext.Value
	// SHA256 is the Digest of a tool. That of anything else is made in the
	// same way of all members but _meta and icons.
	SHA256 string
	// Annotations is the value of annotations in Raw, or nil where it is no
	// object.
	Annotations jsontext.Value
	// ShownName and MIMEType are the values of name and mimeType of a
	// resource or a template; "" where they are no strings, and of anything
	// else.
	ShownName, MIMEType string

	headers mcp.ParamHeaders // arguments that a modern HTTP server wants as headers
	pattern *regexp.Regexp   // of a template
}

// Digest returns the digest that pins a definition: SHA-256, in lower-case
// hex, of the canonical form of an object that holds those of the members
//
//	annotations, description, inputSchema, name, outputSchema, title
//
// which the definition has, with their values, and of members whose names differ
// from these only in case, which some clients take for them. Anything else, such as
// icons, _meta or execution, can change without changing the digest.
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
func Digest(definition jsontext.Value) (string, error) { return digest(definition, pinned) }

// Canonical returns the canonical form whose SHA-256 is the Digest, under the same
// terms: what is kept of a definition when it is approved.
func Canonical(definition jsontext.Value) (jsontext.Value, error) {
	return canonical(definition, pinned)
}

func pinned(member string) bool {
	for _, name := range [...]string{"annotations", "description", "inputSchema", "name", "outputSchema", "title"} {
		if strings.EqualFold(name, member) {
			return true
		}
	}
	return false
}

// digestWhole is the digest of a prompt, a resource or a resource template:
// Digest, but of every member save _meta and icons. No list of what counts
// would hold what later revisions add.
func digestWhole(definition jsontext.Value) (string, error) {
	return digest(definition, func(member string) bool { return member != "_meta" && member != "icons" })
}

func digest(definition jsontext.Value, counts func(member string) bool) (string, error) {
	form, err := canonical(definition, counts)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(form)
	return hex.EncodeToString(sum[:]), nil
}

func canonical(definition jsontext.Value, counts func(member string) bool) (jsontext.Value, error) {
	whole := definition.Clone()
	err := whole.Canonicalize(jsontext.AllowInvalidUTF8(true), // lone surrogates
		jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
	if err != nil {
		return nil, fmt.Errorf("bring a definition into canonical form: %w", err)
	}
	members, err := mcp.Split(whole)
	if err != nil {
		return nil, fmt.Errorf("read a definition: %w", err)
	}
	form := []byte{'{'}
	for _, m := range members { // sorted by now
		if counts(m.Name) {
			if len(form) > 1 {
				form = append(form, ',')
			}
			form = append(mcp.AppendString(form, m.Name), ':')
			form = append(form, m.Value...)
		}
	}
	return append(form, '}'), nil
}

// definer reads one element of a list. The error says, safely for a log, why
// it is left out.
type definer func(raw jsontext.Value, members []mcp.Member) (Definition, error)

// defineTool makes the definer of tools. http asks for the headers of the
// modern HTTP transport to be worked out, and their rules to be kept.
func defineTool(server string, http bool) definer {
	return func(raw jsontext.Value, members []mcp.Member) (Definition, error) {
		d, err := named(server, raw, members)
		if err != nil {
			return d, err
		}
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
}

func definePrompt(server string) definer {
	return func(raw jsontext.Value, members []mcp.Member) (Definition, error) {
		d, err := named(server, raw, members)
		if err != nil {
			return d, err
		}
		d.SHA256, err = digestWhole(raw)
		return d, err
	}
}

// named reads what tools and prompts have in common. A name must be one by
// itself and together with its server's.
func named(server string, raw jsontext.Value, members []mcp.Member) (Definition, error) {
	name, ok := mcp.Text(mcp.Get(members, "name"))
	if !ok {
		return Definition{}, errors.New("its definition has no name")
	}
	if _, ok := registry.Exposed(server, name); !ok {
		return Definition{}, errors.New("its name breaks the rules for names")
	}
	return Definition{Name: name, Raw: raw, Annotations: object(mcp.Get(members, "annotations"))}, nil
}

// longestURI bounds, in bytes, a URI or a template of them.
const longestURI = 2048

func defineResource(raw jsontext.Value, members []mcp.Member) (Definition, error) {
	uri, ok := mcp.Text(mcp.Get(members, "uri"))
	switch {
	case !ok:
		return Definition{}, errors.New("its definition has no uri")
	case len(uri) > longestURI:
		return Definition{}, fmt.Errorf("its uri is longer than %d bytes", longestURI)
	}
	if u, err := url.Parse(uri); err != nil || u.Scheme == "" {
		return Definition{}, errors.New("its uri is not an absolute one")
	}
	return located(uri, raw, members)
}

func defineTemplate(raw jsontext.Value, members []mcp.Member) (Definition, error) {
	text, ok := mcp.Text(mcp.Get(members, "uriTemplate"))
	if !ok || text == "" {
		return Definition{}, errors.New("its definition has no uriTemplate")
	}
	pattern, err := compile(text)
	if err != nil {
		return Definition{}, fmt.Errorf("its uriTemplate %w", err)
	}
	d, err := located(text, raw, members)
	d.pattern = pattern
	return d, err
}

// located reads what resources and templates have in common.
func located(name string, raw jsontext.Value, members []mcp.Member) (d Definition, err error) {
	d = Definition{Name: name, Raw: raw, Annotations: object(mcp.Get(members, "annotations"))}
	d.ShownName, _ = mcp.Text(mcp.Get(members, "name"))
	d.MIMEType, _ = mcp.Text(mcp.Get(members, "mimeType"))
	d.SHA256, err = digestWhole(raw)
	return d, err
}

// quoted returns a member of a definition for a log, whatever it is.
func quoted(raw jsontext.Value, member string) string {
	members, err := mcp.Split(raw)
	if err != nil {
		return "?"
	}
	name, ok := mcp.Text(mcp.Get(members, member))
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
