package cases

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// host is an HTTP server at an address that stays its own while it goes down and
// comes up again, and that answers as its mode says. It is safe for concurrent
// use.
type host struct {
	addr    string
	handler http.Handler

	mu     sync.Mutex
	server *http.Server
	served chan struct{}
	mode   string
	on     string        // the mode is only for this MCP method
	turned chan struct{} // closed when the mode changes
}

// newHost returns a host that open has to bring up.
func newHost() *host { return &host{addr: "127.0.0.1:0", turned: make(chan struct{})} }

// open serves handler on a port of its own.
func (h *host) open(handler http.Handler) error {
	h.handler = handler
	return h.up()
}

func (h *host) url() string { return "http://" + h.addr }

// turn changes the mode: see Action.
func (h *host) turn(mode, on string) error {
	h.mu.Lock()
	h.mode, h.on = mode, on
	close(h.turned)
	h.turned = make(chan struct{})
	h.mu.Unlock()
	if mode == "down" {
		h.down()
		return nil
	}
	return h.up()
}

func (h *host) up() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.server != nil {
		return nil
	}
	var l net.Listener
	var err error
	for range 40 { // somebody else may have the port for a moment
		if l, err = net.Listen("tcp", h.addr); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("bring a server up: %w", err)
	}
	h.addr = l.Addr().String()
	h.server, h.served = &http.Server{Handler: h.handler, ReadHeaderTimeout: time.Minute}, make(chan struct{})
	go func(s *http.Server, served chan struct{}) {
		defer close(served)
		_ = s.Serve(l) // ends with down
	}(h.server, h.served)
	return nil
}

func (h *host) down() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.server != nil {
		_ = h.server.Close()
		<-h.served
		h.server = nil
	}
}

// misbehave answers as the mode says and reports whether it did. method is the
// MCP method that is asked for, if there is one.
func (h *host) misbehave(w http.ResponseWriter, r *http.Request, method string) bool {
	h.mu.Lock()
	mode, on, turned := h.mode, h.on, h.turned
	h.mu.Unlock()
	if mode == "" || mode == "up" || on != "" && on != method {
		return false
	}
	to, isRedirect := strings.CutPrefix(mode, "redirect ")
	status, err := strconv.Atoi(mode)
	switch {
	case mode == "html":
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<html><body>Log in</body></html>"))
	case isRedirect:
		http.Redirect(w, r, to, http.StatusTemporaryRedirect)
	case err == nil:
		http.Error(w, "no", status)
	case mode == "slow":
		wait(r, turned, time.Second)
		return false
	case mode == "hang":
		wait(r, turned, time.Hour)
	case mode == "stall":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		wait(r, turned, time.Hour)
	case mode == "trickle":
		w.Header().Set("Content-Type", "application/json")
		for !wait(r, turned, time.Second) {
			_, _ = w.Write([]byte(" "))
			_ = http.NewResponseController(w).Flush()
		}
	default:
		http.Error(w, "the case asks for an unknown mode: "+mode, http.StatusTeapot)
	}
	return true
}

// wait reports whether the client left or the mode changed within d.
func wait(r *http.Request, turned <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-r.Context().Done():
		return true
	case <-turned:
		return true
	case <-timer.C:
		return false
	}
}

// knownMode reports whether misbehave knows the mode.
func knownMode(mode string) bool {
	switch mode {
	case "", "up", "down", "slow", "hang", "stall", "trickle", "html":
		return true
	}
	if strings.HasPrefix(mode, "redirect ") {
		return true
	}
	status, err := strconv.Atoi(mode)
	return err == nil && status >= 200 && status <= 599
}
