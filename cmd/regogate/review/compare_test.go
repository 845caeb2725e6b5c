package review

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/registry"
)

// kept is what was approved, by the digest.
type kept map[string]string

func (k kept) Definition(_ context.Context, server, tool, sha256 string) ([]byte, error) {
	if text, ok := k[sha256]; ok {
		return []byte(text), nil
	}
	return nil, fmt.Errorf("the definition of %s/%s is %w", server, tool, registry.ErrUnknown)
}

func offered(t *testing.T, name, description string) upstream.Definition {
	t.Helper()
	raw := jsontext.Value(fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":{},"icons":[]}`, name, description))
	digest, err := upstream.Digest(raw)
	if err != nil {
		t.Fatal(err)
	}
	return upstream.Definition{Name: name, Raw: raw, SHA256: digest}
}

func entry(server, name, sha256 string) registry.Tool {
	return registry.Tool{Server: server, Name: name, Attributes: []string{"ai"}, Effect: "read", Data: "public", Reach: "closed", SHA256: sha256}
}

func TestCompare(t *testing.T) {
	same, changed, fresh := offered(t, "same", "a"), offered(t, "changed", "b"), offered(t, "fresh", "c")
	before, named, lost := offered(t, "changed", "a"), offered(t, "named", "a"), offered(t, "lost", "a")
	c, err := registry.NewCatalogue("7", registry.Catalogue{
		Tools: []registry.Tool{
			entry("s", "same", same.SHA256), entry("s", "changed", before.SHA256), entry("s", "gone", ""), entry("s", "loose", ""),
			entry("s", "named", before.SHA256), entry("s", "lost", same.SHA256), entry("partial", "gone", ""), entry("other", "x", ""),
			{Server: "s", Name: "guess", Suggested: true},
		},
		Quarantine: []registry.Quarantined{{Server: "s", Reason: "all"}, {Server: "s", Tool: "same", Reason: "one", By: "me"}, {Server: "other", Reason: "no"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	live := &Live{Servers: []upstream.Server{
		{Name: "partial", Up: true, Partial: true},
		{Name: "s", Up: true, Tools: []upstream.Definition{same, changed, fresh, named, lost, offered(t, "loose", "a"), offered(t, "guess", "a")}},
	}}
	// What was kept under another definition's digest is not what was approved.
	definitions := kept{before.SHA256: string(before.Raw), same.SHA256: string(changed.Raw)}
	report, err := NewReport(t.Context(), c, definitions, live)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range report.Differences {
		text := fmt.Sprintf("%s %s", d.Kind, d.Name())
		if d.Kind == Changed {
			text += fmt.Sprintf(" unkept=%v fields=%d", d.Unkept, len(d.Fields))
		}
		got = append(got, text)
	}
	want := []string{
		"quarantined s", "changed s/changed unkept=false fields=1", "new s/fresh", "gone s/gone",
		"not pinned s/guess", "not pinned s/loose", "changed s/lost unkept=true fields=0", "changed s/named unkept=false fields=1", "quarantined s/same",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	if !report.Differs() || !slices.Equal(report.Elsewhere, []string{"other"}) {
		t.Errorf("differs %v, elsewhere %v", report.Differs(), report.Elsewhere)
	}
	report.Differences = slices.DeleteFunc(report.Differences, func(d Difference) bool {
		return d.Kind == New || d.Kind == Gone || d.Kind == Changed
	})
	if report.Differs() {
		t.Error("what is not pinned and what is in quarantine is a difference")
	}
}

type broken struct{}

func (broken) Definition(context.Context, string, string, string) ([]byte, error) {
	return nil, errors.New("the database is away")
}

// A store that cannot be read is no store without the definition.
func TestCompareWithoutTheStore(t *testing.T) {
	d := offered(t, "a", "new")
	tool := entry("s", "a", offered(t, "a", "old").SHA256)
	if _, err := CompareTool(t.Context(), &tool, broken{}, "s", &d); err == nil || err.Error() != "the database is away" {
		t.Errorf("got %v", err)
	}
}
