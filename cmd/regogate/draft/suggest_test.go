package draft

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/registry"
)

func TestSuggest(t *testing.T) {
	for _, tt := range []struct {
		server, tool, hints string
		effect, data        string
		attributes          string
		missing             string
	}{
		{"acme", "get_weather", ``, "read", "", "", "attributes data"},
		{"acme", "getUserInfo", ``, "read", "personal", "", "attributes"},
		{"acme", "users.list", ``, "read", "personal", "", "attributes"},
		{"acme", "delete_user", ``, "admin", "personal", "", "attributes"},
		{"acme", "get_or_create_role", ``, "admin", "", "", "attributes data"},
		{"acme", "list_roles", ``, "read", "", "", "attributes data"},
		{"acme", "list_and_delete_notes", ``, "destructive", "personal", "", "attributes"},
		{"acme", "create_api_token", ``, "admin", "secret", "", "attributes"},
		{"acme", "frobnicate", ``, "", "", "", "attributes effect data"},
		{"acme", "query_sql", ``, "execute", "secret", "", "attributes"},
		{"acme", "", ``, "", "", "", "attributes effect data"},
		{"github", "create_issue", ``, "write", "internal", "developer", ""},
		{"my-github-work", "merge_pull_request", ``, "write", "internal", "developer", ""},
		{"stripe", "create_refund", ``, "destructive", "financial", "payments", ""},
		{"github-stripe", "create_refund", ``, "destructive", "financial", "", "attributes"},
		{"acme", "send_email", ``, "write", "personal", "messaging", ""},
		{"acme", "email_invoice", ``, "", "financial", "", "attributes effect"},
		{"okta", "update_form", ``, "admin", "personal", "identity", ""},

		// Hints raise and never lower.
		{"github", "get_issue", `{"readOnlyHint":true,"destructiveHint":false}`, "read", "internal", "developer", ""},
		{"github", "get_issue", `{"readOnlyHint":false}`, "write", "internal", "developer", ""},
		{"github", "get_issue", `{"destructiveHint":true}`, "destructive", "internal", "developer", ""},
		{"github", "get_issue", `{"destructiveHint":"no"}`, "destructive", "internal", "developer", ""},
		{"github", "get_issue", `{"destructiveHint":null,"readOnlyHint":null}`, "read", "internal", "developer", ""},
		{"github", "delete_issue", `{"readOnlyHint":true,"destructiveHint":false}`, "destructive", "internal", "developer", ""},
		{"github", "add_member", `{"readOnlyHint":false,"destructiveHint":true}`, "admin", "personal", "developer", ""},
		{"github", "run_workflow", `{"destructiveHint":true}`, "execute", "secret", "developer", ""},
		{"github", "frobnicate", `{"readOnlyHint":true}`, "", "internal", "developer", "effect"},
		{"github", "frobnicate", `{"readOnlyHint":false}`, "destructive", "internal", "developer", ""},
		{"github", "get_issue", `[]`, "read", "internal", "developer", ""},
	} {
		var annotations jsontext.Value
		if tt.hints != "" {
			annotations = jsontext.Value(tt.hints)
		}
		s := suggest(tt.server, upstream.Definition{Name: tt.tool, SHA256: "ab", Annotations: annotations}, nil)
		want := registry.Tool{
			Server: tt.server, Name: tt.tool, Effect: tt.effect, Data: tt.data, Reach: "external", SHA256: "ab", Suggested: true,
			Attributes: strings.Fields(tt.attributes),
		}
		if len(want.Attributes) == 0 {
			want.Attributes = nil
		}
		got := s.Tool
		if !slices.Equal(got.Attributes, want.Attributes) || got.Effect != want.Effect || got.Data != want.Data ||
			got.Reach != want.Reach || got.SHA256 != want.SHA256 || !got.Suggested || got.Server != want.Server || got.Name != want.Name {
			t.Errorf("%s %s %s: suggested %+v because of %q, want %+v", tt.server, tt.tool, tt.hints, got, s.Why, want)
		}
		if missing := strings.Join(s.missing(), " "); missing != tt.missing {
			t.Errorf("%s %s: missing %q, want %q", tt.server, tt.tool, missing, tt.missing)
		}
	}
}

func TestSuggestKnowsTheShippedCatalogue(t *testing.T) {
	shipped := shippedForTest(t)
	s := suggest("Stripe", upstream.Definition{Name: "retrieve_balance", SHA256: "ab"}, shipped)
	want := shipped[shippedKey("stripe", "retrieve_balance")]
	if s.Server != "Stripe" || s.SHA256 != "ab" || !s.Suggested || s.Effect != want.Effect || s.Data != "financial" || s.Reach != "closed" {
		t.Errorf("suggested %+v", s.Tool)
	}
}

func TestWordTablesKeepToTheVocabulary(t *testing.T) {
	for name, table := range map[string]struct {
		words   map[string]string
		classes []string
	}{
		"verbs": {verbs(), registry.Effects()}, "objects": {objects(), registry.Effects()},
		"products": {products(), registry.Attributes()}, "domains": {domains(), registry.Attributes()},
		"dataWords": {dataWords(), registry.DataClasses()},
	} {
		if len(table.words) < 20 {
			t.Errorf("%s has only %d words", name, len(table.words))
		}
		for word, class := range table.words {
			if !slices.Contains(table.classes, class) {
				t.Errorf("%s: %s is of class %q", name, word, class)
			}
			if len(words(word)) != 1 || words(word)[0] != word {
				t.Errorf("%s: %q can never be a word of a name", name, word)
			}
		}
	}
	for _, d := range registry.Attributes() {
		if !slices.Contains(registry.DataClasses(), usualData(d)) {
			t.Errorf("usualData(%s) = %q", d, usualData(d))
		}
	}
}

func TestWords(t *testing.T) {
	for name, want := range map[string]string{
		"get_user": "get user", "getUser": "get user", "HTTPServerList": "http server list", "API-post-search": "api post search",
		"a.b/c": "a b c", "k8s_list": "k8s list", "__": "", "Ünï": "ünï",
	} {
		if got := strings.Join(words(name), " "); got != want {
			t.Errorf("words(%q) = %q, want %q", name, got, want)
		}
	}
}

// weakByName are the tools of the shipped catalogue whose name alone makes the
// suggestion weaker than the label. Nothing in the name tells.
const weakByName = `
	auth0/auth0_get_quickstart_guide circleci/find_flaky_tests circleci/get_build_failure_logs cloudflare/env_var_bulk_set
	filesystem/edit_file gmail/create_send_as gmail/delete_send_as gmail/patch_send_as gmail/update_send_as
	kubernetes/helm_install kubernetes/resources_create_or_update kubernetes/resources_delete
	mongodb/atlas-create-free-cluster mongodb/atlas-streams-build mongodb/atlas-streams-manage mongodb/rename-collection
	notion/API-patch-page notion/API-update-a-block notion/API-update-a-data-source notion/API-update-page-markdown
	paddle/update_notification_setting resend/compose-template resend/verify-domain-claim
`

// weakWithHints are those that are weaker still when the server's hints are
// known. The first two have no verb: without hints they have no suggestion.
const weakWithHints = `
	auth0/auth0_onboarding auth0/auth0_get_quickstart_guide circleci/get_build_failure_logs cloudflare/env_var_bulk_set
	gmail/create_send_as gmail/delete_send_as gmail/patch_send_as gmail/update_send_as
	kubernetes/helm_install kubernetes/resources_create_or_update kubernetes/resources_delete
	mongodb/atlas-create-free-cluster mongodb/atlas-streams-build mongodb/atlas-streams-manage
	paddle/update_notification_setting resend/compose-template resend/verify-domain-claim
`

func TestSuggestionsComparedWithTheLabels(t *testing.T) {
	compare(t, nil, weakByName, 450, 305)
}

func TestSuggestionsWithHintsComparedWithTheLabels(t *testing.T) {
	compare(t, readHints(t), weakWithHints, 435, 305)
}

// compare holds suggestions against the labels of the shipped catalogue: an
// effect may only be weaker for the tools that are listed, and at least so many
// effects and data classes are the same.
func compare(t *testing.T, hints map[string]jsontext.Value, weak string, leastEffect, leastData int) {
	t.Helper()
	agree := map[string]map[string]int{"effect": {}, "data": {}, "reach": {}, "attributes": {}}
	var weaker []string
	shipped := shippedForTest(t)
	for _, key := range slices.Sorted(maps.Keys(shipped)) {
		label := shipped[key]
		s := suggest(label.Server, upstream.Definition{Name: label.Name, Annotations: hints[key]}, nil)
		effect := verdict(s.Effect, label.Effect, graver(label.Effect, s.Effect) || label.Effect == "execute")
		if effect == "weaker" {
			weaker = append(weaker, label.Server+"/"+label.Name)
		}
		agree["effect"][effect]++
		data := registry.DataClasses()
		agree["data"][verdict(s.Data, label.Data, slices.Index(data, s.Data) < slices.Index(data, label.Data))]++
		agree["reach"][verdict(s.Reach, label.Reach, label.Reach == "external")]++
		outside := len(s.Attributes) > 0 && !slices.Contains(label.Attributes, s.Attributes[0])
		agree["attributes"][verdict(strings.Join(s.Attributes, " "), strings.Join(label.Attributes, " "), outside)]++
	}
	want := strings.Fields(weak)
	slices.Sort(want)
	slices.Sort(weaker)
	if !slices.Equal(weaker, want) {
		t.Errorf("weaker than their label are\n%s\nwant\n%s", strings.Join(weaker, "\n"), strings.Join(want, "\n"))
	}
	if len(shipped) != 507 || agree["effect"]["same"] < leastEffect || agree["data"]["same"] < leastData || agree["reach"]["weaker"] > 0 {
		t.Errorf("of %d labels agree: %v", len(shipped), agree)
	}
	t.Logf("of %d labels agree: %v", len(shipped), agree)
}

func verdict(suggested, label string, weaker bool) string {
	switch {
	case suggested == label:
		return "same"
	case suggested == "":
		return "open"
	case weaker:
		return "weaker"
	}
	return "stronger"
}

func shippedForTest(t *testing.T) map[string]registry.Tool {
	t.Helper()
	shipped, err := shippedTools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return shipped
}

// readHints reads what real servers hint, by shippedKey.
func readHints(t *testing.T) map[string]jsontext.Value {
	t.Helper()
	name := filepath.Join("..", "..", "..", "shared", "data", "tools-507.jsonl")
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("no hints to compare with: %s is absent", name)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	hints := map[string]jsontext.Value{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var tool struct {
			Server, Tool string
			Annotations  json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &tool); err != nil {
			t.Fatal(err)
		}
		hints[shippedKey(tool.Server, tool.Tool)] = jsontext.Value(tool.Annotations)
	}
	if len(hints) != 507 {
		t.Fatalf("%s has the hints of %d tools, want 507", name, len(hints))
	}
	return hints
}
