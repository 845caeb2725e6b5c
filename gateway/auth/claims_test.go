package auth

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestAudienceShapes(t *testing.T) {
	v := start(t, config(newIDP(t, keySetOf(t, "rsa1")).URL))
	url := config(newIDP(t, keySetOf(t, "rsa1")).URL)
	url.Issuers[0].Audience = []string{"https://gw.example.test/mcp"}
	vURL := start(t, url)
	for _, c := range []struct {
		v    *Verifier
		aud  string
		kind Kind
	}{
		{v, `"mcp-gateway"`, Other},
		{v, `["x","mcp-gateway"]`, Other},
		{v, `["x"]`, WrongAudience},
		{v, `[]`, WrongAudience},
		{v, `""`, WrongAudience},
		{v, ``, BadClaims},
		{v, `null`, BadClaims},
		{v, `["mcp-gateway",5]`, BadClaims},
		{v, `["mcp-gateway",null]`, BadClaims},
		{v, `[["mcp-gateway"]]`, BadClaims},
		{v, `"MCP-GATEWAY"`, WrongAudience},
		{v, `"mcp-gateway "`, WrongAudience},
		{v, `"mcp-gatewayx"`, WrongAudience},
		{v, `"x mcp-gateway"`, WrongAudience},
		{v, `{"a":1}`, BadClaims},
		{v, `{"mcp-gateway":"mcp-gateway"}`, BadClaims},
		{v, `5`, BadClaims},
		{v, `true`, BadClaims},
		{v, `"mcp\u002dgateway"`, Other},
		{vURL, `"https://gw.example.test/mcp"`, Other},
		{vURL, `"https://gw.example.test/mcp/"`, WrongAudience},
		{vURL, `"https://GW.example.test/mcp"`, WrongAudience},
		{vURL, `"https://gw.example.test"`, WrongAudience},
	} {
		t.Run(c.aud, func(t *testing.T) {
			more := fmt.Sprintf(`{"iss":%q,"sub":"agent-1","exp":%d`, testIssuer, time.Now().Add(time.Minute).Unix())
			if c.aud != "" {
				more += `,"aud":` + c.aud
			}
			want(t, c.v, signText(t, signer("rsa1"), string(signer("rsa1").Header()), more+"}"), c.kind)
		})
	}
}

func TestAudienceOfTheRoute(t *testing.T) {
	v := start(t, config(newIDP(t, keySetOf(t, "rsa1")).URL))
	token := sign(t, signer("rsa1"), map[string]any{"aud": []string{"route-a", "route-b"}})
	for _, c := range []struct {
		audience []string
		kind     Kind
	}{
		{nil, WrongAudience},
		{[]string{"route-a"}, Other},
		{[]string{"route-c"}, WrongAudience}, // remembered by now, and refused all the same
		{[]string{"route-c", "route-b"}, Other},
		{[]string{""}, WrongAudience},
		{[]string{"ROUTE-A"}, WrongAudience},
	} {
		_, err := v.Verify(t.Context(), token, c.audience)
		if KindOf(err) != c.kind || (err == nil) != (c.kind == Other) {
			t.Errorf("audience %q: %v, want %s", c.audience, err, c.kind.Code())
		}
	}
	empty := sign(t, signer("rsa1"), map[string]any{"aud": ""})
	if _, err := v.Verify(t.Context(), empty, []string{""}); KindOf(err) != WrongAudience {
		t.Errorf("an empty audience: %v", err)
	}
}

func TestClaims(t *testing.T) {
	v := start(t, config(newIDP(t, keySetOf(t, "rsa1")).URL))
	now := time.Now()
	in := func(d time.Duration) int64 { return now.Add(d).Unix() }
	for _, c := range []struct {
		name    string
		changes map[string]any
		kind    Kind
	}{
		{"good", nil, Other},
		{"no iss", map[string]any{"iss": nil}, BadClaims},
		{"iss a number", map[string]any{"iss": 5}, BadClaims},
		{"iss a list", map[string]any{"iss": []string{testIssuer}}, BadClaims},
		{"another iss", map[string]any{"iss": "https://evil.example.test"}, WrongIssuer},
		{"iss with a slash", map[string]any{"iss": testIssuer + "/"}, WrongIssuer},
		{"iss in capitals", map[string]any{"iss": strings.ToUpper(testIssuer)}, WrongIssuer},
		{"empty iss", map[string]any{"iss": ""}, WrongIssuer},
		{"no sub", map[string]any{"sub": nil}, BadClaims},
		{"empty sub", map[string]any{"sub": ""}, BadClaims},
		{"sub a number", map[string]any{"sub": 1}, BadClaims},
		{"no exp", map[string]any{"exp": nil}, BadClaims},
		{"exp a string", map[string]any{"exp": "9999999999"}, BadClaims},
		{"exp in milliseconds", map[string]any{"exp": now.Add(time.Hour).UnixMilli()}, BadClaims},
		{"exp negative", map[string]any{"exp": -1}, BadClaims},
		{"exp true", map[string]any{"exp": true}, BadClaims},
		{"exp zero", map[string]any{"exp": 0}, Expired},
		{"exp with a fraction", map[string]any{"exp": float64(in(time.Minute)) + 0.5}, Other},
		{"expired within skew", map[string]any{"exp": in(-20 * time.Second)}, Other},
		{"expired beyond skew", map[string]any{"exp": in(-31 * time.Second)}, Expired},
		{"nbf past", map[string]any{"nbf": in(-time.Hour)}, Other},
		{"nbf within skew", map[string]any{"nbf": in(20 * time.Second)}, Other},
		{"nbf beyond skew", map[string]any{"nbf": in(45 * time.Second)}, NotYetValid},
		{"nbf a string", map[string]any{"nbf": "1"}, BadClaims},
		{"iat past", map[string]any{"iat": in(-time.Hour)}, Other},
		{"iat beyond skew", map[string]any{"iat": in(45 * time.Second)}, NotYetValid},
		{"iat a list", map[string]any{"iat": []int{1}}, BadClaims},
	} {
		t.Run(c.name, func(t *testing.T) { want(t, v, sign(t, signer("rsa1"), c.changes), c.kind) })
	}
}

// The numbers that only text can say.
func TestNumericDates(t *testing.T) {
	v := start(t, config(newIDP(t, keySetOf(t, "rsa1")).URL))
	for _, c := range []struct {
		exp  string
		kind Kind
	}{
		{"4.0e9", Other},
		{"4000000000.000", Other},
		{"1e400", BadClaims},
		{"253402300800", BadClaims},
		{"null", BadClaims},
	} {
		body := fmt.Sprintf(`{"iss":%q,"aud":%q,"sub":"agent-1","exp":%s}`, testIssuer, testAudience, c.exp)
		want(t, v, signText(t, signer("rsa1"), string(signer("rsa1").Header()), body), c.kind)
	}
}

func TestClaimsReachPoliciesAsSigned(t *testing.T) {
	v := start(t, config(newIDP(t, keySetOf(t, "rsa1")).URL))
	for _, more := range []string{
		`,"scope":"tools:read tools:list"`,
		`,"scope":["tools:read"]`,
		`,"scope":"tools:readwrite"`,
		`,"scope":"xtools:read"`,
		`,"scope":"tools:read\ttools:admin"`,
		`,"scope":""`,
		`,"scope":null`,
		`,"scp":"tools:read"`,
		`,"scp":["tools:read"]`,
		`,"tenant":9007199254740993,"ratio":1.10,"big":123456789012345678901234567890,"e":1E+2`,
		` , "Scope" : "kept" , "EXP" : 1 , "aud " : "x" `,
		`,"text":"a\u0062\/c \ud83d\ude00 é"`,
		`,"nested":{"b":[1,{"a":null}],"a":false}`,
	} {
		t.Run(more, func(t *testing.T) {
			body := payload(more)
			token := signText(t, signer("rsa1"), string(signer("rsa1").Header()), body)
			for _, use := range []string{"verified", "remembered"} {
				p, err := v.Verify(t.Context(), token, nil)
				if err != nil {
					t.Fatalf("%s: %v", use, err)
				}
				if string(p.Claims) != body {
					t.Errorf("%s: claims %s, want %s", use, p.Claims, body)
				}
			}
		})
	}
}

func TestPrincipal(t *testing.T) {
	v := start(t, config(newIDP(t, keySetOf(t, "rsa1")).URL))
	exp := time.Now().Add(time.Hour).Unix()
	p, err := v.Verify(t.Context(), sign(t, signer("rsa1"), map[string]any{"exp": exp}), nil)
	if err != nil {
		t.Fatal(err)
	}
	if p.Issuer != testIssuer || p.Subject != "agent-1" || p.Expires.Unix() != exp {
		t.Errorf("principal %+v", p)
	}
	keys := map[string]Principal{}
	for _, q := range []Principal{
		{Issuer: "a", Subject: "b"}, {Issuer: "ab"}, {Subject: "ab"}, {Issuer: "a:", Subject: "b"},
		{Issuer: "a", Subject: ":b"}, {Issuer: "1:a", Subject: "b"}, {Subject: "1:ab"},
	} {
		if other, ok := keys[q.Key()]; ok {
			t.Errorf("%+v and %+v share the key %q", q, other, q.Key())
		}
		keys[q.Key()] = q
	}
}
