package real_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// pixel is a picture, for the tool that reads one.
const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// mark is a word that the calls of one run have in their arguments: the name of
// a directory of theirs, and of what they write.
type mark struct {
	word string
	dir  string
}

// seeds are the files that a directory has to begin with.
func seeds(t testing.TB) map[string]string {
	t.Helper()
	picture, err := base64.StdEncoding.DecodeString(pixel)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{"seed.txt": "a seed\n", "edit.txt": "before\n", "move.txt": "to be moved\n", "seed.png": string(picture)}
}

// newMark makes a directory of its own for the calls of a run.
func (s *stand) newMark(t testing.TB, word string) mark {
	t.Helper()
	m := mark{word, filepath.Join(s.files, word)}
	if err := os.Mkdir(m.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range seeds(t) {
		if err := os.WriteFile(filepath.Join(m.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// arguments are good for the tool of this exposed name, and do no harm. Tools
// that take nothing, and those that are called in vain, get the mark alone.
func (m mark) arguments(t testing.TB, exposed string) json.RawMessage {
	t.Helper()
	type object = map[string]any
	in := func(name string) string { return filepath.Join(m.dir, name) }
	_, name, _ := strings.Cut(exposed, "__")
	all := map[string]object{
		"echo":                           {"message": m.word},
		"get-annotated-message":          {"messageType": "success"},
		"get-resource-links":             {"count": 1},
		"get-resource-reference":         {"resourceType": "Text", "resourceId": 1},
		"get-structured-content":         {"location": "New York"},
		"get-sum":                        {"a": 2, "b": 3},
		"gzip-file-as-resource":          {"name": "x.gz", "data": "data:text/plain,x", "outputType": "resource"},
		"trigger-long-running-operation": {"duration": 0.1, "steps": 1},

		"read_file":                 {"path": in("seed.txt")},
		"read_text_file":            {"path": in("seed.txt")},
		"read_media_file":           {"path": in("seed.png")},
		"read_multiple_files":       {"paths": []string{in("seed.txt"), in("edit.txt")}},
		"write_file":                {"path": in("written.txt"), "content": m.word},
		"edit_file":                 {"path": in("edit.txt"), "edits": []object{{"oldText": "before", "newText": m.word}}},
		"create_directory":          {"path": in("made")},
		"list_directory":            {"path": m.dir},
		"list_directory_with_sizes": {"path": m.dir},
		"directory_tree":            {"path": m.dir},
		"move_file":                 {"source": in("move.txt"), "destination": in("moved.txt")},
		"search_files":              {"path": m.dir, "pattern": "*.txt"},
		"get_file_info":             {"path": in("seed.txt")},

		"create_entities":     {"entities": []object{{"name": m.word, "entityType": "run", "observations": []string{"begun"}}}},
		"create_relations":    {"relations": []object{{"from": m.word, "to": m.word, "relationType": "is"}}},
		"add_observations":    {"observations": []object{{"entityName": m.word, "contents": []string{"going on"}}}},
		"delete_entities":     {"entityNames": []string{m.word + "-gone"}},
		"delete_observations": {"deletions": []object{{"entityName": m.word, "observations": []string{"going on"}}}},
		"delete_relations":    {"relations": []object{{"from": m.word, "to": m.word, "relationType": "is not"}}},
		"search_nodes":        {"query": m.word},
		"open_nodes":          {"names": []string{m.word}},
	}
	arguments := all[name]
	if arguments == nil {
		arguments = object{}
	}
	if strings.HasPrefix(exposed, ledger+"__") {
		arguments["run"] = m.word
	}
	text, err := json.Marshal(arguments)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// texts are what some of the answers have to hold, by tool.
func (m mark) texts() map[string]string {
	return map[string]string{
		"echo": "Echo: " + m.word, "get-sum": "The sum of 2 and 3 is 5.", "read_file": "a seed", "read_text_file": "a seed",
		"read_multiple_files": "a seed", "list_directory": "seed.png", "search_nodes": m.word, "open_nodes": m.word,
		"list_charges": "ledger ran list_charges",
	}
}

// tree reads the files of the mark's directory; a directory ends in a slash.
func (m mark) tree(t testing.TB) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(m.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == m.dir {
			return err
		}
		if d.IsDir() {
			found[d.Name()+"/"] = ""
			return nil
		}
		text, err := os.ReadFile(path)
		found[d.Name()] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// left compares what is on disk after the calls with what they do there.
func (s *stand) left(t testing.TB, m mark, called []string) {
	t.Helper()
	want := seeds(t)
	for _, exposed := range called {
		switch exposed {
		case files + "__write_file":
			want["written.txt"] = m.word
		case files + "__edit_file":
			want["edit.txt"] = m.word + "\n"
		case files + "__create_directory":
			want["made/"] = ""
		case files + "__move_file":
			want["moved.txt"] = want["move.txt"]
			delete(want, "move.txt")
		}
	}
	if got := m.tree(t); !reflect.DeepEqual(got, want) {
		t.Errorf("files of %s: got %q, want %q", m.word, got, want)
	}
	graph, err := os.ReadFile(s.graph)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	remembered := strings.Contains(string(graph), `"`+m.word+`"`)
	if made := slices.Contains(called, memory+"__create_entities"); remembered != made {
		t.Errorf("the graph holds %s: %v, want %v", m.word, remembered, made)
	}
}
