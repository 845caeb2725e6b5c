package conformance_test

import (
	"context"
	"net"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// startTimeout bounds how long a program may take until it serves.
const startTimeout = 20 * time.Second

// fixture starts the Go SDK's server for the suite and returns its URL. It keeps
// sessions for the legacy revision and none for the modern one. It ends with
// the test.
func (k kit) fixture(t testing.TB, revision string) string {
	t.Helper()
	const attempts = 5
	for range attempts {
		if address := k.tryFixture(t, revision); address != "" {
			return "http://" + address + "/"
		}
	}
	t.Fatalf("the Go SDK's server did not start in %d attempts", attempts)
	return ""
}

// tryFixture returns the empty string where somebody else has got hold of the
// port that was to be the server's, which cannot choose one itself.
func (k kit) tryFixture(t testing.TB, revision string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, k.server, "-http="+address, "-stateless="+strconv.FormatBool(revision == modern))
	group(cmd)
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed
		close(ended)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); {
		select {
		case <-ended:
			return ""
		case <-time.After(10 * time.Millisecond):
		}
		conn, err := net.Dial("tcp", address)
		if err != nil {
			continue
		}
		_ = conn.Close()
		select {
		case <-ended: // somebody else answered
			return ""
		default:
			return address
		}
	}
	t.Fatalf("the Go SDK's server does not listen after %v", startTimeout)
	return ""
}
