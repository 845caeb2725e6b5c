package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Admin is a listener for operators, apart from the one for clients. Whoever
// reaches it, or has its token where there is one, reads it and changes how much
// is logged.
type Admin struct {
	Listen    string `yaml:"listen"`     // host:port; none where empty
	TokenFile string `yaml:"token_file"` // with the bearer token that requests must bring; read for each
	Pprof     bool   `yaml:"pprof"`      // serve Go's profiles
	// InsecureNoAuth lets anybody in who reaches an address that is not loopback.
	InsecureNoAuth bool `yaml:"insecure_no_auth"`
}

// admin holds the listener for operators to the rules of its address.
func (v *validation) admin(c *Config) {
	a := c.Admin
	if a.Listen == "" {
		v.check("admin", a == Admin{}, "needs admin.listen: without it nothing is served to operators")
		return
	}
	host, port, err := net.SplitHostPort(a.Listen)
	if v.check("admin.listen", err == nil && isPort(port) && a.Listen != c.Listen, "must be host:port, such as 127.0.0.1:9464, and not the one of listen") {
		v.check("admin.listen", isLoopback(host) || a.TokenFile != "" || a.InsecureNoAuth,
			"others can reach this: give admin.token_file, or say admin.insecure_no_auth: true")
	}
}

// serveAdmin serves operators until ctx is done.
func (g *Gateway) serveAdmin(ctx context.Context) error {
	a := g.config.Admin
	if a.Listen == "" {
		return nil
	}
	if err := a.readable(); err != nil {
		return err
	}
	handler, err := g.adminHandler()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", a.Listen)
	if err != nil {
		return fmt.Errorf("admin.listen: %w: choose another address, or end what uses this one", err)
	}
	server := &http.Server{
		Handler: handler, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		ErrorLog: slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
	}
	if a.Pprof {
		server.WriteTimeout = profileWait
	}
	if a.InsecureNoAuth && a.TokenFile == "" {
		g.log.Warn("admin.insecure_no_auth is set: whoever reaches the listener for operators reads it and changes the log's level")
	}
	g.log.Info("serving operators", "address", listener.Addr().String(), "pprof", a.Pprof)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err = <-served:
		return fmt.Errorf("serve operators: %w", err)
	case <-ctx.Done():
		_ = server.Close()
		<-served
		return nil
	}
}

// profileWait is above how long anybody profiles.
const profileWait = 10 * time.Minute

// readable finds a token file that holds none before anybody is refused for it.
func (a Admin) readable() error {
	if a.TokenFile == "" {
		return nil
	}
	if _, err := a.token(); err != nil {
		return fmt.Errorf("admin.token_file: %w", err)
	}
	return nil
}

func (a Admin) token() (sum [sha256.Size]byte, err error) {
	text, err := os.ReadFile(a.TokenFile)
	if err != nil {
		return sum, fmt.Errorf("%s %s: correct the path, or who may read it", a.TokenFile, unreadable(err))
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return sum, fmt.Errorf("%s holds no token: write one, such as of openssl rand -hex 32", a.TokenFile)
	}
	return sha256.Sum256([]byte(token)), nil
}

func (g *Gateway) adminHandler() (http.Handler, error) {
	metrics := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		g.meter, collector{g}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := metrics.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics: %w", err)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(g.log.Handler(), slog.LevelError), ErrorHandling: promhttp.ContinueOnError,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		g.adminJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", g.adminReady)
	mux.HandleFunc("GET /status", g.adminStatus)
	if g.level != nil {
		mux.HandleFunc("GET /loglevel", g.showLevel)
		mux.HandleFunc("PUT /loglevel", g.setLogLevel)
	}
	if g.config.Admin.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return g.guardAdmin(mux), nil
}

// guardAdmin refuses what a web page could make an operator's browser send, and
// whoever does not bring the token where there is one.
func (g *Gateway) guardAdmin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		rebound := local != nil && isLoopback(hostname(local.String())) && !isLoopback(strings.ToLower(hostname(r.Host)))
		if rebound || r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") == "cross-site" {
			http.Error(w, "this is for operators, under its own address and not from a web page", http.StatusForbidden)
			return
		}
		if !g.operator(r) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "send the token of admin.token_file as Authorization: Bearer", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (g *Gateway) operator(r *http.Request) bool {
	if g.config.Admin.TokenFile == "" {
		return true
	}
	want, err := g.config.Admin.token()
	if err != nil {
		g.log.Error("no operator is let in: the token cannot be read", keyError, err)
		return false
	}
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	got := sha256.Sum256([]byte(given))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// levels are those of the log.
func levels() []string { return []string{"debug", "info", "warn", "error"} }

func (g *Gateway) showLevel(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, strings.ToLower(g.level.Level().String())+"\n")
}

// setLogLevel changes what is logged from now on, until the process ends.
func (g *Gateway) setLogLevel(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64))
	text := strings.TrimSpace(string(body))
	if err != nil || !slices.Contains(levels(), text) {
		http.Error(w, "send one of "+strings.Join(levels(), ", "), http.StatusBadRequest)
		return
	}
	level := levelOf(text)
	g.level.Set(level)
	g.log.Log(r.Context(), max(level, slog.LevelInfo), "the log has another level", "level", text, "remote_addr", r.RemoteAddr)
	g.showLevel(w, r)
}
