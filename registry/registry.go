// Package registry holds what we say of servers and of their tools: semantic
// attributes, owners, labels and pins, keyed by server and tool name. It never
// holds a command, a URL or a credential of a server, so that whoever can write
// a catalogue, a database or a cache cannot make the gateway run or reach
// anything.
package registry

import (
	"context"
	"errors"
	"time"
)

// Tool is what we say of one tool. Everything in it is trusted, unlike the
// definition that the backend gives. The yaml tags are the keys of a catalogue
// file, the json tags the canonical encoding, so that a new attribute is a new
// field here and, where its vocabulary is closed, a line in Tool.check.
type Tool struct {
	Server string `yaml:"-" json:"server"`
	Name   string `yaml:"-" json:"name"` // the backend's own name of the tool

	Description string            `yaml:"description" json:"description,omitempty"` // one sentence for people; never shown to agents
	Attributes  []string          `yaml:"attributes" json:"attributes,omitempty"`   // domains such as payments; sorted, no duplicates
	Effect      string            `yaml:"effect" json:"effect,omitempty"`           // read, write, destructive, admin, execute
	Data        string            `yaml:"data" json:"data,omitempty"`               // public, internal, personal, financial, secret
	Reach       string            `yaml:"reach" json:"reach,omitempty"`             // closed, external
	Env         string            `yaml:"env" json:"env,omitempty"`                 // where it acts, such as production
	Owner       string            `yaml:"owner" json:"owner,omitempty"`             // who answers for it
	Labels      map[string]string `yaml:"labels" json:"labels,omitempty"`           // anything else
	SHA256      string            `yaml:"sha256" json:"sha256,omitempty"`           // pinned digest of the definition, lower-case hex; "" is not pinned
	Suggested   bool              `yaml:"suggested" json:"suggested,omitzero"`      // attributes are a guess nobody confirmed; such a tool counts as not registered
}

// Server is what we say of one server itself: of what it says about itself, of
// its resources and of its prompts, which have no entries of their own. A server
// that is listed without facets has an entry with none. Everything in it is
// trusted. The yaml tags are the keys of a catalogue file, where all of them but
// description are what its tools say unless they say it themselves; the json
// tags are the canonical encoding.
type Server struct {
	Name string `yaml:"-" json:"name"`

	Description string            `yaml:"description" json:"description,omitempty"` // one sentence for people; never shown to agents
	Attributes  []string          `yaml:"attributes" json:"attributes,omitempty"`   // domains; sorted, no duplicates
	Data        string            `yaml:"data" json:"data,omitempty"`               // the most sensitive that its resources and prompts show
	Reach       string            `yaml:"reach" json:"reach,omitempty"`             // closed, external
	Env         string            `yaml:"env" json:"env,omitempty"`                 // where it acts, such as production
	Owner       string            `yaml:"owner" json:"owner,omitempty"`             // who answers for it
	Labels      map[string]string `yaml:"labels" json:"labels,omitempty"`           // anything else
}

// Quarantined is a tool, or a whole server, that is out of use for the time
// being. A quarantine takes away and never grants: what is in it counts as not
// registered. The yaml tags are the keys of a catalogue file, the json tags the
// canonical encoding.
type Quarantined struct {
	Server string    `yaml:"server" json:"server"`
	Tool   string    `yaml:"tool,omitempty" json:"tool,omitempty"`  // "" is the server with all that it offers
	Reason string    `yaml:"reason" json:"reason"`                  // for people; never shown to agents
	By     string    `yaml:"by,omitempty" json:"by,omitempty"`      // who put it there
	Since  time.Time `yaml:"since,omitempty" json:"since,omitzero"` // whole seconds, UTC
}

// Head names the state of a source: two heads are equal only when the
// catalogues are.
type Head struct {
	Revision string // for people and records; not empty
	Digest   string // SHA-256 of the canonical encoding of the catalogue, lower-case hex
}

// Catalogue is everything a source holds at one head. NewCatalogue makes it.
type Catalogue struct {
	Head       Head
	Servers    []Server      // sorted by name, no name occurs twice; those of tools may lack
	Tools      []Tool        // sorted by server, then name; no pair occurs twice
	Quarantine []Quarantined // sorted likewise
	// Signature is a JWS in compact form over Content; "" is not signed.
	Signature string
	// Content is the digest of servers and tools alone, which is what a
	// signature covers: a quarantine must not wait for who holds the key.
	Content string

	parts []reference // of the canonical encoding
}

// Source is where attributes come from. Implementations are safe for
// concurrent use and honour the context's deadline.
type Source interface {
	// Head asks the truth which state is current.
	Head(ctx context.Context) (Head, error)
	// Load returns the whole catalogue of the given head, which the caller
	// got from Head just before. Where the source has moved on it returns
	// the newer catalogue with its own head. The caller must not modify it.
	Load(ctx context.Context, head Head) (*Catalogue, error)
	// Changed is a hint channel: a value means that Head may have changed.
	// It may be nil; it is never closed.
	Changed() <-chan struct{}
	// Problems says what is wrong just now, a line each, and nothing where
	// all is well. It neither blocks nor does I/O.
	Problems() []string
	// Close releases what the source holds; no method is called after it.
	Close() error
}

// Errors of a Store.
var (
	// ErrConflict says that the registry has moved on since its head was read.
	ErrConflict = errors.New("the registry was changed by somebody else meanwhile; look again and repeat")
	// ErrUnknown says that the registry has nothing of that name.
	ErrUnknown = errors.New("not in the registry")
	// ErrReadOnly says that the source cannot be written, and why.
	ErrReadOnly = errors.New("the registry cannot be changed")
)

// Author is who changes a registry, for its history.
type Author struct {
	Name string // such as the login name
	Note string // why
}

// Store is a source that can be changed. Every change is one revision, all or
// nothing, and in the history where the source has one. Errors name what was
// attempted on what.
type Store interface {
	Source
	// Quarantine puts a tool or a server into quarantine; By and Since are the
	// author's and now. What is in it already gets the new reason. The registry
	// need not know the tool. Files with problems take it, too, and gateways take it
	// from them; the head is the zero value where the store has never seen them good.
	Quarantine(ctx context.Context, by Author, q Quarantined) (Head, error)
	// Release ends a quarantine. ErrUnknown: there is none of exactly that name.
	Release(ctx context.Context, by Author, server, tool string) (Head, error)
	// Approve pins the definition of a registered tool by its digest and keeps the
	// definition, which is canonical JSON of that digest. ErrUnknown: no such tool.
	Approve(ctx context.Context, by Author, server, tool, sha256 string, definition []byte) (Head, error)
	// Definition returns the definition that was approved with the digest.
	// ErrUnknown: it was not kept. Who calls checks the digest.
	Definition(ctx context.Context, server, tool, sha256 string) ([]byte, error)
}
