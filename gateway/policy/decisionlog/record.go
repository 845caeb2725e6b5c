// Package decisionlog puts every decision on record: one event for each question
// to a policy, a list being one, in the format of OPA's decision log.
//
// Whoever decides hands over a Record, which points to what was judged, and waits
// for nothing. All else happens in the background and in order: the event is
// built from the record, masked by the policy that decided, encoded as one line
// of JSON and given to each sink, which has a bounded buffer of its own. With no
// sink nothing of it happens.
//
// # Events
//
// An event has the members of OPA's EventV1 and no others: labels, decision_id,
// trace_id, span_id, bundles, path, input, result, erased, masked, error,
// requested_by, timestamp, metrics and custom. What OPA has no member for stands
// in custom:
//
//	request_id         of the HTTP request; a request may have several decisions
//	registry_revision  what was known of the things that were judged
//	code               why there was no proper answer, such as policy_timeout
//	reasons, scopes    what the policy says about a refusal
//	private_reasons    reasons that are no codes, which no client is shown
//	reasons_error      why something of these is missing
//	mask_error         why the event could not be masked as the policy says
//	truncated          pointers into the event to what is not there in full
//
// The input is the input that the policy judged. What is asked of a list, it is
// asked of every item alike: there the input lacks the thing, and the result
// says of how many things which were allowed; see List.
package decisionlog

import (
	"bytes"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/regogate/regogate/gateway/policy"
)

// Recorder takes the record of every decision. It is safe for concurrent use.
type Recorder interface {
	// Record never blocks. It reports false when the record is lost, which the
	// recorder has counted and told. The recorder only reads r, also after it has
	// returned, so nobody may modify it any more.
	Record(r *Record) bool
	// Reserve makes sure that what is recorded before release is called will not be
	// lost. Where it cannot it reports false, and nothing may be decided then that
	// has to be on record; release is nil. A recorder that may lose records always
	// reports true. release is called once.
	Reserve() (release func(), ok bool)
}

// Record is one decision, on one thing or on a list. It points to what was judged
// and copies nothing of it. It holds no token: the input has none.
type Record struct {
	ID   string    // from NewDecisionID
	Time time.Time // of the decision

	Snapshot         *policy.Snapshot // that decided; nil for a decision without one
	RegistryRevision string

	Rule            string // the gate that decided: allow or call
	policy.Question        // as it was asked; of a list without an item
	Arguments       jsontext.Value
	// Cut says that the arguments were too large to keep.
	Cut  bool
	List *List // nil for one thing

	Allowed bool
	Code    string // Decision.Code, or a reason of the gateway's own
	Err     error  // Decision.Err
	policy.Explanation

	TraceID, SpanID string // of the caller's trace; "" without
	Stages          []Stage
}

// Stage is how long one stage of the request took, such as auth or allow.
type Stage struct {
	Name string // matches [a-z_]+
	Took time.Duration
}

// NewDecisionID returns an identifier that no other decision has.
func NewDecisionID() string { return uuid.NewString() }

// MaxArguments is how many bytes of arguments are kept for a record.
const MaxArguments = 64 << 10

// Argue sets the arguments of the call. They are copied: the message that they
// are a part of may be many times as large, and is not to wait with them.
func (r *Record) Argue(arguments jsontext.Value) {
	if r.Cut = len(arguments) > MaxArguments; !r.Cut {
		r.Arguments = bytes.Clone(arguments)
	}
}

// Thing is what was judged; the zero Name for a list.
func (r *Record) Thing() policy.Name { return r.Item.Name() }

// PolicyRevision is that of the policy that decided.
func (r *Record) PolicyRevision() string {
	if r.Snapshot == nil {
		return ""
	}
	return r.Snapshot.Revision()
}

// weight estimates what the record keeps in memory that others do not, in bytes.
func (r *Record) weight() int64 {
	thing := r.Thing()
	w := 1024 + len(r.Arguments) + len(thing.Server) + len(thing.Name) + len(r.Request.Client.Name) + len(r.Request.Client.Version)
	for _, list := range [][]string{r.Reasons, r.Private, r.Scopes} {
		for _, s := range list {
			w += 16 + len(s)
		}
	}
	return int64(w)
}
