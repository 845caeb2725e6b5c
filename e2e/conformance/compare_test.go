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
		if _, err := path.Match(e.Scenario, ""); e.Pair == "" || e.Scenario == "" || e.Reason == "" || err != nil {
			t.Errorf("%s: an entry needs pair, scenario and reason, got %+v", file, e)
		}
	}
	return slices.DeleteFunc(all, func(e exception) bool { return e.Pair != pair })
}

// compare fails the test for each difference that is not listed, and for each
// exception in the list that is none.
func compare(t testing.TB, direct, through results, worse bool, listed []exception) {
	t.Helper()
	for _, problem := range problems(direct, through, worse, listed) {
		t.Error(problem)
	}
}

func problems(direct, through results, worse bool, listed []exception) []string {
	var all []string
	used := make([]bool, len(listed))
	for _, name := range direct.names() {
		found := differences(direct.judged(name), through.judged(name), worse)
		for i, e := range listed {
			if ok, _ := path.Match(e.Scenario, name); !ok {
				continue
			}
			used[i] = true
			rest := slices.DeleteFunc(slices.Clone(found), func(d difference) bool { return e.Check == "" || e.Check == d.id })
			// A scenario that fails directly too cannot come out worse.
			if _, failed := direct.total(name); len(rest) == len(found) && !(worse && failed > 0) {
				all = append(all, fmt.Sprintf("%s is listed, but there is no difference in %s: take it off the list", e, name))
			}
			found = rest
		}
		for _, d := range found {
			all = append(all, name+": "+d.text)
		}
	}
	for i, e := range listed {
		if !used[i] {
			all = append(all, fmt.Sprintf("%s is listed, but there is no such scenario", e))
		}
	}
	return all
}

func TestProblems(t *testing.T) {
	made := func(statuses ...string) results {
		r := results{"a": nil}
		for _, status := range statuses {
			r["a"] = append(r["a"], check{ID: "c", Name: "C", Status: status, ErrorMessage: "why"})
		}
		return r
	}
	whole := []exception{{Scenario: "*"}}
	one := []exception{{Scenario: "a", Check: "c"}}
	other := []exception{{Scenario: "a", Check: "d"}}
	tests := []struct {
		name            string
		direct, through results
		worse           bool
		listed          []exception
		want            []string
	}{
		{"same", made(success), made(success), false, nil, nil},
		{"failed", made(success), made(failure), true, nil, []string{"a: c (C) is FAILURE, directly SUCCESS: why"}},
		{"second of two", made(success, success), made(success, warning), true, nil, []string{"a: c (C) is WARNING, directly SUCCESS: why"}},
		{"skipped", made(success), made("SKIPPED"), true, nil, []string{"a: c (C) is SKIPPED, directly SUCCESS: why"}},
		{"missing", made(success), made(), true, nil, []string{"a: c (C) is not made, directly SUCCESS: "}},
		{"only through", made(), made(failure), true, nil, []string{"a: c (C) is FAILURE, directly not made: why"}},
		{"better is another", made(warning), made(success), false, nil, []string{"a: c (C) is SUCCESS, directly WARNING: why"}},
		{"better is no worse", made(warning), made(success), true, nil, nil},
		{"good only through", made(), made(success), true, nil, nil},
		{"not run", made(success), results{}, true, nil, []string{"a: c (C) is not made, directly SUCCESS: "}},
		{"listed", made(success), made(failure), true, whole, nil},
		{"listed by check", made(success), made(failure), true, one, nil},
		{"another check listed", made(success), made(failure), true, other, []string{
			"a d is listed, but there is no difference in a: take it off the list", "a: c (C) is FAILURE, directly SUCCESS: why"}},
		{"listed but same", made(success), made(success), true, whole, []string{
			"* is listed, but there is no difference in a: take it off the list"}},
		{"listed but failing anyway", made(failure), made(failure), true, whole, nil},
		{"listed, failing alike", made(failure), made(failure), false, whole, []string{
			"* is listed, but there is no difference in a: take it off the list"}},
		{"listed but unknown", made(success), made(success), true, []exception{{Scenario: "b"}}, []string{
			"b is listed, but there is no such scenario"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := problems(test.direct, test.through, test.worse, test.listed); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
