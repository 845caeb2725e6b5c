package estate_test

import (
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/regogate/regogate/e2e/replica"
)

// free is an address that nobody listens on.
func free(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// tells returns what the replica's listener for operators answers.
func (n *node) tells(t testing.TB, path string) (body string) {
	t.Helper()
	replica.Within(t, liveness, "operators are served "+path, func() bool {
		resp, err := http.Get("http://" + n.operators + path)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		body = string(data)
		return err == nil && resp.StatusCode == http.StatusOK
	})
	return body
}
