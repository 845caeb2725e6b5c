package conformance_test

import "testing"

// passes is what the suite counts in the Go SDK's server, asked directly. Fewer
// would mean that the suite or the server is another than was pinned, more that
// there is more to be compared.
var passes = map[string]struct{ all, failed, scored, scoredFailed int }{
	legacy: {all: 82, failed: 0, scored: 70, scoredFailed: 0},
	modern: {all: 165, failed: 30, scored: 121, scoredFailed: 0},
}

// TestServer has the suite judge the Go SDK's server directly and through the
// gateway. Both have to give the same, where nothing better is listed.
func TestServer(t *testing.T) {
	k := installed(t)
	rounds(t, func(t *testing.T) {
		for _, revision := range []string{legacy, modern} {
			t.Run(revision, func(t *testing.T) {
				direct := k.run(t, "server", revision, "--url", k.fixture(t, revision))
				k.count(t, direct, revision)
				front := gateway(t, k.fixture(t, revision), "auto")
				compare(t, direct, k.run(t, "server", revision, "--url", front), false, exceptions(t, "testdata/server.yaml", revision))
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

// TestCrossEra has the suite judge a server of the other era through the
// gateway. Whatever the two eras have in common must come out no worse than when
// the suite meets a server of its own era directly.
func TestCrossEra(t *testing.T) {
	k := installed(t)
	for _, pair := range []struct{ name, client, server, protocol string }{
		{"legacy client, modern server", legacy, modern, "modern"},
		{"modern client, legacy server", modern, legacy, "legacy"},
	} {
		t.Run(pair.name, func(t *testing.T) {
			direct := k.run(t, "server", pair.client, "--url", k.fixture(t, pair.client))
			front := gateway(t, k.fixture(t, pair.server), pair.protocol)
			through := k.run(t, "server", pair.client, "--url", front)
			compare(t, direct, through, true, exceptions(t, "testdata/cross-era.yaml", pair.name))
		})
	}
}
