package auth

import (
	"errors"
	"strconv"
)

// Kind says why a request has no principal.
type Kind uint8

// The kinds of errors. Other is only for errors that are not an *Error.
const (
	Other         Kind = iota
	Missing            // the request brings no token
	Malformed          // the header or the token does not have the form of one
	WrongType          // typ is not that of an access token
	WrongIssuer        // iss names no configured issuer
	WrongAlg           // alg is not on the issuer's list
	UnknownKey         // kid names no key of the issuer, also after a refresh
	BadSignature       // no key of the issuer verifies the signature
	BadClaims          // a required claim is missing, or a claim has the wrong type
	Expired            // exp has passed
	NotYetValid        // nbf or iat lies in the future
	WrongAudience      // aud names nothing that this route accepts
	Unavailable        // there are no usable keys of the issuer now
)

// Code returns the kind's stable name for records and metrics.
func (k Kind) Code() string {
	switch k {
	case Missing:
		return "token_missing"
	case Malformed:
		return "token_malformed"
	case WrongType:
		return "token_type"
	case WrongIssuer:
		return "token_issuer"
	case WrongAlg:
		return "token_algorithm"
	case UnknownKey:
		return "token_key"
	case BadSignature:
		return "token_signature"
	case BadClaims:
		return "token_claims"
	case Expired:
		return "token_expired"
	case NotYetValid:
		return "token_not_yet_valid"
	case WrongAudience:
		return "token_audience"
	case Unavailable:
		return "keys_unavailable"
	}
	return "auth_error"
}

// Error is why a request has no principal. Its text is for records and logs: it
// never holds a token or a claim's value but iss, kid, alg and typ, and these
// quoted and cut. The wire says invalid_token whatever the kind.
type Error struct {
	Kind Kind
	text string
	err  error
}

func (e *Error) Error() string { return e.Kind.Code() + ": " + e.text }

// Unwrap returns the cause, which is the context's error where the caller gave
// up while keys were being fetched, or else nil.
func (e *Error) Unwrap() error { return e.err }

// KindOf returns the kind of an error that this package returned, and Other for
// any other error and for nil.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Other
}

func refuse(kind Kind, text string) error { return &Error{Kind: kind, text: text} }

// shown makes text from a token fit for a log: quoted, and no longer than a
// line.
func shown(s string) string {
	const limit = 64
	if len(s) > limit {
		return strconv.QuoteToASCII(s[:limit]) + "..."
	}
	return strconv.QuoteToASCII(s)
}
