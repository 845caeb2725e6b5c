package auth

import (
	"errors"
	"slices"
	"testing"
)

func TestMetadataURL(t *testing.T) {
	for _, c := range []struct{ resource, want string }{
		{"https://gw.example.test/mcp", "https://gw.example.test/.well-known/oauth-protected-resource/mcp"},
		{"https://gw.example.test/mcp/stripe", "https://gw.example.test/.well-known/oauth-protected-resource/mcp/stripe"},
		{"https://gw.example.test:8443/mcp/", "https://gw.example.test:8443/.well-known/oauth-protected-resource/mcp/"},
		{"https://gw.example.test", "https://gw.example.test/.well-known/oauth-protected-resource"},
		{"https://gw.example.test/", "https://gw.example.test/.well-known/oauth-protected-resource"},
		{"http://127.0.0.1:8080/a%20b?tenant=x", "http://127.0.0.1:8080/.well-known/oauth-protected-resource/a%20b?tenant=x"},
		{"gw.example.test/mcp", ""},
		{"ftp://gw.example.test/mcp", ""},
		{"https://u:p@gw.example.test/mcp", ""},
		{"https://gw.example.test/mcp#x", ""},
		{"https://gw.example.test/\r\nX: y", ""},
	} {
		got, err := MetadataURL(c.resource)
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("MetadataURL(%q) = %q, %v, want %q", c.resource, got, err, c.want)
		}
	}
}

func TestDocument(t *testing.T) {
	for _, c := range []struct {
		resource Resource
		want     string
	}{
		{Resource{URL: "https://gw.example.test/mcp", Name: "Gateway", AuthorizationServers: []string{testIssuer}, Scopes: []string{"a", "b:c"}},
			`{"resource":"https://gw.example.test/mcp","authorization_servers":["https://idp.example.test"],"scopes_supported":["a","b:c"],"bearer_methods_supported":["header"],"resource_name":"Gateway"}`},
		{Resource{URL: "https://gw.example.test/mcp?a=1&b=2"},
			`{"resource":"https://gw.example.test/mcp?a=1&b=2","bearer_methods_supported":["header"]}`},
	} {
		got, err := c.resource.Document()
		if string(got) != c.want || err != nil {
			t.Errorf("got %s, %v\nwant %s", got, err, c.want)
		}
	}
}

func TestChallenges(t *testing.T) {
	const at = "https://gw.example.test/.well-known/oauth-protected-resource/mcp"
	const invalid = `, error="invalid_token", error_description="The access token is not valid for this resource"`
	const more = `, error_description="The operation needs more scopes"`
	plain, scoped := Challenge{Metadata: at}, Challenge{Metadata: at, Scopes: []string{"tools:read", "tools:list"}}
	hostile := Challenge{Metadata: "https://h/\"x\\\r\nSet-Cookie: a=b\x7fé", Scopes: []string{`a"b`, "c d", "e\r\nf", "", "g", `h\`}}
	for _, c := range []struct{ got, want string }{
		{plain.Unauthorized(refuse(Missing, "")), `Bearer resource_metadata="` + at + `"`},
		{scoped.Unauthorized(refuse(Missing, "")), `Bearer resource_metadata="` + at + `", scope="tools:read tools:list"`},
		{plain.Unauthorized(refuse(Expired, "")), `Bearer resource_metadata="` + at + `"` + invalid},
		{scoped.Unauthorized(refuse(Unavailable, "")), `Bearer resource_metadata="` + at + `", scope="tools:read tools:list"` + invalid},
		{plain.Unauthorized(errors.New("x")), `Bearer resource_metadata="` + at + `"` + invalid},
		{plain.InsufficientScope([]string{"files:write", "files:read"}),
			`Bearer error="insufficient_scope", scope="files:write files:read", resource_metadata="` + at + `"` + more},
		{scoped.InsufficientScope(nil), `Bearer error="insufficient_scope", resource_metadata="` + at + `"` + more},
		{hostile.Unauthorized(refuse(Missing, "")), `Bearer resource_metadata="https://h/\"x\\??Set-Cookie: a=b???", scope="g"`},
	} {
		if c.got != c.want {
			t.Errorf("got  %s\nwant %s", c.got, c.want)
		}
	}
}

func TestWhatIsPublished(t *testing.T) {
	c := config("https://idp.example.test/jwks")
	c.Issuers[0].ScopesSupported = []string{"b", "a"}
	second, third := c.Issuers[0], c.Issuers[0]
	second.Issuer, second.ScopesSupported = "internal", []string{"a", "c"}
	third.Issuer, third.ScopesSupported = "https://two.example.test/", nil
	c.Issuers = append(c.Issuers, second, third)
	v, err := New(c, quiet())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := v.AuthorizationServers(), []string{testIssuer, "https://two.example.test/"}; !slices.Equal(got, want) {
		t.Errorf("authorization servers %q, want %q", got, want)
	}
	if got, want := v.Scopes(), []string{"b", "a", "c"}; !slices.Equal(got, want) {
		t.Errorf("scopes %q, want %q", got, want)
	}
}

// Codes stand in records and dashboards: each kind has one of its own.
func TestCodes(t *testing.T) {
	want := []string{"auth_error", "token_missing", "token_malformed", "token_type", "token_issuer", "token_algorithm",
		"token_key", "token_signature", "token_claims", "token_expired", "token_not_yet_valid", "token_audience", "keys_unavailable"}
	var got []string
	for k := Other; k <= Unavailable; k++ {
		got = append(got, k.Code())
	}
	if !slices.Equal(got, want) {
		t.Errorf("codes %q, want %q", got, want)
	}
}
