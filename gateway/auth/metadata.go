package auth

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MetadataPath is the path under which the metadata of protected resources
// lies (RFC 9728); the resource's own path follows it.
const MetadataPath = "/.well-known/oauth-protected-resource"

// Resource is what the world may know of one protected resource.
type Resource struct {
	// URL is exactly what clients connect to, such as https://gw.example/mcp.
	URL string
	// Name is for people; it may be empty.
	Name string
	// AuthorizationServers are the issuers that a client can get a token from.
	AuthorizationServers []string
	// Scopes are those that a client asks for at first. They may be empty.
	Scopes []string
}

// Document returns the protected resource metadata of RFC 9728 as JSON.
func (r Resource) Document() (jsontext.Value, error) {
	doc, err := json.Marshal(struct {
		Resource string   `json:"resource"`
		Servers  []string `json:"authorization_servers,omitempty"`
		Scopes   []string `json:"scopes_supported,omitempty"`
		Methods  []string `json:"bearer_methods_supported"`
		Name     string   `json:"resource_name,omitempty"`
	}{r.URL, r.AuthorizationServers, r.Scopes, []string{"header"}, r.Name})
	if err != nil {
		return nil, fmt.Errorf("write the metadata of %s: %w", r.URL, err)
	}
	return doc, nil
}

// MetadataURL returns where the resource's metadata lies: MetadataPath goes
// between its host and its path. The resource is an absolute http or https URL
// without user and fragment.
func MetadataURL(resource string) (string, error) {
	u, err := url.Parse(resource)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.Fragment != "" {
		return "", fmt.Errorf("make the metadata URL of %s: not an http or https URL of a resource", shown(resource))
	}
	path := u.EscapedPath()
	if path == "/" {
		path = ""
	}
	if u.RawQuery != "" {
		path += "?" + u.RawQuery
	}
	return u.Scheme + "://" + u.Host + MetadataPath + path, nil
}

// Challenge makes the WWW-Authenticate values of one route.
type Challenge struct {
	Metadata string   // what MetadataURL returned
	Scopes   []string // what a client asks for at first; may be empty
}

// Unauthorized returns the challenge that goes with 401. Where err says that the
// request brought a token, or what was meant to be one, it carries the error
// invalid_token; why is never told.
func (c Challenge) Unauthorized(err error) string {
	b := &strings.Builder{}
	b.WriteString("Bearer resource_metadata=" + quote(c.Metadata))
	writeScopes(b, c.Scopes)
	if KindOf(err) != Missing {
		b.WriteString(`, error="invalid_token", error_description="The access token is not valid for this resource"`)
	}
	return b.String()
}

// InsufficientScope returns the challenge that goes with 403: all scopes that
// the operation needs, at once. What is not a scope is left out.
func (c Challenge) InsufficientScope(scopes []string) string {
	b := &strings.Builder{}
	b.WriteString(`Bearer error="insufficient_scope"`)
	writeScopes(b, scopes)
	b.WriteString(", resource_metadata=" + quote(c.Metadata))
	b.WriteString(`, error_description="The operation needs more scopes"`)
	return b.String()
}

func writeScopes(b *strings.Builder, scopes []string) {
	valid := slices.DeleteFunc(slices.Clone(scopes), func(s string) bool { return !validScope(s) })
	if len(valid) > 0 {
		b.WriteString(", scope=" + quote(strings.Join(valid, " ")))
	}
}

// validScope reports whether s is a scope-token of RFC 6749 section 3.3.
func validScope(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return s != ""
}

// quote returns s as a quoted-string of RFC 9110. What has no place in a header
// becomes a question mark.
func quote(s string) string {
	b := []byte{'"'}
	for _, c := range []byte(s) {
		switch {
		case c < ' ' || c > '~':
			c = '?'
		case c == '"' || c == '\\':
			b = append(b, '\\')
		}
		b = append(b, c)
	}
	return string(append(b, '"'))
}
