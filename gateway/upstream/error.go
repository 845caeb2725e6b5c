package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/url"
)

// Kind says what a caller can do about an Error.
type Kind uint8

// The kinds of errors.
const (
	// Unavailable: the server could not be reached or started, turned us
	// away, or has no room. Trying again later makes sense.
	Unavailable Kind = iota + 1
	// Timeout: the server did not answer in time and was told to stop. The
	// request may have been carried out.
	Timeout
	// Broken: the server answered something that is not MCP, or ended while
	// the request was under way. The request may have been carried out.
	Broken
	// Canceled: the caller went away and the server was told to stop.
	Canceled
	// Unauthorized: there is no token for the one who asks, or the server does
	// not take it. The request was not carried out. It says nothing of others.
	Unauthorized
)

func (k Kind) String() string {
	switch k {
	case Unavailable:
		return "unavailable"
	case Timeout:
		return "timeout"
	case Broken:
		return "broken"
	case Canceled:
		return "canceled"
	case Unauthorized:
		return "unauthorized"
	}
	return "unknown"
}

// Error is the failure of a server to answer a request. What the server itself
// says in a JSON-RPC error is an answer, not an Error.
type Error struct {
	Kind   Kind
	Server string
	Err    error // what happened; it names no credential, but may name a host
}

// Error is for logs. Public is for the other side of the wire.
func (e *Error) Error() string {
	return fmt.Sprintf("server %s: %s: %v", e.Server, e.Kind, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Public is one sentence for a client. It names the server and nothing else.
func (e *Error) Public() string {
	switch e.Kind {
	case Unavailable:
		return "server " + e.Server + " is unavailable; try again later"
	case Timeout:
		return "server " + e.Server + " did not answer in time"
	case Canceled:
		return "the request to server " + e.Server + " was cancelled"
	case Unauthorized:
		return "access to server " + e.Server + " was refused"
	}
	return "server " + e.Server + " gave no usable answer"
}

// Reasons for which something else than the server is to be done next.
var (
	// errStale: the session or process has gone and has not carried out the
	// request, so that it can be sent once more over a new one.
	errStale = errors.New("the session is gone")
	// errLost: the session is to be used no more, and whether the request was
	// carried out nobody knows.
	errLost = errors.New("the session is lost")
	// errBusy: a limit of ours is reached, or an issuer is out of reach, which
	// says nothing of the server.
	errBusy = errors.New("busy")
)

// fault is an error whose kind is known where it happens.
type fault struct {
	kind Kind
	err  error
	busy bool // it is an errBusy, whatever else it is
}

func (f *fault) Error() string        { return f.err.Error() }
func (f *fault) Unwrap() error        { return f.err }
func (f *fault) Is(target error) bool { return f.busy && target == errBusy }

func unavailable(format string, args ...any) error {
	return &fault{kind: Unavailable, err: fmt.Errorf(format, args...)}
}

func broken(format string, args ...any) error {
	return &fault{kind: Broken, err: fmt.Errorf(format, args...)}
}

func busy(format string, args ...any) error {
	return &fault{kind: Unavailable, err: fmt.Errorf(format, args...), busy: true}
}

// kindOf tells the kind of any error that a link or a dialler returns. The
// context's own errors come first: once a request is given up, whatever else
// its connection reports is a consequence.
func kindOf(err error) Kind {
	var f *fault
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	case errors.Is(err, context.Canceled):
		return Canceled
	case errors.As(err, &f):
		return f.kind
	}
	return Unavailable
}

// bare strips the URL that net/http puts into its errors: it may hold a
// credential in its query.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
