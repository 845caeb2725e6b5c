package estate_test

import (
	"io"
	"net/http"
	"regexp"
	"testing"

	"github.com/regogate/regogate/e2e/replica"
)

var operators = regexp.MustCompile(`"msg":"serving operators","address":"([^"]+)"`)

// operators returns what the listener for operators answers.
func (n *node) operators(t testing.TB, path string) (body string) {
	t.Helper()
	replica.Within(t, liveness, "operators are served "+path, func() bool {
		found := operators.FindStringSubmatch(n.Log())
		if found == nil {
			return false
		}
		resp, err := http.Get("http://" + found[1] + path)
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
