package upstream

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// TestOrphans: a server ends when the gateway is killed, even one that ignores
// that its input ends.
func TestOrphans(t *testing.T) {
	record := t.TempDir() + "/record"
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	gateway := exec.Command(self)
	gateway.Env = append(os.Environ(), gatewayEnv+"="+record)
	if err := gateway.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	eventually(t, "the list", func() bool {
		if countRecorded(t, record, "tools/list") < 3 {
			return false
		}
		first, _, _ := strings.Cut(recorded(t, record)[0], " ")
		pid, _ = strconv.Atoi(first)
		return true
	})
	if !alive(pid) {
		t.Fatalf("the server %d has ended by itself", pid)
	}
	gateway.Process.Kill()
	gateway.Wait()
	eventually(t, "the end of the server", func() bool { return !alive(pid) })
}
