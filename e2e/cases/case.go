// Package cases runs public fault reports through the front door of a gateway.
// Each report is one data file under testdata: a world, the requests that did
// harm, what must come of them, and a benign twin that must succeed. What counts
// is what arrives at the backends, which write down everything that reaches
// them. README.md says how to write a file; the types here are its format.
package cases

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/auth"
	"github.com/regogate/regogate/registry/strictyaml"
)

// Case is one file.
type Case struct {
	ID          string `yaml:"id"`
	Title       string `yaml:"title"`
	Source      string `yaml:"source"`
	Expectation string `yaml:"expectation"` // in words
	Serial      bool   `yaml:"serial"`      // must run alone: it measures

	World  World   `yaml:"world"`
	Steps  []Step  `yaml:"steps"`
	Benign []Step  `yaml:"benign"`
	Scenes []Scene `yaml:"scenes"` // further worlds, each with its own steps
}

// Scene is a world of its own within a case.
type Scene struct {
	Name   string `yaml:"name"`
	Each   []any  `yaml:"each"`  // the scene runs once for each, as <<each>> or <<KEY>>
	World  *World `yaml:"world"` // the case's where it is missing
	Steps  []Step `yaml:"steps"`
	Benign []Step `yaml:"benign"`
}

// World is what surrounds and configures one gateway. What is left out is as
// the reports' conventions have it: one backend alpha with the tools read and
// delete, a policy that allows alpha's read, one issuer with one key, and every
// tool registered.
type World struct {
	Config    string             `yaml:"config"`    // a fragment of regogate.yaml, over the runner's own
	Policy    string             `yaml:"policy"`    // Rego of package mcp.authz, or "shipped"
	Library   bool               `yaml:"library"`   // put the shipped mcp.lib beside that policy
	Catalogue string             `yaml:"catalogue"` // YAML of the registry, or "shipped"
	Backends  map[string]Backend `yaml:"backends"`
	Issuers   map[string]Issuer  `yaml:"issuers"`
	Keys      map[string]string  `yaml:"keys"` // name to rsa, rsa1024, p256 or ed25519; k1 is rsa
	Tokens    map[string]Token   `yaml:"tokens"`
	Redis     bool               `yaml:"redis"` // put a Redis between the catalogue and the gateway
	// Start is what is waited for before the first step: ready (the default),
	// able (it decides, something may be down) or live (it listens).
	Start string `yaml:"start"`
}

// Backend is one recording MCP server.
type Backend struct {
	Transport string         `yaml:"transport"` // http (the default), stdio or none
	Era       string         `yaml:"era"`       // legacy (the default) or modern
	Tools     []Tool         `yaml:"tools"`
	Mode      string         `yaml:"mode"` // see Action
	For       string         `yaml:"for"`
	Stdio     Stdio          `yaml:"stdio"`
	Config    gateway.Server `yaml:"config"` // over the runner's own
}

// Tool is one tool of a backend and how a call of it ends.
type Tool struct {
	Name       string        `yaml:"name"`
	Definition string        `yaml:"definition"` // the exact JSON; made of the name where empty
	Result     string        `yaml:"result"`     // the exact JSON; says what ran where empty
	Error      string        `yaml:"error"`      // the exact JSON of an error instead
	Delay      time.Duration `yaml:"delay"`
	Meet       int           `yaml:"meet"` // answer only when so many calls are under way
	Dies       bool          `yaml:"dies"` // a stdio server exits
	Mute       bool          `yaml:"mute"` // a stdio server closes its output and lives on
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

// Issuer is one party whose tokens the gateway takes.
type Issuer struct {
	JWKS     []JWK       `yaml:"jwks"`
	Document string      `yaml:"document"` // the exact answer instead of a key set
	Mode     string      `yaml:"mode"`     // see Action
	Config   auth.Issuer `yaml:"config"`   // over the runner's own
}

// JWK is one published key; members that are left out are not published.
type JWK struct {
	Key    string `yaml:"key"`
	KID    string `yaml:"kid"`
	Alg    string `yaml:"alg"`
	Use    string `yaml:"use"`
	Raw    string `yaml:"raw"`    // the exact JSON instead
	Copies int    `yaml:"copies"` // how often; once where 0
}

// Token is a token and how it is forged. The zero value is a good one.
type Token struct {
	Issuer   string         `yaml:"issuer"`   // of the world; main where empty
	Claims   map[string]any `yaml:"claims"`   // over the usual ones
	Without  []string       `yaml:"without"`  // claims to leave out
	Payload  string         `yaml:"payload"`  // the exact payload instead
	Header   string         `yaml:"header"`   // the exact header
	Key      string         `yaml:"key"`      // what signs; k1 where empty
	Sign     string         `yaml:"sign"`     // the algorithm it signs with; the key's usual one where empty
	HMAC     string         `yaml:"hmac"`     // HS256 with pem, modulus or jwks of the key, or with nothing: empty
	Unsigned bool           `yaml:"unsigned"` // the signature is empty
	Text     string         `yaml:"text"`     // the exact token
}

// Step is one thing that happens. It is exactly one of a request (the default),
// a Do, a Check and a Read.
type Step struct {
	Name string            `yaml:"name"`
	Each []any             `yaml:"each"` // the step runs once for each, as <<each>> or <<KEY>>
	Vars map[string]string `yaml:"vars"` // further <<NAME>>, which Each overrides

	Method    string            `yaml:"method"` // POST where empty
	Path      string            `yaml:"path"`   // the exact request target; /mcp where empty
	Era       string            `yaml:"era"`    // legacy (the default) or modern
	Token     string            `yaml:"token"`  // of the world, or none
	Forge     *Token            `yaml:"forge"`  // or one made here
	Session   string            `yaml:"session"`
	Headers   map[string]string `yaml:"headers"` // over the usual ones
	Without   []string          `yaml:"without"` // usual headers to leave out
	Lines     []string          `yaml:"lines"`   // exact header lines on top
	Body      *string           `yaml:"body"`    // the exact body
	Call      string            `yaml:"call"`    // or a tools/call of this exposed name
	Arguments string            `yaml:"arguments"`
	List      bool              `yaml:"list"`  // or a tools/list
	Fill      *Fill             `yaml:"fill"`  // or a body without end
	Raw       string            `yaml:"raw"`   // the exact bytes of a whole request
	Pace      time.Duration     `yaml:"pace"`  // time between two bytes of it
	Opens     string            `yaml:"opens"` // a GET stream under this name, read by Read

	Do    *Action `yaml:"do"`
	Check *Check  `yaml:"check"`
	Read  string  `yaml:"read"` // the events of a stream so far

	Times      int           `yaml:"times"`      // how often, for each of Each
	Together   bool          `yaml:"together"`   // all at once
	Background bool          `yaml:"background"` // go on; judged when the steps are over
	Until      time.Duration `yaml:"until"`      // try again until it is as expected, so long
	Expect     Expect        `yaml:"expect"`
}

// Fill is a body of filler.
type Fill struct {
	Size    strictyaml.ByteSize `yaml:"size"`
	Chunked bool                `yaml:"chunked"`
}

// Action changes the world.
type Action struct {
	Backend string `yaml:"backend"`
	// Mode of a backend or issuer: up, down (connections are refused), slow
	// (answers after a second), hang (accepts and says nothing), stall
	// (headers only), trickle (a byte a second), html, redirect URL, or a bare
	// HTTP status.
	Mode  string `yaml:"mode"`
	For   string `yaml:"for"`   // only for this MCP method
	Tools []Tool `yaml:"tools"` // what it offers from now on
	Kill  bool   `yaml:"kill"`  // SIGKILL to a stdio backend's newest process

	Issuer   string `yaml:"issuer"`
	JWKS     []JWK  `yaml:"jwks"`
	Document string `yaml:"document"`

	Gateway string `yaml:"gateway"` // stop, or restart
	Redis   string `yaml:"redis"`   // garbage: every value is overwritten

	Pause time.Duration `yaml:"pause"` // let time pass, where that is what is tested
}

// Check is a configuration that is loaded as serve --check does it.
type Check struct {
	Config string            `yaml:"config"` // the whole regogate.yaml
	Files  map[string]string `yaml:"files"`  // beside it
	Env    map[string]string `yaml:"env"`
}

// Probe looks into a JSON text. Paths are JSON Pointers.
type Probe struct {
	JSON  map[string]any    `yaml:"json"`  // is this value
	Raw   map[string]string `yaml:"raw"`   // is written in exactly these bytes
	Like  map[string]string `yaml:"like"`  // a string, or else the JSON, that matches this expression
	Lacks []string          `yaml:"lacks"` // is not there
}

// Expect is what must come of a step. What it leaves out is not looked at, but
// for Arrived: where that is missing nothing may arrive at a backend.
type Expect struct {
	Status  Codes             `yaml:"status"`
	OK      bool              `yaml:"ok"`    // 200 and a result
	Error   Codes             `yaml:"error"` // a JSON-RPC error and no result
	ID      string            `yaml:"id"`    // of the answer, the exact JSON
	Empty   bool              `yaml:"empty"` // no body
	Headers map[string]string `yaml:"headers"`
	Absent  []string          `yaml:"absent"` // headers that are not there
	Probe   `yaml:",inline"`
	Not     []string            `yaml:"not"`     // texts that nothing in the answer holds
	Tools   []string            `yaml:"tools"`   // exactly these names in a list, in this order
	SameAs  string              `yaml:"same_as"` // the answer to this step, but for the name asked for
	Within  time.Duration       `yaml:"within"`
	Closed  bool                `yaml:"closed"` // the connection ends without an answer
	Taken   strictyaml.ByteSize `yaml:"taken"`  // at most so much was taken of the request
	Memory  strictyaml.ByteSize `yaml:"memory"` // the heap grew by no more meanwhile

	Arrived   []Arrival         `yaml:"arrived"`
	Silent    bool              `yaml:"silent"`     // not even the gateway's own messages arrived
	Records   []Record          `yaml:"records"`    // exactly these decision records
	Log       map[string]string `yaml:"log"`        // fields of the request's log line
	Logged    []string          `yaml:"logged"`     // lines of the log match these expressions
	NotLogged []string          `yaml:"not_logged"` // and no line so far matches these
	LogLines  int               `yaml:"log_lines"`  // the log has no more lines so far

	Fetches   map[string]int `yaml:"fetches"`   // of an issuer's keys, in the whole scene, at most
	Processes map[string]int `yaml:"processes"` // of a stdio backend that are alive
	Starts    map[string]int `yaml:"starts"`    // of a stdio backend so far, at most
	Events    []string       `yaml:"events"`    // of Read: exactly so many, matching these expressions
	Problems  []string       `yaml:"problems"`  // of Check: exactly these lines, or parts of them
}

// Arrival is one message at a backend.
type Arrival struct {
	Call    string            `yaml:"call"`    // BACKEND/TOOL of a tools/call
	Message string            `yaml:"message"` // or BACKEND/METHOD
	Any     bool              `yaml:"any"`     // any number of these, none included
	Headers map[string]string `yaml:"headers"`
	Absent  []string          `yaml:"absent"`
	Probe   `yaml:",inline"`
}

// Record is one decision record.
type Record struct {
	Rule    string   `yaml:"rule"` // allow or call
	Tool    string   `yaml:"tool"` // SERVER/TOOL; empty for a list
	List    []string `yaml:"list"` // those that were allowed, for a list
	Allowed bool     `yaml:"allowed"`
	Code    string   `yaml:"code"`
	Reasons []string `yaml:"reasons"` // not looked at where missing
}

// Codes is one number or several with | between them, any of which will do; ""
// is any.
type Codes string

// UnmarshalText reads 400, 400|401 or a variable.
func (c *Codes) UnmarshalText(text []byte) error {
	*c = Codes(text)
	if strings.Contains(string(text), "<<") {
		return nil
	}
	for part := range strings.SplitSeq(string(text), "|") {
		if _, err := strconv.Atoi(part); err != nil {
			return errors.New("want a number, or several with | between them")
		}
	}
	return nil
}

func (c Codes) has(code string) bool {
	return slices.Contains(strings.Split(string(c), "|"), code)
}
