package catalogue_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type upstream struct {
	Server      string `json:"server"`
	Tool        string `json:"tool"` // in tools-507.jsonl
	Name        string `json:"name"` // in real-tools.jsonl
	Description string `json:"description"`
}

// readShared skips the test where the collection of public definitions, which
// lies beside the repository and is no part of it, is absent.
func readShared(t *testing.T, name string) []upstream {
	t.Helper()
	path := filepath.Join("..", "..", "..", "shared", "data", name)
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("%s is absent: this test compares the catalogue with the public definitions it was made from", path)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })

	var all []upstream
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 16<<20)
	for scanner.Scan() {
		var one upstream
		if err := json.Unmarshal(scanner.Bytes(), &one); err != nil {
			t.Fatalf("%s: line %d: %v", path, len(all)+1, err)
		}
		all = append(all, one)
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatalf("%s is empty", path)
	}
	return all
}

func TestPairsAreThoseOfTheChoice(t *testing.T) {
	servers := load(t)
	missing := make(map[string]bool)
	for id, s := range servers {
		for name := range s.tools {
			missing[id+"."+name] = true
		}
	}
	for _, u := range readShared(t, "tools-507.jsonl") {
		where := u.Server + "." + u.Tool
		if !missing[where] {
			t.Errorf("%s is in the choice but not in the catalogue", where)
		}
		delete(missing, where)
	}
	for where := range missing {
		t.Errorf("%s is in the catalogue but not in the choice", where)
	}
}

// Every description is our own: none equals an upstream one, and none shares
// a run of 40 bytes with any of them, whatever the case and the white space.
func TestDescriptionsAreOurOwn(t *testing.T) {
	const run = 40
	ours, runs := make(map[string]string), make(map[string]string)
	for id, s := range load(t) {
		for name, tool := range s.tools {
			text, where := plain(tool.Description), id+"."+name
			ours[text] = where
			for i := 0; i+run <= len(text); i++ {
				runs[text[i:i+run]] = where
			}
		}
	}
	for _, u := range readShared(t, "real-tools.jsonl") {
		text := plain(u.Description)
		if where, ok := ours[text+"."]; ok {
			t.Errorf("%s has the description of %s.%s", where, u.Server, u.Name)
		}
		if where, ok := ours[text]; ok {
			t.Errorf("%s has the description of %s.%s", where, u.Server, u.Name)
		}
		for i := 0; i+run <= len(text); i++ {
			if where, ok := runs[text[i:i+run]]; ok {
				t.Errorf("%s shares %q with %s.%s", where, text[i:i+run], u.Server, u.Name)
				break
			}
		}
	}
}

func plain(text string) string {
	return strings.ToLower(strings.Join(strings.Fields(text), " "))
}
