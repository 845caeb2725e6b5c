// Package decisionlog puts every decision on record.
package decisionlog

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/regogate/regogate/gateway/policy"
)

// Recorder takes the record of every decision. Record never blocks. It reports
// false when the record is lost, which the recorder has counted and told; a
// gateway that must not act without a record denies then. The recorder only
// reads r, also after it has returned, so nobody may modify it any more.
type Recorder interface {
	Record(r *Record) bool
}

// Record is one decision, on one thing or on a list. It holds no argument, no
// token, and of the claims only who the principal is.
type Record struct {
	ID        string    // from NewDecisionID
	Time      time.Time // of the decision
	RequestID string
	Labels    map[string]string // of the process, such as its version

	Rule    string // the gate that decided: allow or call
	Method  string
	Thing   policy.Name // zero for a list
	List    *ListSeen   // nil for one thing
	Issuer  string
	Subject string
	Client  policy.Client
	Address string // of the client
	Route   string

	Allowed bool
	Code    string // Decision.Code, or a reason of the gateway's own such as registry_stale
	Err     error  // Decision.Err
	policy.Explanation

	PolicyRevision   string
	RegistryRevision string
	Stages           []Stage
}

// ListSeen is the outcome for a list: of how many items which were allowed.
type ListSeen struct {
	Total   int
	Allowed []policy.Name
}

// Stage is how long one stage of the request took, such as auth or allow.
type Stage struct {
	Name string // matches [a-z_]+
	Took time.Duration
}

// NewDecisionID returns an identifier that no other decision has.
func NewDecisionID() string { return uuid.NewString() }

// Limits of one record. Who asks chooses the length of most texts in it.
const (
	maxText  = 512
	maxURI   = 4 << 10  // what tells one URI from another is often near its end
	maxNames = 64 << 10 // bytes of names in a list
)

// event is the record in the shape of an OPA decision log event, as far as that
// has a name for things.
type event struct {
	Labels      map[string]string    `json:"labels,omitempty"`
	DecisionID  string               `json:"decision_id"`
	Timestamp   time.Time            `json:"timestamp"`
	Path        string               `json:"path"`
	Input       eventInput           `json:"input"`
	Result      any                  `json:"result"`
	Error       string               `json:"error,omitzero"`
	RequestedBy string               `json:"requested_by,omitzero"`
	Bundles     map[string]eventFrom `json:"bundles,omitempty"`
	Metrics     map[string]int64     `json:"metrics,omitempty"`

	RequestID        string   `json:"request_id,omitzero"`
	RegistryRevision string   `json:"registry_revision,omitzero"`
	Code             string   `json:"code,omitzero"`
	Reasons          []string `json:"reasons,omitempty"`
	PrivateReasons   []string `json:"private_reasons,omitempty"`
	Scopes           []string `json:"scopes,omitempty"`
	ReasonsError     string   `json:"reasons_error,omitzero"`
}

type eventFrom struct {
	Revision string `json:"revision"`
}

type eventInput struct {
	Method string      `json:"method"`
	Claims eventClaims `json:"claims"`

	// What was asked about, under the key of its kind.
	Tool     *eventNamed    `json:"tool,omitzero"`
	Resource *eventResource `json:"resource,omitzero"`
	Prompt   *eventNamed    `json:"prompt,omitzero"`
	Server   *eventServer   `json:"server,omitzero"`

	Request eventRequest `json:"request,omitzero"`
}

type eventClaims struct {
	Issuer  string `json:"iss,omitzero"`
	Subject string `json:"sub,omitzero"`
}

type eventNamed struct {
	Server string `json:"server"`
	Name   string `json:"name"`
}

type eventResource struct {
	Server string `json:"server"`
	URI    string `json:"uri"`
}

type eventServer struct {
	Name string `json:"name"`
}

type eventRequest struct {
	Client struct {
		Name    string `json:"name,omitzero"`
		Version string `json:"version,omitzero"`
	} `json:"client,omitzero"`
	Route string `json:"route,omitzero"`
}

// eventList is the result for a list. The names are the allowed ones of each kind
// by server; where they are too many to write down, Truncated is set and the
// counts stand alone.
type eventList struct {
	Total     int      `json:"total"`
	Allowed   int      `json:"allowed"`
	Tools     byServer `json:"tools,omitempty"`
	Resources byServer `json:"resources,omitempty"`
	Prompts   byServer `json:"prompts,omitempty"`
	Servers   []string `json:"servers,omitempty"`
	Truncated bool     `json:"truncated,omitzero"`
}

// byServer is names by the server that they belong to.
type byServer map[string][]string

func (b *byServer) add(n policy.Name) {
	if *b == nil {
		*b = byServer{}
	}
	(*b)[n.Server] = append((*b)[n.Server], n.Name)
}

func (b byServer) sort() {
	for _, names := range b {
		slices.Sort(names)
	}
}

// appendLine appends the record as one line of JSON.
func (r *Record) appendLine(dst []byte) ([]byte, error) {
	e := event{
		Labels:           r.Labels,
		DecisionID:       r.ID,
		Timestamp:        r.Time.UTC(),
		Path:             "mcp/authz/" + r.Rule,
		Result:           r.Allowed,
		RequestedBy:      text(r.Address),
		RequestID:        text(r.RequestID),
		RegistryRevision: r.RegistryRevision,
		Code:             r.Code,
		Reasons:          r.Reasons,
		PrivateReasons:   r.Private,
		Scopes:           r.Scopes,
	}
	e.Input.Method = text(r.Method)
	e.Input.Claims = eventClaims{text(r.Issuer), text(r.Subject)}
	e.Input.Request.Client.Name, e.Input.Request.Client.Version = text(r.Client.Name), text(r.Client.Version)
	e.Input.Request.Route = text(r.Route)
	if r.List != nil {
		e.Result = r.List.event()
	} else {
		e.Input.name(r.Thing)
	}
	if r.Err != nil {
		e.Error = text(r.Err.Error())
	}
	if r.Explanation.Err != nil {
		e.ReasonsError = text(r.Explanation.Err.Error())
	}
	if r.PolicyRevision != "" {
		e.Bundles = map[string]eventFrom{"policy": {r.PolicyRevision}}
	}
	if len(r.Stages) > 0 {
		e.Metrics = make(map[string]int64, len(r.Stages))
		for _, s := range r.Stages {
			e.Metrics["timer_"+s.Name+"_ns"] += s.Took.Nanoseconds()
		}
	}
	line, err := json.Marshal(&e, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return dst, err
	}
	return append(appendVisible(dst, line), '\n'), nil
}

// appendVisible appends JSON with every character escaped that does not show or
// makes a line read otherwise than it is: who asks chooses names. What the JSON
// means stays the same.
func appendVisible(dst, line []byte) []byte {
	if !bytes.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return append(dst, line...)
	}
	for _, r := range string(line) {
		switch {
		case unicode.IsPrint(r):
			dst = utf8.AppendRune(dst, r)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			dst = fmt.Appendf(dst, `\u%04x\u%04x`, high, low)
		default:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		}
	}
	return dst
}

func (in *eventInput) name(n policy.Name) {
	switch n.Kind {
	case policy.KindTool:
		in.Tool = &eventNamed{text(n.Server), text(n.Name)}
	case policy.KindResource:
		in.Resource = &eventResource{text(n.Server), fit(n.Name, maxURI)}
	case policy.KindPrompt:
		in.Prompt = &eventNamed{text(n.Server), text(n.Name)}
	case policy.KindServer:
		in.Server = &eventServer{text(n.Server)}
	}
}

func (l *ListSeen) event() eventList {
	out := eventList{Total: l.Total, Allowed: len(l.Allowed)}
	size := 0
	for _, n := range l.Allowed {
		size += len(n.Name) + len(n.Server)
	}
	if out.Truncated = size > maxNames; out.Truncated {
		return out
	}
	for _, n := range l.Allowed {
		switch n.Kind {
		case policy.KindTool:
			out.Tools.add(n)
		case policy.KindResource:
			out.Resources.add(n)
		case policy.KindPrompt:
			out.Prompts.add(n)
		case policy.KindServer:
			out.Servers = append(out.Servers, n.Server)
		}
	}
	out.Tools.sort()
	out.Resources.sort()
	out.Prompts.sort()
	slices.Sort(out.Servers)
	return out
}

// weight estimates what the record keeps in memory while it waits, in bytes.
func (r *Record) weight() int64 {
	w := 512 + len(r.RequestID) + len(r.Method) + len(r.Thing.Server) + len(r.Thing.Name) + len(r.Issuer) +
		len(r.Subject) + len(r.Client.Name) + len(r.Client.Version) + len(r.Address) + len(r.Route)
	for _, list := range [][]string{r.Reasons, r.Private, r.Scopes} {
		for _, s := range list {
			w += 16 + len(s)
		}
	}
	w += 24 * len(r.Stages)
	if r.List != nil {
		w += 48 * len(r.List.Allowed)
	}
	return int64(w)
}

// text is s fit for a record: valid UTF-8, and short.
func text(s string) string { return fit(s, maxText) }

func fit(s string, max int) string { return shorten(strings.ToValidUTF8(s, "\uFFFD"), max) }

// shorten cuts s to at most max bytes, at a character, and marks the cut.
func shorten(s string, max int) string {
	if len(s) <= max {
		return s
	}
	for max > 0 && !utf8.RuneStart(s[max]) {
		max--
	}
	return s[:max] + "…"
}
