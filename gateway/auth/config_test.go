package auth

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// oneIssuer is a good configuration with one change.
func oneIssuer(change func(*Issuer)) Config {
	i := Issuer{Issuer: testIssuer, Audience: []string{testAudience}, JWKSURL: "https://idp.example.test/jwks"}
	change(&i)
	return Config{Issuers: []Issuer{i}}
}

type faulty struct {
	name   string
	config Config
	want   []string
}

func checkAll(t *testing.T, cases []faulty) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, p := range c.config.Validate() {
				got = append(got, p.String())
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
			v, err := New(c.config, quiet())
			if (v == nil) != (err != nil) || err != nil && err.Error() != strings.Join(c.want, "\n") {
				t.Errorf("New: %v", err)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	good := oneIssuer(func(*Issuer) {}).Issuers[0]
	checkAll(t, []faulty{
		{"good", Config{Issuers: []Issuer{good}}, nil},
		{"nothing", Config{}, []string{"issuers: no issuer: add one, or set insecure_anonymous for a trial without tokens"}},
		{"only anonymous", Config{InsecureAnonymous: &Anonymous{Claims: map[string]any{"sub": "x"}}}, nil},
		{"anonymous without claims", Config{InsecureAnonymous: &Anonymous{}},
			[]string{"insecure_anonymous.claims: needs at least one claim, such as sub: anonymous"}},
		{"anonymous without a name", Config{InsecureAnonymous: &Anonymous{Claims: map[string]any{"sub": int64(1)}}},
			[]string{"insecure_anonymous.claims: sub must be a string that is not empty"}},
		{"anonymous beyond JSON", Config{InsecureAnonymous: &Anonymous{Claims: map[string]any{"a": []any{math.NaN()}}}},
			[]string{"insecure_anonymous.claims: a value in it cannot be written as JSON"}},
		{"empty issuer", Config{Issuers: []Issuer{{}}}, []string{
			"issuers[0].issuer: must be the exact value of the tokens' iss, without white space around it",
			"issuers[0].audience: must name at least one audience, such as the URL that clients use",
			"issuers[0].jwks_url: set exactly one of jwks_url, jwks_file, public_key_file and insecure_hmac_secret_file (0 are set)",
		}},
		{"white space", oneIssuer(func(i *Issuer) { i.Issuer += " " }),
			[]string{"issuers[0].issuer: must be the exact value of the tokens' iss, without white space around it"}},
		{"twice", Config{Issuers: []Issuer{good, good}},
			[]string{"issuers[1].issuer: is the same as issuers[0].issuer: give each issuer once"}},
		{"empty audience", oneIssuer(func(i *Issuer) { i.Audience = []string{"a", ""} }), []string{"issuers[0].audience[1]: must not be empty"}},
		{"no algorithms", oneIssuer(func(i *Issuer) { i.Algorithms = []string{} }),
			[]string{"issuers[0].algorithms: must not be empty: leave it out for the default"}},
		{"algorithms", oneIssuer(func(i *Issuer) { i.Algorithms = []string{"RS256", "none", "rs256", "HS256"} }), []string{
			`issuers[0].algorithms[1]: "none" is not supported: use RS256, PS256, ES256 or EdDSA, or their longer forms`,
			`issuers[0].algorithms[2]: "rs256" is not supported: use RS256, PS256, ES256 or EdDSA, or their longer forms`,
			"issuers[0].algorithms[3]: HS256 needs insecure_hmac_secret_file",
		}},
		{"all algorithms", oneIssuer(func(i *Issuer) {
			i.Algorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"}
		}), nil},
		{"secret and RS256", oneIssuer(func(i *Issuer) {
			i.JWKSURL, i.InsecureHMACSecretFile, i.Algorithms = "", "s", []string{"HS512", "RS256"}
		}),
			[]string{"issuers[0].algorithms[1]: RS256 does not go with insecure_hmac_secret_file: use HS256, HS384 or HS512"}},
		{"two sources", oneIssuer(func(i *Issuer) { i.JWKSFile = "f" }),
			[]string{"issuers[0].jwks_url: set exactly one of jwks_url, jwks_file, public_key_file and insecure_hmac_secret_file (2 are set)"}},
	})
}

func TestValidateSourceAndTimes(t *testing.T) {
	skew := func(d time.Duration) *time.Duration { return &d }
	checkAll(t, []faulty{
		{"not a URL", oneIssuer(func(i *Issuer) { i.JWKSURL = "file:///etc/passwd" }), []string{"issuers[0].jwks_url: must be an https URL"}},
		{"no host", oneIssuer(func(i *Issuer) { i.JWKSURL = "https:///jwks" }), []string{"issuers[0].jwks_url: must be an https URL"}},
		{"broken URL", oneIssuer(func(i *Issuer) { i.JWKSURL = "https://a b/" }), []string{"issuers[0].jwks_url: must be an https URL"}},
		{"password", oneIssuer(func(i *Issuer) { i.JWKSURL = "https://u:secret@h/" }),
			[]string{"issuers[0].jwks_url: must not have a user, a password or a fragment"}},
		{"http", oneIssuer(func(i *Issuer) { i.JWKSURL = "http://idp.example.test/jwks" }),
			[]string{"issuers[0].jwks_url: must be https, or else whoever answers in its place can sign tokens; insecure_jwks_http: true allows it"}},
		{"http allowed", oneIssuer(func(i *Issuer) { i.JWKSURL, i.InsecureJWKSHTTP = "http://idp.example.test/jwks", true }), nil},
		{"http loopback", oneIssuer(func(i *Issuer) { i.JWKSURL = "http://[::1]:9001/jwks" }), nil},
		{"token types", oneIssuer(func(i *Issuer) { i.TokenTypes = []string{"at+jwt", "", "application/OAUTH-ID-JAG+JWT"} }), []string{
			`issuers[0].token_types[1]: "" is not the type of an access token`,
			`issuers[0].token_types[2]: "application/OAUTH-ID-JAG+JWT" is not the type of an access token`,
		}},
		{"no token types", oneIssuer(func(i *Issuer) { i.TokenTypes = []string{} }),
			[]string{"issuers[0].token_types: must not be empty: leave it out for the default"}},
		{"scopes", oneIssuer(func(i *Issuer) { i.ScopesSupported = []string{"a:b", "a b"} }),
			[]string{"issuers[0].scopes_supported[1]: is not one scope: printable ASCII without spaces, quotes and backslashes"}},
		{"no skew", oneIssuer(func(i *Issuer) { i.ClockSkew = skew(0) }), nil},
		{"times", oneIssuer(func(i *Issuer) {
			i.ClockSkew, i.RefreshInterval, i.MaxStaleness = skew(6*time.Minute), time.Millisecond, -1
		}), []string{
			"issuers[0].clock_skew: must be between 0s and 5m0s",
			"issuers[0].refresh_interval: must be between 1s and 24h0m0s",
			"issuers[0].max_staleness: must be between refresh_interval (1ms) and 720h0m0s",
		}},
		{"stale before refreshed", oneIssuer(func(i *Issuer) { i.MaxStaleness = time.Minute }),
			[]string{"issuers[0].max_staleness: must be between refresh_interval (5m0s) and 720h0m0s"}},
	})
}

func TestClockSkewIsTheIssuersOwn(t *testing.T) {
	c := config(newIDP(t, keySetOf(t, "rsa1")).URL)
	c.Issuers[0].ClockSkew = new(time.Duration)
	v := start(t, c)
	want(t, v, sign(t, signer("rsa1"), map[string]any{"exp": time.Now().Add(-time.Second).Unix()}), Expired)
	want(t, v, sign(t, signer("rsa1"), map[string]any{"nbf": time.Now().Add(5 * time.Second).Unix()}), NotYetValid)
}

func TestDefaultAlgorithms(t *testing.T) {
	v := start(t, config(newIDP(t, keySetOf(t, "rsa1", "ec", "ed")).URL))
	for _, name := range []string{"rsa1", "ec", "ed"} {
		want(t, v, sign(t, signer(name), nil), Other)
	}
	c := config(newIDP(t, edit(t, keySetOf(t, "ed"), map[string]any{"alg": "Ed25519"})).URL)
	c.Issuers[0].Algorithms = []string{"Ed25519"}
	v = start(t, c)
	want(t, v, sign(t, signer("ed"), nil), WrongAlg)
	want(t, v, signText(t, signer("ed"), `{"alg":"Ed25519"}`, payload("")), Other)
}

func TestDecodedFromYAML(t *testing.T) {
	const text = `
issuers:
  - issuer: https://idp.example.test
    audience: [mcp-gateway]
    algorithms: [RS256]
    jwks_url: https://idp.example.test/jwks
    insecure_jwks_http: true
    token_types: [at+jwt]
    scopes_supported: [a]
    clock_skew: 0s
    refresh_interval: 1m
    max_staleness: 2h
  - {issuer: b, audience: [x], jwks_file: f}
  - {issuer: c, audience: [x], public_key_file: f}
  - {issuer: d, audience: [x], insecure_hmac_secret_file: f}
insecure_anonymous:
  claims: {sub: guest}
`
	var c Config
	dec := yaml.NewDecoder(strings.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil {
		t.Fatal(err)
	}
	if problems := c.Validate(); problems != nil {
		t.Errorf("problems %q", problems)
	}
	i := c.Issuers[0]
	if i.skew() != 0 || i.refresh() != time.Minute || i.staleness() != 2*time.Hour || !i.InsecureJWKSHTTP || i.TokenTypes[0] != "at+jwt" {
		t.Errorf("issuer %+v", i)
	}
	file := c.Issuers[1]
	if file.skew() != 30*time.Second || file.refresh() != 2*time.Second || file.staleness() != 24*time.Hour {
		t.Errorf("defaults of a file: %s %s %s", file.skew(), file.refresh(), file.staleness())
	}
}
