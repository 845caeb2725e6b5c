package conformance_test

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// difference is a check that came out otherwise through the gateway.
type difference struct{ id, text string }

// differences compares a scenario's checks on both ways. With worse, what came
// out better through the gateway, or was neither good nor bad, is none.
func differences(direct, through map[key]check, worse bool) []difference {
	var all []difference
	add := func(k key, from, to string, c check) {
		if !worse || severity(to) > severity(from) {
			all = append(all, difference{k.id, fmt.Sprintf("%s (%s) is %s, directly %s: %s", k.id, k.name, to, from, c.ErrorMessage)})
		}
	}
	const absent = "not made"
	for k, want := range direct {
		if got, ok := through[k]; !ok {
			add(k, want.Status, absent, check{})
		} else if got.Status != want.Status {
			add(k, want.Status, got.Status, got)
		}
	}
	for k, got := range through {
		if _, ok := direct[k]; !ok {
			add(k, absent, got.Status, got)
		}
	}
	slices.SortFunc(all, func(a, b difference) int { return strings.Compare(a.text, b.text) })
	return all
}

// exception says why a scenario, or one check of it, comes out otherwise through
// the gateway.
type exception struct {
	Pair     string `yaml:"pair"`     // what is compared
	Scenario string `yaml:"scenario"` // or a pattern of path.Match
	Check    string `yaml:"check"`    // its id; all of the scenario's where it is empty
	Reason   string `yaml:"reason"`
}

func (e exception) String() string {
	return strings.TrimSuffix(fmt.Sprintf("%s %s", e.Scenario, e.Check), " ")
}

// exceptions reads those for one pair.
func exceptions(t testing.TB, file, pair string) []exception {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	decoder := yaml.NewDecoder(f)
	decoder.KnownFields(true)
	var all []exception
	if err := decoder.Decode(&all); err != nil {
		t.Fatalf("reading %s: %v", file, err)
	}
	for _, e := range all {
		if e.Pair == "" || e.Scenario == "" || e.Reason == "" {
			t.Errorf("%s: an entry needs pair, scenario and reason, got %+v", file, e)
		}
	}
	return slices.DeleteFunc(all, func(e exception) bool { return e.Pair != pair })
}

// compare fails the test for each difference that is not listed, and for each
// exception in the list that is none.
func compare(t testing.TB, direct, through results, worse bool, listed []exception) {
	t.Helper()
	used := make([]bool, len(listed))
	for _, name := range direct.names() {
		found := differences(direct.judged(name), through.judged(name), worse)
		for i, e := range listed {
			if ok, err := path.Match(e.Scenario, name); err != nil {
				t.Fatalf("%s: %v", e, err)
			} else if !ok {
				continue
			}
			used[i] = true
			rest := slices.DeleteFunc(slices.Clone(found), func(d difference) bool { return e.Check == "" || e.Check == d.id })
			// A scenario that fails anyway has nothing to lose.
			if _, failed := direct.total(name); len(rest) == len(found) && failed == 0 {
				t.Errorf("%s is listed, but there is no difference in %s: take it off the list", e, name)
			}
			found = rest
		}
		for _, d := range found {
			t.Errorf("%s: %s", name, d.text)
		}
	}
	for i, e := range listed {
		if !used[i] {
			t.Errorf("%s is listed, but there is no such scenario", e)
		}
	}
}
