package gateway

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// What browser clients may send and read across origins (MCP, Streamable HTTP;
// Fetch standard, CORS protocol).
const (
	corsMethods = "GET, POST, DELETE"
	corsHeaders = "authorization, content-type, accept, mcp-protocol-version, mcp-session-id, mcp-method, mcp-name, last-event-id"
	corsExpose  = "Mcp-Session-Id, WWW-Authenticate, Server-Timing"
)

// guardBrowser refuses what a web page could make a browser send on its own:
// an Origin that is not on the list, and a Host that is not loopback on a
// listener that is (DNS rebinding). It runs before anything is read, on every
// path.
func (g *Gateway) guardBrowser(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.hostAllowed(r) {
			exchangeOf(r).refuse(faultOrigin(fmt.Sprintf("Host %q is refused: where clients use it, name it in allowed_hosts or public_url", clip(r.Host))))
			return
		}
		origin, present := r.Header["Origin"]
		if !present {
			if r.Header.Get("Sec-Fetch-Site") == "cross-site" {
				exchangeOf(r).refuse(faultOrigin("a page of another site sent it without an Origin"))
				return
			}
			next.ServeHTTP(w, r)
			return
		}
		if len(origin) != 1 || !g.originAllowed(r, origin[0]) {
			exchangeOf(r).refuse(faultOrigin(fmt.Sprintf("Origin %q is refused: where it is to be trusted, name it in allowed_origins", clip(strings.Join(origin, ", ")))))
			return
		}
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", origin[0])
		h.Set("Access-Control-Expose-Headers", corsExpose)
		h.Add("Vary", "Origin")
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			h.Set("Access-Control-Allow-Methods", corsMethods)
			h.Set("Access-Control-Allow-Headers", allowHeaders(r))
			h.Set("Access-Control-Max-Age", "600")
			exchangeOf(r).answer.empty(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// originAllowed accepts what the operator named, and the gateway's own origin:
// that of its public URL, and on loopback the very one that was asked, whose
// Host has been checked.
func (g *Gateway) originAllowed(r *http.Request, origin string) bool {
	if slices.Contains(g.config.AllowedOrigins, origin) || origin == g.publicURL {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Scheme == "http" && u.Host == r.Host && isLoopback(u.Hostname())
}

// allowHeaders adds the Mcp-Param-* headers that a pre-flight asks for to the
// fixed list; their names come from tool schemas.
func allowHeaders(r *http.Request) string {
	out := corsHeaders
	for name := range strings.SplitSeq(r.Header.Get("Access-Control-Request-Headers"), ",") {
		if name = strings.ToLower(strings.TrimSpace(name)); strings.HasPrefix(name, "mcp-param-") && len(out) < 2048 {
			out += ", " + name
		}
	}
	return out
}

// hostAllowed accepts any Host where the operator named none and the listener
// is not on loopback; a token protects those. On loopback only loopback names,
// the public URL's host and configured ones are accepted.
func (g *Gateway) hostAllowed(r *http.Request) bool {
	host := strings.ToLower(hostname(r.Host))
	if slices.Contains(g.config.AllowedHosts, host) || host == g.publicHost {
		return true
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && isLoopback(hostname(local.String())) {
		return isLoopback(host)
	}
	return len(g.config.AllowedHosts) == 0
}

func hostname(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.Trim(hostport, "[]")
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
