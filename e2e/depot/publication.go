package depot

import (
	"time"

	"github.com/regogate/regogate/registry/strictyaml"
)

// Publication is what a depot gives under one name: what is in the bundle, and
// how it is sent. The zero value is a signed-by-nobody bundle without a module
// that claims the root mcp. It can be written in YAML, which is how cases do it.
type Publication struct {
	Revision    string            `yaml:"revision"`
	Roots       []string          `yaml:"roots"`        // [mcp] where nil
	RegoVersion *int              `yaml:"rego_version"` // of the manifest; left out where nil
	Manifest    string            `yaml:"manifest"`     // the exact text instead; "none" leaves it out
	Files       map[string]string `yaml:"files"`        // by path in the bundle, without a leading slash
	Sign        *Signature        `yaml:"sign"`
	// What follows is in the archive, but in no signature.
	Entries []Entry             `yaml:"entries"`
	Many    int                 `yaml:"many"` // so many small files of data under mcp/many
	Bomb    strictyaml.ByteSize `yaml:"bomb"` // one file of so many zero bytes, a multiple of 16MiB; never held

	Raw  string `yaml:"raw"`  // the exact body instead of an archive
	Type string `yaml:"type"` // its Content-Type; what OPA wants where empty
	// ETag is the exact header, quotes and all; one made of the content where
	// empty, "none" for none, and "changing" for another one with each answer.
	ETag string `yaml:"etag"`
	// Fault is how sending goes wrong: see Faults.
	Fault string `yaml:"fault"`
}

// Entry is one entry of the archive as it is.
type Entry struct {
	Name string `yaml:"name"`
	Type string `yaml:"type"` // file (the default), dir, symlink, link or device
	To   string `yaml:"to"`   // of links
	Text string `yaml:"text"` // of a file
}

// Signature says how .signatures.json comes about.
type Signature struct {
	Key     string            `yaml:"key"`     // name of the depot's key, made when it is first named
	KeyID   string            `yaml:"keyid"`   // what the signature calls it; the name where empty, "none" leaves it out
	Alg     string            `yaml:"alg"`     // the header's alg; RS256 where empty. With none there is no signature
	Expires time.Duration     `yaml:"expires"` // from now, as the claim exp; none where 0
	Scope   string            `yaml:"scope"`
	Without []string          `yaml:"without"` // paths that the signature does not list
	Beside  []string          `yaml:"beside"`  // paths that it lists, and that are not in the bundle
	Change  map[string]string `yaml:"change"`  // files by path, changed after signing
	Add     map[string]string `yaml:"add"`     // files by path, added after signing
}

// Faults of sending.
const (
	Unmodified     = "unmodified"      // 304 to every request, whatever it knows
	UnmodifiedBody = "unmodified body" // the same, with a body
	Empty          = "empty"           // 200 and no byte
	Cut            = "cut"             // the first half of the archive, as if it were whole
	Short          = "short"           // the archive, after a Content-Length that promises more
	Drip           = "drip"            // a byte now and then, until something else is published
	Hang           = "hang"            // no answer, until something else is published
	Early          = "early"           // a long poll is answered at once
	Reset          = "reset"           // the connection is reset
	// "redirect URL" is a 307 to that URL; "status N" is an answer of nothing else.
)
