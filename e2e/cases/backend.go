package cases

import (
	"time"

	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/registry/strictyaml"
)

// Backend is one recording MCP server.
type Backend struct {
	Transport string `yaml:"transport"` // http (the default), sse (HTTP+SSE of 2024-11-05), stdio or none
	Era       string `yaml:"era"`       // legacy (the default) or modern
	// Version is the revision that a legacy server negotiates, whatever it is
	// offered; 2025-11-25 where empty. Over HTTP it insists on it, as on a
	// session that it knows.
	Version      string            `yaml:"version"`
	Capabilities string            `yaml:"capabilities"` // the exact JSON; tools alone where empty
	Tools        []Tool            `yaml:"tools"`
	Pages        map[string]Page   `yaml:"pages"`   // of its tools, by cursor; "first" and "other" are what they say
	Answers      map[string]string `yaml:"answers"` // by method: the exact JSON of the result
	Replies      map[string]Reply  `yaml:"replies"` // by method: how an answer over HTTP is written
	Gone         string            `yaml:"gone"`    // HTTP status for a session that is not known; 404 where empty
	Streams      bool              `yaml:"streams"` // over HTTP, a GET opens the session's stream
	SSE          SSE               `yaml:"sse"`
	Mode         string            `yaml:"mode"` // see Action
	For          string            `yaml:"for"`
	Stdio        Stdio             `yaml:"stdio"`
	Config       gateway.Server    `yaml:"config"` // over the runner's own
}

func (spec Backend) overHTTP() bool {
	return spec.Transport == "" || spec.Transport == "http" || spec.Transport == "sse"
}

// Tool is one tool of a backend and how a call of it ends.
type Tool struct {
	Name       string        `yaml:"name"`
	Definition string        `yaml:"definition"` // the exact JSON; made of the name where empty
	Result     string        `yaml:"result"`     // the exact JSON; says what ran where empty
	Error      string        `yaml:"error"`      // the exact JSON of an error instead
	Count      string        `yaml:"count"`      // add or get: the result's text is a number that each session has of its own
	Reply      *Reply        `yaml:"reply"`      // how an answer over HTTP is written
	Delay      time.Duration `yaml:"delay"`
	Meet       int           `yaml:"meet"` // answer only when so many calls are under way
	Dies       bool          `yaml:"dies"` // a stdio server exits, a stream of SSE breaks off
	Mute       bool          `yaml:"mute"` // a stdio server closes its output and lives on
}

// Page is one page of a list.
type Page struct {
	Tools []string `yaml:"tools"` // names
	Next  string   `yaml:"next"`  // the exact JSON of nextCursor, in which $N is a number that never comes again; none where empty
	Error string   `yaml:"error"` // the exact JSON of an error instead
}

// Reply is how an answer is written over HTTP. In its texts $ID is the id of
// the request and $ANSWER the whole answer, and every character is one byte: é
// in UTF-8 is "\xC3\xA9".
type Reply struct {
	Status int    `yaml:"status"` // 200 where 0
	Type   string `yaml:"type"`   // its Content-Type; text/event-stream where empty
	// Encoding is its Content-Encoding. gzip and x-gzip are done, others only
	// claimed; asked is the first of zstd, br and gzip that the request takes.
	Encoding string              `yaml:"encoding"`
	Chunks   []string            `yaml:"chunks"` // each is one write; the whole answer where there is none
	Pause    time.Duration       `yaml:"pause"`  // between two of them
	Fill     strictyaml.ByteSize `yaml:"fill"`   // so much white space follows; compressed, it is a thousandth
	Open     bool                `yaml:"open"`   // and then it does not end
}

// SSE is the manners of a server of the HTTP+SSE transport.
type SSE struct {
	Endpoint string `yaml:"endpoint"` // what its first event says, in which $SESSION is the session; a relative URL where empty
	First    string `yaml:"first"`    // what comes first, 202 (the default) or answer
}

// Stdio is the manners of a stdio server.
type Stdio struct {
	Prelude    string              `yaml:"prelude"` // on standard output before anything
	Noise      string              `yaml:"noise"`   // on standard output before each answer
	Twice      bool                `yaml:"twice"`   // each answer comes after a stray one, and twice
	CRLF       bool                `yaml:"crlf"`
	Stderr     strictyaml.ByteSize `yaml:"stderr"`      // on standard error at the start
	StderrCall strictyaml.ByteSize `yaml:"stderr_call"` // and for each call
	StderrLine strictyaml.ByteSize `yaml:"stderr_line"` // one line without an end, with escapes
	Exits      bool                `yaml:"exits"`       // at once
	Stubborn   bool                `yaml:"stubborn"`    // ignores SIGTERM and the end of its input
	Shell      string              `yaml:"shell"`       // started through sh -c with this, where "$0" is the server
}
