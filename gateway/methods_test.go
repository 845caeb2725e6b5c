package gateway

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestMethodsAreDocumented holds the table of the README true to the one in the
// code.
func TestMethodsAreDocumented(t *testing.T) {
	readme, err := os.ReadFile("METHODS.md")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, table := range []map[string]row{fromClients, fromServers} {
		for _, method := range slices.Sorted(maps.Keys(table)) {
			lines = append(lines, document(table[method]))
		}
	}
	var found []string
	for line := range strings.SplitSeq(string(readme), "\n") {
		if strings.HasPrefix(line, "| `") {
			found = append(found, line)
		}
	}
	if want := strings.Join(lines, "\n"); strings.Join(found, "\n") != want {
		t.Errorf("the tables of METHODS.md differ from those of methods.go, which are:\n%s", want)
	}
}

func document(r row) string {
	era := map[eras]string{legacy: "legacy", modern: "modern", both: "both"}[r.eras]
	question := string(r.question)
	if r.question == noQuestion {
		question = "—"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |", r.method, era, question, r.routing)
}
