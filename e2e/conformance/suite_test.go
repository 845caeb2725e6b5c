package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// The revisions whose requirements the suite knows. In the first a client opens
// a session, in the second it doesn't.
const (
	legacy = "2025-11-25"
	modern = "2026-07-28"
)

// suiteTimeout bounds one run of the suite, which takes seconds where nothing
// hangs.
const suiteTimeout = 3 * time.Minute

// check is one of the suite's, as it writes them to checks.json.
type check struct {
	ID, Name, Status, ErrorMessage string
}

// The statuses of a check that decide.
const (
	success = "SUCCESS"
	warning = "WARNING"
	failure = "FAILURE"
)

// results are the checks of each scenario, in the order in which the suite has
// made them.
type results map[string][]check

// run has the suite judge a server or a client and returns what it found. The
// suite has to come to its end with all scenarios of the revision.
func (k kit) run(t testing.TB, leg, revision string, args ...string) results {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suiteTimeout)
	defer cancel()
	dir := t.TempDir()
	cmd := exec.CommandContext(ctx, k.node, slices.Concat([]string{k.suite, leg, "--requirements", revision, "-o", dir}, args)...)
	group(cmd)
	cmd.Env = append(os.Environ(), "NO_PROXY=127.0.0.1,localhost,::1")
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	err := cmd.Run()
	_ = cmd.Cancel() // clients that the suite gave up on
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	// Whether it exits with 0 or 1 depends on what it found.
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() != 1) {
		t.Errorf("running the suite: %v\n%s", err, tail(log.String(), 30))
	}
	found := read(t, dir)
	want := k.scenarios(t, leg, revision)
	for _, name := range slices.Concat(want.scored, want.unscored) {
		if _, ok := found[name]; !ok {
			t.Errorf("the suite did not finish scenario %s", name)
			found[name] = []check{{ID: "finished", Name: "finished", Status: failure}}
		}
	}
	if n := len(want.scored) + len(want.unscored); len(found) != n {
		t.Errorf("the suite ran %d scenarios, want %d", len(found), n)
	}
	return found
}

// stamped is the name of a result's directory, with the time of its writing.
var stamped = regexp.MustCompile(`^(?:server-)?(.+)-\d{4}-\d\d-\d\dT[0-9-]+Z$`)

func read(t testing.TB, dir string) results {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	if err != nil {
		t.Fatal(err)
	}
	nested, err := filepath.Glob(filepath.Join(dir, "*", "*", "checks.json"))
	if err != nil {
		t.Fatal(err)
	}
	found := results{}
	for _, path := range append(paths, nested...) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var checks []check
		if err := json.Unmarshal(text, &checks); err != nil {
			t.Fatalf("reading %s: %v", path, err)
		}
		name, err := filepath.Rel(dir, filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		// The prefix is on the whole name, the time at its end.
		match := stamped.FindStringSubmatch(filepath.ToSlash(name))
		if match == nil {
			t.Fatalf("the suite wrote to %s, which has no time in its name", name)
		}
		found[match[1]] = checks
	}
	return found
}

// scenarios are the names of one leg and revision.
type scenarios struct{ scored, unscored []string }

func (k kit) scenarios(t testing.TB, leg, revision string) scenarios {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(k.requirements, revision+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Server, Client []string
		NotScored      []struct{ Scenario, Leg string } `yaml:"not_scored"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	s := scenarios{scored: file.Server}
	if leg == "client" {
		s.scored = file.Client
	}
	for _, other := range file.NotScored {
		if other.Leg == leg {
			s.unscored = append(s.unscored, other.Scenario)
		}
	}
	if len(s.scored) == 0 {
		t.Fatalf("the suite requires nothing of a %s of %s", leg, revision)
	}
	return s
}

// total counts what the suite itself counts, in the given scenarios.
func (r results) total(names ...string) (passed, failed int) {
	for _, name := range names {
		for _, c := range r[name] {
			switch c.Status {
			case success:
				passed++
			case failure:
				failed++
			}
		}
	}
	return passed, failed
}

func (r results) names() []string { return slices.Sorted(maps.Keys(r)) }

// key is one check of a scenario. One that is made several times under the same
// name has a number for each.
type key struct {
	id, name string
	n        int
}

// judged returns a scenario's checks without those that only note what went
// over the wire.
func (r results) judged(name string) map[key]check {
	all := map[key]check{}
	seen := map[key]int{}
	for _, c := range r[name] {
		if strings.HasPrefix(c.ID, "incoming-") || strings.HasPrefix(c.ID, "outgoing-") {
			continue
		}
		k := key{id: c.ID, name: c.Name}
		seen[k]++
		k.n = seen[k]
		all[k] = c
	}
	return all
}

// severity orders statuses; what neither holds nor fails is in between.
func severity(status string) int {
	switch status {
	case success:
		return 0
	case warning:
		return 2
	case failure:
		return 3
	}
	return 1
}

func tail(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
