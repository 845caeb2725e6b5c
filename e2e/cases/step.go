package cases

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regogate/regogate/e2e/depot"
	"github.com/regogate/regogate/registry/strictyaml"
)

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
	Headers   map[string]string `yaml:"headers"`   // over the usual ones
	Without   []string          `yaml:"without"`   // usual headers to leave out
	Lines     []string          `yaml:"lines"`     // exact header lines on top
	Body      *string           `yaml:"body"`      // the exact body
	Call      string            `yaml:"call"`      // or a tools/call of this exposed name
	Arguments string            `yaml:"arguments"` // of a call; of a list its params
	List      bool              `yaml:"list"`      // or a tools/list
	Walk      bool              `yaml:"walk"`      // of all pages, which count as one list
	Fill      *Fill             `yaml:"fill"`      // or a body without end
	Raw       string            `yaml:"raw"`       // the exact bytes of a whole request
	Pace      time.Duration     `yaml:"pace"`      // time between two bytes of it
	Opens     string            `yaml:"opens"`     // a GET stream under this name, read by Read
	Keeps     string            `yaml:"keeps"`     // the session that the answer opens, under this name
	// Leaves closes the connection as soon as this, BACKEND/TOOL or
	// BACKEND/METHOD, has arrived as often as there are such steps at once.
	Leaves  string `yaml:"leaves"`
	Proxied bool   `yaml:"proxied"` // goes through the world's proxy

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
	Whole bool   `yaml:"whole"` // and its lists are in pages no more
	Kill  bool   `yaml:"kill"`  // SIGKILL to a stdio backend's newest process
	// Forget is a restart: a backend over HTTP or SSE knows none of its
	// sessions any more, and its streams end.
	Forget bool   `yaml:"forget"`
	Notify string `yaml:"notify"` // the exact message, over each of a backend's streams; waits for one

	Issuer   string `yaml:"issuer"`
	JWKS     []JWK  `yaml:"jwks"`
	Document string `yaml:"document"`

	Gateway string `yaml:"gateway"` // drain (begin to stop, and go on), stop, or restart
	Keep    bool   `yaml:"keep"`    // of restart: clients go on with their sessions
	Redis   string `yaml:"redis"`   // garbage: every value is overwritten
	Reload  string `yaml:"reload"`  // policy or catalogue: its file is saved anew, with a comment
	Says    string `yaml:"says"`    // with reload: what the file says from now on
	Storm   *Storm `yaml:"storm"`

	Bundle    string             `yaml:"bundle"`    // of the depot
	Publish   *depot.Publication `yaml:"publish"`   // what it is from now on
	Withdraw  bool               `yaml:"withdraw"`  // it is not there any more
	Depot     string             `yaml:"depot"`     // the depot's mode
	Persisted string             `yaml:"persisted"` // what becomes of the gateway's copy of the bundle: truncated, garbage or gone

	Sink string `yaml:"sink"` // the sink's mode

	Pause time.Duration `yaml:"pause"` // let time pass, where that is what is tested
}

// Storm is clients that end at random moments. Each opens a session and its
// stream, starts a call, and then deletes the session, drops its connections, or
// both at once; now and then the policy is saved anew. Nothing is expected of
// their answers, but that none is 5xx.
type Storm struct {
	Clients int    `yaml:"clients"`
	AtOnce  int    `yaml:"at_once"` // so many of them; 8 where 0
	Call    string `yaml:"call"`
	Seed    uint64 `yaml:"seed"` // of the random moments
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
	Closed  bool                `yaml:"closed"`  // the connection ends without an answer
	Refused bool                `yaml:"refused"` // there is no connection
	Taken   strictyaml.ByteSize `yaml:"taken"`   // at most so much was taken of the request
	Memory  strictyaml.ByteSize `yaml:"memory"`  // the heap grew by no more meanwhile

	Arrived   []Arrival         `yaml:"arrived"`
	Silent    bool              `yaml:"silent"`     // not even the gateway's own messages arrived
	Records   []Record          `yaml:"records"`    // exactly these decision records
	Log       map[string]string `yaml:"log"`        // fields of the request's log line
	Logged    []string          `yaml:"logged"`     // lines of the log match these expressions
	NotLogged []string          `yaml:"not_logged"` // and no line so far matches these
	LogLines  int               `yaml:"log_lines"`  // the log has no more lines so far
	Counted   map[string]int    `yaml:"counted"`    // by expression: exactly so many lines of the log so far match it

	Uploaded *Uploaded `yaml:"uploaded"` // to the sink

	Known map[string][]string `yaml:"known"` // by bundle: exactly these are the ETags that requests have said they know; "" is none
	Asked map[string]int      `yaml:"asked"` // by bundle: at least so many requests so far

	Fetches   map[string]int   `yaml:"fetches"`   // of an issuer's keys, in the whole scene, at most
	Processes map[string]int   `yaml:"processes"` // of a stdio backend that are alive
	Starts    map[string]int   `yaml:"starts"`    // of a stdio backend so far, at most
	Events    []string         `yaml:"events"`    // of Read, or of an answer that is a stream: exactly so many, matching these expressions
	Comments  int              `yaml:"comments"`  // of the same, at least
	Open      bool             `yaml:"open"`      // of Read: the stream has not ended
	Ended     bool             `yaml:"ended"`     // of Read: it has
	Totals    map[string]Codes `yaml:"totals"`    // of each BACKEND/METHOD: so many messages in the whole scene
	Ran       map[string]Codes `yaml:"ran"`       // of each BACKEND/TOOL over HTTP or SSE: so many calls were carried out
	Sessions  map[string]Codes `yaml:"sessions"`  // of a backend over HTTP or SSE: so many are open
	Growth    *Growth          `yaml:"growth"`    // of the whole program; mark the case serial
	Problems  []string         `yaml:"problems"`  // of Check: exactly these lines, or parts of them
}

// Growth is by how much more than at the first step of a world there may be.
type Growth struct {
	Goroutines  int `yaml:"goroutines"`
	Descriptors int `yaml:"descriptors"`
}

// Arrival is one message at a backend.
type Arrival struct {
	Call    string            `yaml:"call"`    // BACKEND/TOOL of a tools/call
	Message string            `yaml:"message"` // or BACKEND/METHOD
	Any     bool              `yaml:"any"`     // any number of these, none included
	Of      string            `yaml:"of"`      // of notifications/cancelled: BACKEND/TOOL whose call has the id that it names
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
