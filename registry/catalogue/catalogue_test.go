package catalogue_test

import (
	"bytes"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/regogate/regogate/registry/catalogue"
)

type tool struct {
	Attributes  []string `yaml:"attributes"`
	Effect      string   `yaml:"effect"`
	Data        string   `yaml:"data"`
	Reach       string   `yaml:"reach"`
	Env         string   `yaml:"env"`
	Description string   `yaml:"description"`
}

type server struct {
	Owner      string    `yaml:"owner"`
	Env        string    `yaml:"env"`
	Attributes []string  `yaml:"attributes"`
	Data       string    `yaml:"data"`
	Reach      string    `yaml:"reach"`
	Tools      yaml.Node `yaml:"tools"` // a node, because a map would lose the order

	names []string
	tools map[string]tool
}

// load decodes every file strictly and fails the test at the first that is
// not as the format wants it.
func load(t *testing.T) map[string]server {
	t.Helper()
	names, err := fs.Glob(catalogue.FS, "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	servers := make(map[string]server)
	for _, name := range names {
		text, err := catalogue.FS.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Version int               `yaml:"version"`
			Servers map[string]server `yaml:"servers"`
		}
		decoder := yaml.NewDecoder(bytes.NewReader(text))
		decoder.KnownFields(true)
		if err := decoder.Decode(&file); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		id := strings.TrimSuffix(name, ".yaml")
		one, ok := file.Servers[id]
		if file.Version != 1 || len(file.Servers) != 1 || !ok {
			t.Fatalf("%s: want version 1 and the one server %q, got version %d and %d servers", name, id, file.Version, len(file.Servers))
		}
		one.readTools(t, name)
		servers[id] = one
	}
	return servers
}

func (s *server) readTools(t *testing.T, file string) {
	t.Helper()
	// Node.Decode forgets KnownFields, hence the way back through text.
	text, err := yaml.Marshal(&s.Tools)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&s.tools); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for i := 0; i < len(s.Tools.Content); i += 2 {
		s.names = append(s.names, s.Tools.Content[i].Value)
	}
}

func TestSize(t *testing.T) {
	servers := load(t)
	if len(servers) != 24 {
		t.Errorf("got %d servers, want 24", len(servers))
	}
	total := 0
	for _, s := range servers {
		total += len(s.tools)
	}
	if total != 507 {
		t.Errorf("got %d tools, want 507", total)
	}
}

func TestNamesAndOrder(t *testing.T) {
	validServer := regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]*(_[A-Za-z0-9.-]+)*$`)
	validTool := regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)
	for id, s := range load(t) {
		if len(id) > 64 || !validServer.MatchString(id) {
			t.Errorf("%q is no server name", id)
		}
		if !slices.IsSorted(s.names) {
			t.Errorf("%s: tools are not sorted by name", id)
		}
		for _, name := range s.names {
			if !validTool.MatchString(name) {
				t.Errorf("%s: %q is no tool name", id, name)
			}
			if exposed := id + "__" + name; len(exposed) > 128 {
				t.Errorf("%s is %d characters long, above 128", exposed, len(exposed))
			}
		}
	}
}

func TestVocabulary(t *testing.T) {
	var (
		attributes = []string{
			"payments", "developer", "messaging", "crm", "analytics", "storage", "identity", "infrastructure",
			"database", "productivity", "hr", "commerce", "marketing", "web", "ai",
		}
		effects = []string{"read", "write", "destructive", "admin", "execute"}
		data    = []string{"public", "internal", "personal", "financial", "secret"}
		reach   = []string{"closed", "external"}
		envs    = []string{"production", "development"}
		owner   = regexp.MustCompile(`^[a-z]+-team$`)
	)
	for id, s := range load(t) {
		if !owner.MatchString(s.Owner) {
			t.Errorf("%s: owner %q is not a team", id, s.Owner)
		}
		if !slices.Contains(envs, s.Env) {
			t.Errorf("%s: env %q", id, s.Env)
		}
		for name, tool := range s.tools {
			where := id + "." + name
			if len(tool.Attributes) == 0 || !slices.IsSorted(tool.Attributes) ||
				len(slices.Compact(slices.Clone(tool.Attributes))) != len(tool.Attributes) {
				t.Errorf("%s: attributes %v are empty, unsorted or repeat one", where, tool.Attributes)
			}
			for _, a := range tool.Attributes {
				if !slices.Contains(attributes, a) {
					t.Errorf("%s: attribute %q", where, a)
				}
			}
			if !slices.Contains(effects, tool.Effect) {
				t.Errorf("%s: effect %q", where, tool.Effect)
			}
			if !slices.Contains(data, tool.Data) {
				t.Errorf("%s: data %q", where, tool.Data)
			}
			if !slices.Contains(reach, tool.Reach) {
				t.Errorf("%s: reach %q", where, tool.Reach)
			}
			if tool.Env != "" && (tool.Env == s.Env || !slices.Contains(envs, tool.Env)) {
				t.Errorf("%s: env %q is unknown or repeats the server's", where, tool.Env)
			}
		}
	}
}

// What a server is follows from its reading tools, by the rule of README.md.
func TestServersAreWhatTheyShow(t *testing.T) {
	data := []string{"public", "internal", "personal", "financial", "secret"}
	reach := []string{"closed", "external"}
	beside := []string{ // what these show is no content of the server
		"github.get_secret_scanning_alert", "launchdarkly.get-environments",
		"mongodb.atlas-streams-discover", "mongodb.search-knowledge",
		"paddle.get_notification_setting", "paddle.list_notification_settings",
		"resend.get-webhook", "resend.list-webhooks", "stripe.search_stripe_documentation",
	}
	for id, s := range load(t) {
		reading, domains, gravest, furthest := 0, map[string]int{}, 0, 0
		for name, tool := range s.tools {
			if tool.Effect != "read" {
				continue
			}
			reading++
			for _, a := range tool.Attributes {
				domains[a]++
			}
			if where := id + "." + name; slices.Contains(beside, where) {
				beside = slices.DeleteFunc(beside, func(s string) bool { return s == where })
				continue
			}
			gravest = max(gravest, slices.Index(data, tool.Data))
			furthest = max(furthest, slices.Index(reach, tool.Reach))
		}
		maps.DeleteFunc(domains, func(_ string, n int) bool { return 2*n < reading })
		want := slices.Sorted(maps.Keys(domains))
		if !slices.Equal(s.Attributes, want) || s.Data != data[gravest] || s.Reach != reach[furthest] {
			t.Errorf("%s: %v, %s, %s; its reading tools say %v, %s, %s",
				id, s.Attributes, s.Data, s.Reach, want, data[gravest], reach[furthest])
		}
	}
	if len(beside) > 0 {
		t.Errorf("not among the reading tools: %v", beside)
	}
}

func TestDescriptions(t *testing.T) {
	sentence := regexp.MustCompile(`^[A-Z][^\n"]*[^.\s]\.$`)
	seen := make(map[string]string)
	for id, s := range load(t) {
		for name, tool := range s.tools {
			where, text := id+"."+name, tool.Description
			if n := utf8.RuneCountInString(text); n > 140 {
				t.Errorf("%s: the description has %d characters, above 140", where, n)
			}
			if !sentence.MatchString(text) || strings.Contains(text, ". ") || strings.Contains(text, "  ") {
				t.Errorf("%s: %q is not one plain sentence", where, text)
			}
			if other, ok := seen[text]; ok {
				t.Errorf("%s and %s have the same description", where, other)
			}
			seen[text] = where
		}
	}
}

// A verb in a tool's name that promises a change must not hide behind the
// label of a read. The exceptions are those where README.md explains that the
// verb misleads.
func TestVerbsAreNotUnderLabelled(t *testing.T) {
	rank := map[string]int{"read": 0, "write": 1, "destructive": 2, "admin": 3, "execute": 4}
	least := map[string][]string{
		"write": {
			"accept", "activate", "add", "append", "apply", "assign", "broadcast", "change", "compose", "create",
			"dismiss", "duplicate", "edit", "finalize", "fork", "manage", "mark", "modify", "move", "mute", "patch",
			"post", "push", "put", "rename", "replay", "reply", "request", "resolve", "scale", "schedule", "send",
			"set", "share", "submit", "update", "upload", "verify", "write",
		},
		"destructive": {"cancel", "delete", "refund", "remove", "trash", "uninstall"},
		"execute":     {"deploy", "exec", "execute", "rerun", "rollback", "run", "trigger"},
	}
	misleading := map[string]string{
		"auth0.auth0_deploy_action":           "admin", // code at sign-in decides who gets in
		"github.find_duplicate":               "read",  // a noun
		"github.pull_request_read":            "read",  // a noun
		"gmail.get_send_as":                   "read",  // the verb is get
		"gmail.list_send_as":                  "read",  // the verb is list
		"google-analytics.runReport":          "read",  // computes and leaves nothing behind
		"notion.API-post-search":              "read",  // only the method of HTTP
		"paddle.create_simulation_run":        "write", // a noun; sends prepared events
		"paddle.preview_subscription_update":  "read",  // a noun; works out, does not apply
		"paypal.get_refund":                   "read",  // a noun
		"resend.list-broadcast-clicked-links": "read",  // a noun
	}
	used := make(map[string]bool)
	for id, s := range load(t) {
		for name, tool := range s.tools {
			where := id + "." + name
			for effect, verbs := range least {
				for _, word := range words(name) {
					if !slices.Contains(verbs, word) || rank[tool.Effect] >= rank[effect] {
						continue
					}
					used[where] = true
					if want := misleading[where]; tool.Effect != want {
						t.Errorf("%s: %q in the name asks for at least %s, the label is %s", where, word, effect, tool.Effect)
					}
				}
			}
		}
	}
	for where := range misleading {
		if !used[where] {
			t.Errorf("%s is listed as misleading but needs no exception", where)
		}
	}
}

func words(name string) []string {
	split := regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(name, "$1 $2")
	return strings.FieldsFunc(strings.ToLower(split), func(r rune) bool { return r == '_' || r == '-' || r == ' ' })
}

// One tool for each rule of README.md, so that a rule cannot be lost unseen.
func TestRules(t *testing.T) {
	want := map[string]tool{
		"airtable.update_records":               {Effect: "write", Data: "personal", Reach: "closed"},
		"auth0.auth0_get_quickstart_guide":      {Effect: "admin", Data: "internal", Reach: "external"},
		"circleci.get_build_failure_logs":       {Effect: "write", Data: "internal", Reach: "closed"},
		"cloudflare.ai_text_generation":         {Effect: "read", Data: "internal", Reach: "closed"},
		"cloudflare.worker_deploy":              {Effect: "execute", Data: "secret", Reach: "external"},
		"filesystem.write_file":                 {Effect: "destructive", Data: "personal", Reach: "closed"},
		"github.get_secret_scanning_alert":      {Effect: "read", Data: "secret", Reach: "closed"},
		"gmail.send_message":                    {Effect: "write", Data: "personal", Reach: "external"},
		"gmail.trash_message":                   {Effect: "destructive", Data: "personal", Reach: "closed"},
		"kubernetes.pods_exec":                  {Effect: "execute", Data: "secret", Reach: "external"},
		"kubernetes.resources_create_or_update": {Effect: "admin", Data: "secret", Reach: "external"},
		"kubernetes.resources_get":              {Effect: "read", Data: "secret", Reach: "closed"},
		"line.push_text_message":                {Effect: "write", Data: "personal", Reach: "external"},
		"ms365.share-drive-item":                {Effect: "admin", Data: "personal", Reach: "external"},
		"notion.API-query-data-source":          {Effect: "read", Data: "personal", Reach: "closed"},
		"paddle.preview_subscription_update":    {Effect: "read", Data: "financial", Reach: "closed"},
		"resend.create-webhook":                 {Effect: "admin", Data: "secret", Reach: "external"},
		"stripe.create_refund":                  {Effect: "destructive", Data: "financial", Reach: "external"},
		"stripe.search_stripe_documentation":    {Effect: "read", Data: "public", Reach: "external"},
	}
	servers := load(t)
	for _, where := range slices.Sorted(maps.Keys(want)) {
		id, name, _ := strings.Cut(where, ".")
		got := servers[id].tools[name]
		if w := want[where]; got.Effect != w.Effect || got.Data != w.Data || got.Reach != w.Reach {
			t.Errorf("%s: got %s, %s, %s; want %s, %s, %s", where, got.Effect, got.Data, got.Reach, w.Effect, w.Data, w.Reach)
		}
	}
}
