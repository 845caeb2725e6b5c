package conformance_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/regogate/regogate/e2e/binary"
)

// patience is how many milliseconds the suite waits for a client, which may have
// to wait for its turn.
const patience = "150000"

// TestClient has the suite judge the Go SDK's client directly, and once more
// with a gateway between the two. What the suite sees then is the gateway's side
// towards servers; it must be no worse than the client.
func TestClient(t *testing.T) {
	k := installed(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	policies, err := filepath.Abs(policyDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, revision := range []string{legacy, modern} {
		t.Run(revision, func(t *testing.T) {
			direct := k.run(t, "client", revision, "--command", k.client)
			t.Setenv(driverVariable, binary.Path(t))
			t.Setenv(clientVariable, k.client)
			t.Setenv(policiesVariable, policies)
			t.Setenv(turnsVariable, t.TempDir())
			t.Setenv(revisionVariable, revision)
			through := k.run(t, "client", revision, "--command", self, "--timeout", patience)
			compare(t, direct, through, true, exceptions(t, "testdata/client.yaml", revision))
		})
	}
}
