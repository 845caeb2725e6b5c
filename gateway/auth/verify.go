package auth

import (
	"context"
	"crypto/sha256"
	"slices"
	"time"

	"github.com/regogate/regogate/gateway/mcp"
)

// tokenID is the SHA-256 of a token's text.
type tokenID [sha256.Size]byte

// verified is what is remembered of a token whose signature and claims are
// good. Whether it is accepted now is judged on each use.
type verified struct {
	principal Principal
	issuer    *issuer
	keys      *keySet // the generation of keys that verified it
	audience  []string
	notBefore time.Time // zero where there is none
	issued    time.Time // zero where there is none
}

// Verify returns the principal that the token proves. It accepts a token only
// if all of this holds:
//
//   - it is at most MaxToken long, three parts, its header and payload strict
//     JSON objects without duplicate names, its header without crit;
//   - its iss is that of a configured issuer;
//   - its typ is that of an access token, its alg on the issuer's list;
//   - a key of the issuer that suits alg verifies the signature;
//   - iss, sub, aud and exp are there, and these, nbf and iat have the right
//     types; the times hold, but for the issuer's clock skew;
//   - its aud names one of audience, or where that is empty one of the issuer's.
//
// The error is an *Error. Verify waits only for keys that are being fetched, a
// second at most, and only while there are none or where the token names an
// unknown key. A token that was accepted is remembered until the keys change.
func (v *Verifier) Verify(ctx context.Context, token string, audience []string) (*Principal, error) {
	if len(token) > MaxToken {
		return nil, refuse(Malformed, tooLong)
	}
	id := tokenID(sha256.Sum256([]byte(token)))
	if known, ok := v.known.Get(id); ok && known.keys == known.issuer.ring.current() {
		return known.accept(v.now(), audience)
	}
	fresh, err := v.examine(ctx, token)
	if err != nil {
		return nil, err
	}
	p, err := fresh.accept(v.now(), audience)
	if err == nil {
		v.known.Add(id, fresh)
	}
	return p, err
}

// examine verifies all of a token that does not depend on the route or the time.
func (v *Verifier) examine(ctx context.Context, raw string) (*verified, error) {
	t, err := parse(raw)
	if err != nil {
		return nil, err
	}
	iss := v.byName[t.issuer]
	switch {
	case iss == nil:
		return nil, refuse(WrongIssuer, "no issuer is configured as "+shown(t.issuer))
	case !iss.takes(t.typ):
		return nil, refuse(WrongType, "a token of type "+shown(t.typ)+" is not an access token of this issuer")
	case !slices.Contains(iss.algorithms, t.alg):
		return nil, refuse(WrongAlg, "alg "+shown(t.alg)+" is not on the issuer's list")
	}
	keys, err := iss.verify(ctx, t)
	if err != nil {
		return nil, err
	}
	return t.verified(iss, keys)
}

// takes reports whether the issuer's access tokens may have the type.
func (iss *issuer) takes(typ string) bool {
	if iss.types != nil {
		return slices.Contains(iss.types, typ)
	}
	return typ == "" || typ == "jwt" || typ == "at+jwt"
}

// verify checks the signature and returns the keys that verified it. A token
// that names no known key is tried again with newer keys, if there are any.
func (iss *issuer) verify(ctx context.Context, t *token) (*keySet, error) {
	keys := iss.ring.current()
	verified, named := keys.verify(t)
	if !verified && !named {
		newer, err := iss.ring.newer(ctx, keys)
		if err != nil {
			return nil, &Error{Unavailable, "the caller gave up while keys were being fetched", err}
		}
		if newer != keys {
			keys = newer
			verified, named = keys.verify(t)
		}
	}
	switch {
	case verified:
		return keys, nil
	case keys == nil:
		return nil, refuse(Unavailable, "there are no usable keys of the issuer now")
	case named:
		return nil, refuse(BadSignature, "the key that the token names does not verify it")
	case t.kid == "":
		return nil, refuse(BadSignature, "no key of the issuer verifies the token")
	}
	return nil, refuse(UnknownKey, "no key of the issuer is named "+shown(t.kid))
}

// verified reads the claims of a token whose signature is good.
func (t *token) verified(iss *issuer, keys *keySet) (*verified, error) {
	out := &verified{issuer: iss, keys: keys}
	subject, ok := mcp.Text(mcp.Get(t.claims, "sub"))
	if !ok || subject == "" {
		return nil, refuse(BadClaims, "sub is missing or not a string with something in it")
	}
	var err error
	if out.audience, err = t.audience(); err != nil {
		return nil, err
	}
	expires, err := t.date("exp")
	if err != nil {
		return nil, err
	}
	if expires.IsZero() {
		return nil, refuse(BadClaims, "exp is missing")
	}
	if out.notBefore, err = t.date("nbf"); err != nil {
		return nil, err
	}
	if out.issued, err = t.date("iat"); err != nil {
		return nil, err
	}
	out.principal = Principal{Issuer: t.issuer, Subject: subject, Claims: t.payload, Expires: expires}
	return out, nil
}

// accept returns the principal if the token is accepted at this time for one of
// these audiences.
func (k *verified) accept(now time.Time, audience []string) (*Principal, error) {
	skew := k.issuer.config.skew()
	switch {
	case !now.Before(k.principal.Expires.Add(skew)):
		return nil, refuse(Expired, "exp has passed "+now.Sub(k.principal.Expires).Round(time.Second).String()+" ago")
	case now.Add(skew).Before(k.notBefore):
		return nil, refuse(NotYetValid, "nbf is "+k.notBefore.Sub(now).Round(time.Second).String()+" ahead")
	case now.Add(skew).Before(k.issued):
		return nil, refuse(NotYetValid, "iat is "+k.issued.Sub(now).Round(time.Second).String()+" ahead")
	}
	if len(audience) == 0 {
		audience = k.issuer.config.Audience
	}
	for _, a := range k.audience {
		if a != "" && slices.Contains(audience, a) {
			return &k.principal, nil
		}
	}
	return nil, refuse(WrongAudience, "aud names nothing that is accepted here")
}
