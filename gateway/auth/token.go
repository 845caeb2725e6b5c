package auth

import (
	"encoding/base64"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
)

// MaxToken is the longest token that is looked at, in bytes.
const MaxToken = 16 << 10

const tooLong = "the token is longer than 16 KiB"

// grantType is the type of an identity assertion, a grant that is exchanged for
// an access token and never is one.
const grantType = "oauth-id-jag+jwt"

// maxTime is the end of the year 9999 in seconds. A larger exp is most likely
// in milliseconds and would never come.
const maxTime = 253402300799

// token is a signed token taken apart. Nothing in it is verified.
type token struct {
	signed    string // what the signature covers
	signature []byte
	alg       string
	kid       string // "" where there is none
	typ       string // as tokenType returns it
	issuer    string
	payload   jsontext.Value
	claims    []mcp.Member // of payload
}

// parse takes a token apart: three parts of strict base64url, of which the
// first two are JSON objects without duplicate names. Keys, certificates and
// URLs in the header are never looked at.
func parse(raw string) (*token, error) {
	if len(raw) > MaxToken {
		return nil, refuse(Malformed, tooLong)
	}
	header, rest, _ := strings.Cut(raw, ".")
	payload, signature, ok := strings.Cut(rest, ".")
	if !ok || strings.Contains(signature, ".") {
		return nil, refuse(Malformed, "the token is not three parts joined by dots")
	}
	t := &token{signed: raw[:len(raw)-len(signature)-1]}
	if err := t.readHeader(header); err != nil {
		return nil, err
	}
	if err := t.readPayload(payload); err != nil {
		return nil, err
	}
	if t.signature, ok = decode(signature); !ok {
		return nil, refuse(Malformed, "the signature is not base64url")
	}
	return t, nil
}

func (t *token) readHeader(part string) error {
	_, members, err := object("header", part)
	if err != nil {
		return err
	}
	for _, m := range members {
		ok := true
		switch m.Name {
		case "alg":
			t.alg, ok = mcp.Text(m.Value)
		case "kid":
			t.kid, ok = mcp.Text(m.Value)
		case "typ":
			var typ string
			typ, ok = mcp.Text(m.Value)
			t.typ = tokenType(typ)
		case "crit":
			return refuse(Malformed, "the header has crit, and no extension is understood")
		}
		if !ok {
			return refuse(Malformed, "the header's "+m.Name+" is not a string")
		}
	}
	if t.alg == "" {
		return refuse(Malformed, "the header has no alg")
	}
	return nil
}

func (t *token) readPayload(part string) (err error) {
	if t.payload, t.claims, err = object("payload", part); err != nil {
		return err
	}
	var ok bool
	if t.issuer, ok = mcp.Text(mcp.Get(t.claims, "iss")); !ok {
		return refuse(BadClaims, "iss is missing or not a string")
	}
	return nil
}

func object(name, part string) (jsontext.Value, []mcp.Member, error) {
	doc, ok := decode(part)
	if !ok {
		return nil, nil, refuse(Malformed, "the "+name+" is not base64url")
	}
	members, err := mcp.Members(doc)
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return nil, nil, refuse(Malformed, "the "+name+" has a member twice")
	case err != nil:
		return nil, nil, refuse(Malformed, "the "+name+" is not one JSON object")
	}
	return doc, members, nil
}

// decode reads base64url without padding. Unlike the standard decoder it takes
// no line breaks, so that one signed content has one spelling.
func decode(part string) ([]byte, bool) {
	if strings.ContainsAny(part, "\r\n") {
		return nil, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(part)
	return b, err == nil
}

// tokenType returns typ in lower case and without its optional prefix (RFC 7515
// section 4.1.9).
func tokenType(typ string) string {
	return strings.TrimPrefix(strings.ToLower(typ), "application/")
}

// audience returns the token's audiences.
func (t *token) audience() ([]string, error) {
	value := mcp.Get(t.claims, "aud")
	switch value.Kind() {
	case '"':
		one, _ := mcp.Text(value)
		return []string{one}, nil
	case '[':
		return stringList(value)
	}
	return nil, refuse(BadClaims, "aud is missing or neither a string nor a list")
}

func stringList(value jsontext.Value) ([]string, error) {
	dec := jsontext.NewDecoder(strings.NewReader(string(value)))
	if _, err := dec.ReadToken(); err != nil {
		return nil, refuse(BadClaims, "aud is not a list")
	}
	var list []string
	for dec.PeekKind() != ']' {
		item, err := dec.ReadToken()
		if err != nil || item.Kind() != '"' {
			return nil, refuse(BadClaims, "aud has an element that is not a string")
		}
		list = append(list, item.String())
	}
	return list, nil
}

// date returns the claim as a time, and the zero time where it is absent.
func (t *token) date(name string) (time.Time, error) {
	value := mcp.Get(t.claims, name)
	if value == nil {
		return time.Time{}, nil
	}
	if value.Kind() != '0' {
		return time.Time{}, refuse(BadClaims, name+" is not a number")
	}
	seconds, err := strconv.ParseFloat(string(value), 64)
	if err != nil || seconds < 0 || seconds > maxTime {
		return time.Time{}, refuse(BadClaims, name+" is out of range: it counts seconds")
	}
	whole, fraction := math.Modf(seconds)
	return time.Unix(int64(whole), int64(fraction*1e9)), nil
}
