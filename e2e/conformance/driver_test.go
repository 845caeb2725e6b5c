package conformance_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// The suite starts a client anew for each scenario. Where the client is to come
// through the gateway, that is this test binary with these variables.
const (
	driverVariable   = "REGOGATE_CONFORMANCE_GATEWAY"  // path of regogate
	clientVariable   = "REGOGATE_CONFORMANCE_CLIENT"   // path of the Go SDK's client
	policiesVariable = "REGOGATE_CONFORMANCE_POLICIES" // directory
	turnsVariable    = "REGOGATE_CONFORMANCE_TURNS"    // directory
	revisionVariable = "REGOGATE_CONFORMANCE_REVISION" // that the client is to speak
)

// The suite starts the clients of all scenarios at once. Only so many gateways
// run at a time.
const turns = 2

// driverTimeout bounds one scenario, once it has its turn.
const driverTimeout = 20 * time.Second

// drive starts a gateway in front of the server whose URL is the last argument
// and runs the Go SDK's client against the gateway. It returns the client's exit
// status. The gateway's log goes to standard error, which the suite keeps.
func drive(ctx context.Context, binary string, args []string) int {
	end, err := turn(os.Getenv(turnsVariable))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, driverTimeout)
	defer cancel()
	if err := through(ctx, binary, args[len(args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
			return exit.ExitCode()
		}
		return 1
	}
	return 0
}

// turn waits until fewer than so many others hold a directory in dir, and returns
// what ends the turn.
func turn(dir string) (end func(), err error) {
	for {
		for n := range turns {
			held := filepath.Join(dir, strconv.Itoa(n))
			if err := os.Mkdir(held, 0o700); err == nil {
				return func() { _ = os.Remove(held) }, nil
			} else if !errors.Is(err, os.ErrExist) {
				return nil, fmt.Errorf("waiting for a turn: %w", err)
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func through(ctx context.Context, binary, target string) error {
	dir, err := os.MkdirTemp("", "regogate-conformance-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	g, err := open(context.WithoutCancel(ctx), binary, dir, os.Getenv(policiesVariable), target, "auto")
	if err != nil {
		return err
	}
	to := g.URL
	if os.Getenv(revisionVariable) == legacy {
		plain, err := withoutDiscovery(g.URL)
		if err != nil {
			return errors.Join(err, g.stop())
		}
		defer plain.Close()
		to = plain.URL
	}
	cmd := exec.CommandContext(ctx, os.Getenv(clientVariable), to)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.WaitDelay = time.Second
	err = errors.Join(cmd.Run(), g.stop())
	fmt.Fprintf(os.Stderr, "log of the gateway:\n%s", g.text())
	return err
}

// withoutDiscovery stands before a gateway and knows no server/discover, so that
// the Go SDK's client, which prefers the modern era, speaks the legacy one.
func withoutDiscovery(target string) (*httptest.Server, error) {
	to, err := url.Parse(target)
	if err != nil {
		return nil, fmt.Errorf("finding the gateway: %w", err)
	}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL, r.Out.Host = to, to.Host
	}}
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || bytes.Contains(body, []byte(`"server/discover"`)) {
			http.NotFound(w, r)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	})), nil
}
