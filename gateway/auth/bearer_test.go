package auth

import (
	"net/http"
	"runtime"
	"strings"
	"testing"
)

func TestBearer(t *testing.T) {
	good := "abc.DEF-_.123"
	for _, c := range []struct {
		name   string
		values []string
		token  string
		kind   Kind
	}{
		{"good", []string{"Bearer " + good}, good, Other},
		{"lower case", []string{"bearer " + good}, good, Other},
		{"upper case", []string{"BEARER " + good}, good, Other},
		{"opaque", []string{"Bearer sk-abc~+/=="}, "sk-abc~+/==", Other},
		{"none", nil, "", Missing},
		{"empty", []string{""}, "", Malformed},
		{"two spaces", []string{"Bearer  " + good}, "", Malformed},
		{"tab", []string{"Bearer\t" + good}, "", Malformed},
		{"no token", []string{"Bearer"}, "", Malformed},
		{"only a space", []string{"Bearer "}, "", Malformed},
		{"basic", []string{"Basic eDp5"}, "", Malformed},
		{"scheme run on", []string{"Bearerx " + good}, "", Malformed},
		{"no scheme", []string{good}, "", Malformed},
		{"two headers", []string{"Bearer " + good, "Bearer " + good}, "", Malformed},
		{"two headers, one empty", []string{"Bearer " + good, ""}, "", Malformed},
		{"two in one", []string{"Bearer " + good + ", Bearer " + good}, "", Malformed},
		{"parameter", []string{"Bearer token=" + good}, "", Malformed},
		{"padding inside", []string{"Bearer a=b"}, "", Malformed},
		{"quote", []string{`Bearer "` + good + `"`}, "", Malformed},
		{"control", []string{"Bearer a\x00b"}, "", Malformed},
		{"not ASCII", []string{"Bearer é"}, "", Malformed},
		{"longest", []string{"Bearer " + strings.Repeat("a", MaxToken)}, strings.Repeat("a", MaxToken), Other},
		{"too long", []string{"Bearer " + strings.Repeat("a", MaxToken+1)}, "", Malformed},
		{"dots", []string{"Bearer " + strings.Repeat(".", 900_000)}, "", Malformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := http.Header{}
			for _, v := range c.values {
				h.Add("authorization", v)
			}
			token, err := Bearer(h)
			if token != c.token || KindOf(err) != c.kind || (err == nil) != (c.kind == Other) {
				t.Errorf("got %q, %v", token, err)
			}
		})
	}
}

// A hostile header costs next to nothing, however large the server lets it be.
func TestHostileHeaderIsCheap(t *testing.T) {
	v := start(t, config(newIDP(t, keySetOf(t, "rsa1")).URL))
	large := sign(t, signer("rsa1"), map[string]any{"pad": strings.Repeat("x", 200_000)})
	want(t, v, large, Malformed)
	dots := strings.Repeat(".", 900_000)
	for _, token := range []string{large, dots, strings.Repeat(".", MaxToken), strings.Repeat("e30.", MaxToken/4)} {
		h := http.Header{"Authorization": {"Bearer " + token}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 50 {
			if p, err := v.Authenticate(t.Context(), h, nil); p != nil || KindOf(err) != Malformed {
				t.Fatalf("got %v, %v", p, err)
			}
		}
		runtime.ReadMemStats(&after)
		if grown := (after.TotalAlloc - before.TotalAlloc) / 50; grown > uint64(2*MaxToken) {
			t.Errorf("a header of %d bytes allocates %d bytes", len(token), grown)
		}
	}
}

func TestAuthenticate(t *testing.T) {
	c := config(newIDP(t, keySetOf(t, "rsa1")).URL)
	strict := start(t, c)
	c.InsecureAnonymous = &Anonymous{Claims: map[string]any{"sub": "guest", "roles": []any{"viewer"}, "level": int64(9007199254740993)}}
	open := start(t, c)
	const guest = `{"level":9007199254740993,"roles":["viewer"],"sub":"guest"}`

	good := "Bearer " + sign(t, signer("rsa1"), nil)
	for _, c := range []struct {
		name, header string
		strict, open Kind
	}{
		{"good", good, Other, Other},
		{"none", "", Missing, Other},
		{"fabricated", "Bearer sk-abc", Malformed, Malformed},
		{"three letters", "Bearer a.b.c", Malformed, Malformed},
		{"basic", "Basic eDp5", Malformed, Malformed},
		{"another issuer", "Bearer " + sign(t, signer("rsa1"), map[string]any{"iss": "https://other.example.test"}), WrongIssuer, WrongIssuer},
		{"another key", "Bearer " + sign(t, signer("rsa2"), nil), UnknownKey, UnknownKey},
		{"expired", "Bearer " + sign(t, signer("rsa1"), map[string]any{"exp": 1}), Expired, Expired},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := http.Header{}
			if c.header != "" {
				h.Set("Authorization", c.header)
			}
			for _, side := range []struct {
				v    *Verifier
				kind Kind
			}{{strict, c.strict}, {open, c.open}} {
				p, err := side.v.Authenticate(t.Context(), h, nil)
				if KindOf(err) != side.kind || (p == nil) != (side.kind != Other) || (err == nil) != (side.kind == Other) {
					t.Errorf("got %v, %v, want %s", p, err, side.kind.Code())
				}
			}
		})
	}
	p := open.Anonymous()
	if p.Issuer != "" || p.Subject != "guest" || string(p.Claims) != guest || !p.Expires.IsZero() {
		t.Errorf("anonymous principal %+v", p)
	}
	if strict.Anonymous() != nil {
		t.Error("an anonymous principal without configuration")
	}
}
