package gateway

import (
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/regogate/regogate/gateway/auth"
	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/registry"
)

// Handler returns the public listener's handler.
func (g *Gateway) Handler() http.Handler {
	r := chi.NewRouter()
	r.Use(g.observe, g.guardBrowser)
	r.Get("/healthz", g.healthz)
	r.Get("/readyz", g.readyz)
	r.Get(auth.MetadataPath, g.metadata)
	r.Get(auth.MetadataPath+"/mcp", g.metadata)
	r.Get(auth.MetadataPath+"/mcp/{server}", g.metadata)
	r.HandleFunc("/mcp", g.mcp)
	r.HandleFunc("/mcp/{server}", g.mcp)
	// Nothing else is served, and only those with a token learn that (B062).
	r.NotFound(g.nothing)
	r.MethodNotAllowed(g.notAllowed)
	return r
}

// mcp serves an MCP endpoint: the aggregate, or one server under its own tool
// names. A server that is not configured is one with nothing visible.
func (g *Gateway) mcp(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r)
	x.server = chi.URLParam(r, "server")
	if f := x.serve(); f != nil {
		x.refuse(f)
	}
}

func (x *exchange) serve() *fault {
	if f := x.authenticate(); f != nil {
		return f
	}
	if x.server != "" && !registry.ValidServer(x.server) {
		return faultHTTP(http.StatusNotFound, codeNotFound)
	}
	if wait := x.g.limits.Principal(x.ctx, x.principal.Key()); wait > 0 {
		return faultRate("principal", wait)
	}
	switch x.r.Method {
	case http.MethodPost:
		if !x.g.slots.take(x.principal.Key()) {
			return faultBusy(codeBusy, "too many requests at once: wait for one to end")
		}
		x.leave = sync.OnceFunc(func() { x.g.slots.give(x.principal.Key()) })
		defer x.leave()
		return x.post()
	case http.MethodGet, http.MethodDelete:
		if mcp.EraOf(x.r.Header.Get(mcp.HeaderVersion)) == mcp.Modern {
			x.w.Header().Set("Allow", http.MethodPost) // MCP 2026-07-28, Streamable HTTP
			return faultHTTP(http.StatusMethodNotAllowed, codeHTTPMethod)
		}
		if x.r.Method == http.MethodDelete {
			return x.endSession()
		}
		return x.long(x.get)
	}
	x.w.Header().Set("Allow", corsMethods)
	return faultHTTP(http.StatusMethodNotAllowed, codeHTTPMethod)
}

// long serves a stream that stays open, of which a principal has a number beside
// that of its requests.
func (x *exchange) long(serve func() *fault) *fault {
	if !x.g.listeners.take(x.principal.Key()) {
		return faultBusy(codeBusy, "too many open streams: end one")
	}
	defer x.g.listeners.give(x.principal.Key())
	x.lasting = true
	x.g.meter.Streams.Inc()
	defer x.g.meter.Streams.Dec()
	return serve()
}

// authenticate settles who sends the request, on its headers alone.
func (x *exchange) authenticate() *fault {
	defer func(from time.Time) { measure(&x.stages.auth, from) }(time.Now())
	principal, err := x.g.verifier.Authenticate(x.ctx, x.r.Header, x.g.audience(x.server))
	if err == nil {
		x.principal = principal
		x.subject, err = x.g.subjects.of(principal)
	}
	if err != nil {
		// The body has not been read; a client that goes on sending it
		// shall not keep the connection (B110).
		x.w.Header().Set("Connection", "close")
		return &fault{status: http.StatusUnauthorized, code: auth.KindOf(err).Code(), cause: err,
			challenge: x.g.challenge(x.server).Unauthorized(err)}
	}
	return nil
}

func (g *Gateway) nothing(_ http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r)
	if f := x.authenticate(); f != nil {
		x.refuse(f)
		return
	}
	x.refuse(faultHTTP(http.StatusNotFound, codeNotFound))
}

// notAllowed answers HTTP methods that the router does not know, or a path has
// none of.
func (g *Gateway) notAllowed(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r)
	if f := x.authenticate(); f != nil {
		x.refuse(f)
		return
	}
	if r.URL.Path == "/mcp" || strings.HasPrefix(r.URL.Path, "/mcp/") {
		w.Header().Set("Allow", corsMethods)
	} else {
		w.Header().Set("Allow", http.MethodGet)
	}
	x.refuse(faultHTTP(http.StatusMethodNotAllowed, codeHTTPMethod))
}

// metadata serves the RFC 9728 document of a route. It exists for every
// well-formed server name, configured or not.
func (g *Gateway) metadata(_ http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r)
	x.aside, x.server = true, chi.URLParam(r, "server")
	if x.server != "" && !registry.ValidServer(x.server) {
		x.refuse(faultHTTP(http.StatusNotFound, codeNotFound))
		return
	}
	doc, err := auth.Resource{
		URL: g.publicURL + x.routePath(), Name: "regogate",
		AuthorizationServers: g.verifier.AuthorizationServers(), Scopes: g.verifier.Scopes(),
	}.Document()
	if err != nil {
		x.refuse(faultInternal(err))
		return
	}
	x.answer.json(http.StatusOK, doc)
}

// challenge makes the WWW-Authenticate values of a route. A path that is no
// route leads to the aggregate's document.
func (g *Gateway) challenge(server string) auth.Challenge {
	if !registry.ValidServer(server) {
		server = ""
	}
	return auth.Challenge{Metadata: g.metadataURL(server), Scopes: g.verifier.Scopes()}
}

func (g *Gateway) metadataURL(server string) string {
	return g.publicURL + auth.MetadataPath + routePath(server)
}

// audience is whom a token must be meant for on this route; nil means the
// issuer's own list.
func (g *Gateway) audience(server string) []string {
	return g.config.Servers[server].Audience
}

// remoteAddr is the client's address: the peer's, or what a trusted proxy in
// front says of it.
func (g *Gateway) remoteAddr(r *http.Request) string {
	peer := hostname(r.RemoteAddr)
	if !g.trusted(peer) {
		return peer
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0; i-- {
		if hop := strings.TrimSpace(hops[i]); hop != "" && !g.trusted(hop) {
			return clip(hop)
		}
	}
	return peer
}

func (g *Gateway) healthz(_ http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r)
	x.aside = true
	x.answer.json(http.StatusOK, []byte(`{"status":"ok"}`))
}
