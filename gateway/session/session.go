// Package session keeps what the gateway remembers of clients of the legacy
// era between their requests: in this process, or in a Redis that all replicas
// share, so that any of them can take up any session. A session is facts only
// and never authentication: every request brings its own token.
package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Session is what is remembered of one client.
type Session struct {
	ID           string
	Principal    string         // key of the principal that opened it
	Version      string         // negotiated protocol revision
	Client       Implementation // what the client says of itself
	Capabilities jsontext.Value // what the client said it can do, or nil
	LogLevel     string         // what the client asked for with logging/setLevel, or ""
	// Subscriptions are the resources that the client wants to hear of.
	Subscriptions []Subscription
	Created       time.Time
	Seen          time.Time // of the use that returned it
}

// Implementation is the name and version that a client gives of itself.
// Untrusted.
type Implementation struct {
	Name    string `json:"name,omitzero"`
	Version string `json:"version,omitzero"`
}

// Subscription names a resource of a server.
type Subscription struct {
	Server string `json:"server"`
	URI    string `json:"uri"`
}

// Store is where sessions live. Implementations are safe for concurrent use.
// A session is only ever given to the principal that opened it: to everybody
// else it does not exist, and what they try leaves it as it is. Sessions that
// go in and come out share no memory with those that are kept.
//
// All methods return ErrUnavailable where the store cannot be reached, which
// says nothing of the session, or the context's error where that is why.
type Store interface {
	// Open keeps s under a new id that cannot be guessed and returns it, with
	// Created and Seen set. Where the principal has as many as it may, its
	// least recently used one ends. The error is ErrFull when no more fit, and
	// ErrTooLarge when s is larger than one may be.
	Open(ctx context.Context, s Session) (Session, error)
	// Use returns the session and marks it as used now. The error is
	// ErrUnknown when there is none of that id, it is over its limits or
	// someone else's.
	Use(ctx context.Context, id, principal string) (Session, error)
	// Save keeps the LogLevel and the Subscriptions of s, which ID and
	// Principal name; everything else stays as it was opened. Of several
	// callers the last one wins. It is no use of the session. The error is
	// ErrUnknown as in Use, and ErrTooLarge when s has more than
	// MaxSubscriptions or is larger than one may be.
	Save(ctx context.Context, s Session) error
	// Close ends the session; ErrUnknown as in Use.
	Close(ctx context.Context, id, principal string) error
	// Known is how many sessions this process knows of: all that there are, or,
	// where others share the store, those used here lately.
	Known() int
}

// The kinds of failure of a Store.
var (
	ErrUnknown     = errors.New("no such session")
	ErrFull        = errors.New("no more sessions fit")
	ErrTooLarge    = errors.New("more than a session may hold")
	ErrUnavailable = errors.New("sessions cannot be reached")
)

// What one session may hold. Clients fill it, and every use carries it.
const (
	MaxSubscriptions = 256
	maxFacts         = 64 << 10 // bytes, as encoded
)

func (s Session) clone() Session {
	s.Capabilities = s.Capabilities.Clone()
	s.Subscriptions = slices.Clone(s.Subscriptions)
	return s
}

// facts is the part of a session that neither its name nor its use tells.
type facts struct {
	Version       string         `json:"version,omitzero"`
	Client        Implementation `json:"client,omitzero"`
	Capabilities  jsontext.Value `json:"capabilities,omitzero"`
	LogLevel      string         `json:"log_level,omitzero"`
	Subscriptions []Subscription `json:"subscriptions,omitempty"`
	Created       time.Time      `json:"created"`
}

// encode returns the facts of s. The error is ErrTooLarge, or about
// capabilities that are no JSON.
func encode(s Session) ([]byte, error) {
	if n := len(s.Subscriptions); n > MaxSubscriptions {
		return nil, fmt.Errorf("%d subscriptions, at most %d fit: %w", n, MaxSubscriptions, ErrTooLarge)
	}
	data, err := json.Marshal(facts{s.Version, s.Client, s.Capabilities, s.LogLevel, s.Subscriptions, s.Created})
	if err != nil {
		return nil, fmt.Errorf("encode a session: %w", err)
	}
	if len(data) > maxFacts {
		return nil, fmt.Errorf("%d bytes of facts, at most %d fit: %w", len(data), maxFacts, ErrTooLarge)
	}
	return data, nil
}

// decode is the inverse of encode, for the session of that id and principal.
func decode(data []byte, id, principal string) (Session, error) {
	var f facts
	if err := json.Unmarshal(data, &f, json.RejectUnknownMembers(true)); err != nil {
		return Session{}, err
	}
	return Session{
		ID: id, Principal: principal, Version: f.Version, Client: f.Client, Capabilities: f.Capabilities,
		LogLevel: f.LogLevel, Subscriptions: f.Subscriptions, Created: f.Created,
	}, nil
}
