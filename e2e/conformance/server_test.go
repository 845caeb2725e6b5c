package conformance_test

import (
	"fmt"
	"slices"
	"testing"
)

// passes is what the suite counts in the Go SDK's server, asked directly. Fewer
// would mean that the suite or the server is another than was pinned, more that
// there is more to be compared.
var passes = map[string]struct{ all, failed, scored, scoredFailed int }{
	legacy: {all: 82, failed: 0, scored: 70, scoredFailed: 0},
	modern: {all: 165, failed: 30, scored: 121, scoredFailed: 0},
}

// TestServer has the suite judge the Go SDK's server directly and through the
// gateway. Both have to give the same.
func TestServer(t *testing.T) {
	k := installed(t)
	rounds(t, func(t *testing.T) {
		for _, revision := range []string{legacy, modern} {
			t.Run(revision, func(t *testing.T) {
				direct := k.run(t, "server", revision, "--url", k.fixture(t, revision))
				k.count(t, direct, revision)
				front := gateway(t, k.fixture(t, revision), "auto")
				same(t, direct, k.run(t, "server", revision, "--url", front))
			})
		}
	})
}

// count checks the totals of a direct run.
func (k kit) count(t *testing.T, direct results, revision string) {
	t.Helper()
	got := passes[revision]
	got.all, got.failed = direct.total(direct.names()...)
	got.scored, got.scoredFailed = direct.total(k.scenarios(t, "server", revision).scored...)
	if got != passes[revision] {
		t.Errorf("directly: %+v, want %+v", got, passes[revision])
	}
}

// same compares the statuses of all checks.
func same(t *testing.T, direct, through results) {
	t.Helper()
	for _, name := range direct.names() {
		for _, difference := range differences(direct.judged(name), through.judged(name)) {
			t.Errorf("%s: %s", name, difference)
		}
	}
}

// differences describes the checks that have another status through the gateway,
// or are made on one way only.
func differences(direct, through map[key]check) []string {
	var all []string
	for k, want := range direct {
		got, ok := through[k]
		switch {
		case !ok:
			all = append(all, fmt.Sprintf("%s is not made through the gateway, directly %s", k.id, want.Status))
		case got.Status != want.Status:
			all = append(all, fmt.Sprintf("%s is %s through the gateway, directly %s: %s", k.id, got.Status, want.Status, got.ErrorMessage))
		}
	}
	for k, got := range through {
		if _, ok := direct[k]; !ok {
			all = append(all, fmt.Sprintf("%s is made through the gateway only, %s: %s", k.id, got.Status, got.ErrorMessage))
		}
	}
	slices.Sort(all)
	return all
}
