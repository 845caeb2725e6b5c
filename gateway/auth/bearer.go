package auth

import (
	"net/http"
	"strings"
)

// Bearer returns the token of a request's headers. There must be exactly one
// Authorization header: the scheme Bearer in any case, one space, and a token
// of at most MaxToken characters out of those of RFC 6750. The error is of kind
// Missing where there is no Authorization header, and Malformed otherwise; it
// holds nothing of the header. A token in the query or the body is never looked
// at. The cost does not depend on the header's size.
func Bearer(h http.Header) (string, error) {
	values := h.Values("Authorization")
	switch {
	case len(values) == 0:
		return "", refuse(Missing, "no Authorization header")
	case len(values) > 1:
		return "", refuse(Malformed, "more than one Authorization header")
	}
	const scheme = "Bearer "
	value := values[0]
	if len(value) < len(scheme) || !strings.EqualFold(value[:len(scheme)], scheme) {
		return "", refuse(Malformed, "the Authorization header is not of the form: Bearer TOKEN")
	}
	token := value[len(scheme):]
	switch {
	case token == "":
		return "", refuse(Malformed, "the Authorization header has no token")
	case len(token) > MaxToken:
		return "", refuse(Malformed, tooLong)
	}
	for _, c := range []byte(strings.TrimRight(token, "=")) {
		if !tokenChar(c) {
			return "", refuse(Malformed, "the Authorization header has a character that no token has")
		}
	}
	return token, nil
}

func tokenChar(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~+/", c) >= 0
}
