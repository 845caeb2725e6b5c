package real_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/regogate/regogate/gateway/policy"
	"github.com/regogate/regogate/policies"
)

// source is where the shipped policies lie, with their tests and examples.
var source = filepath.Join("..", "..", "policies")

// question is one input, as OPA's command line is asked it.
type question struct {
	Claims json.RawMessage `json:"claims"`
	Tool   toolInput       `json:"tool"`
}

// verdict is all that the policy says of a question.
type verdict struct {
	Allow   bool     `json:"allow"`
	Reasons []string `json:"reasons"`
}

// verdictQuery asks about each question by itself, in one evaluation.
const verdictQuery = `[answer |
	some q in input.questions
	question := {"method": "tools/call", "claims": q.claims, "tool": q.tool, "request": {"id": "r"}}
	allow := data.mcp.authz.allow with input as question
	reasons := data.mcp.authz.reasons with input as question
	answer := {"allow": allow, "reasons": reasons}
]`

// opaVerdicts has OPA's command line answer the questions; from is a policy
// directory after --data or a bundle after --bundle.
func opaVerdicts(t *testing.T, questions []question, from ...string) []verdict {
	t.Helper()
	input, err := json.Marshal(map[string]any{"questions": questions})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "input.json")
	if err := os.WriteFile(path, input, 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"opa", "eval", "--strict-builtin-errors", "--format", "json", "--input", path}, from...)
	out := regogate(t, append(args, verdictQuery)...)
	var answer struct {
		Result []struct {
			Expressions []struct{ Value []verdict }
		}
	}
	if err := json.Unmarshal(out, &answer); err != nil || len(answer.Result) != 1 {
		t.Fatalf("opa eval: %v: %s", err, out)
	}
	return answer.Result[0].Expressions[0].Value
}

// gatewayVerdicts asks the engine that the gateway decides with, about the things
// of one list for each caller, as tools/list does, and about each alone.
func gatewayVerdicts(t *testing.T, questions []question) []verdict {
	t.Helper()
	engine, err := policy.New(policy.Config{FS: policies.FS, ListDeadline: 1 << 36, Deadline: 1 << 36}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := engine.Current()
	verdicts := make([]verdict, len(questions))
	lists := map[string][]int{}
	for i, q := range questions {
		lists[string(q.Claims)] = append(lists[string(q.Claims)], i)
	}
	for claims, places := range lists {
		subject, err := policy.NewSubject([]byte(claims))
		if err != nil {
			t.Fatal(err)
		}
		items := make([]*policy.Item, len(places))
		for n, i := range places {
			if items[n], err = policy.NewItem(questions[i].Tool.judged()); err != nil {
				t.Fatal(err)
			}
		}
		request := policy.Request{ID: "r"}
		answers := s.AllowEach(context.Background(), subject, policy.NewItems(items), "tools/call", request)
		for n, i := range places {
			q := policy.Question{Method: "tools/call", Subject: subject, Item: items[n], Request: request}
			alone, listed := s.Allow(context.Background(), q), answers.At(n)
			if alone != listed || alone.Code != "" {
				t.Fatalf("%s, %+v: alone %v, in a list %v", claims, questions[i].Tool, alone, listed)
			}
			verdicts[i] = verdict{alone.Allowed, s.Explain(context.Background(), q, nil).Reasons}
		}
	}
	return verdicts
}

// judged is the tool as the gateway's engine takes it.
func (in toolInput) judged() policy.Tool {
	return policy.Tool{
		Server: in.Server, Name: in.Name, ExposedName: in.ExposedName, Attributes: in.Attributes, Effect: in.Effect, Data: in.Data,
		Reach: in.Reach, Env: in.Env, Owner: in.Owner, Labels: in.Labels, Registered: in.Registered,
		Definition: policy.Definition{
			SHA256: in.Definition.SHA256, Pinned: in.Definition.Pinned, Drifted: in.Definition.Drifted,
			Annotations: []byte(in.Definition.Annotations),
		},
	}
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// randomTool is labelled well more often than not.
func randomTool(r *rand.Rand, n int) toolInput {
	in := toolInput{Server: pick(r, "alpha", "beta"), Name: fmt.Sprintf("t%d", n), Registered: r.IntN(12) > 0}
	in.ExposedName = in.Server + "__" + in.Name
	domains := []string{"ai", "commerce", "crm", "developer", "payments", "web", "database", "analytics", "paiments"}
	r.Shuffle(len(domains), func(i, j int) { domains[i], domains[j] = domains[j], domains[i] })
	in.facts = facts{
		Attributes: slices.Sorted(slices.Values(domains[:pick(r, 0, 1, 1, 1, 2, 2, 3)])),
		Effect:     pick(r, "read", "read", "read", "write", "destructive", "admin", "execute", "READ", ""),
		Data:       pick(r, "public", "internal", "internal", "personal", "financial", "secret", "HIGH", ""),
		Reach:      pick(r, "closed", "closed", "closed", "external", "external", "far", ""),
		Env:        pick(r, "", "production", "staging", "any"),
	}
	if r.IntN(3) == 0 {
		in.Labels = map[string]string{"hints": pick(r, "reviewed", "no")}
	}
	in.Definition = definitionInput{SHA256: "00", Pinned: r.IntN(2) == 0, Drifted: r.IntN(10) == 0}
	if r.IntN(2) == 0 {
		hint := func() string { return pick(r, "true", "false", "null", `"yes"`) }
		in.Definition.Annotations = json.RawMessage(fmt.Sprintf(`{"readOnlyHint": %s, "destructiveHint": %s, "title": "T"}`, hint(), hint()))
	}
	return in
}

// randomClaims names known roles, unknown ones, and what names none.
func randomClaims(r *rand.Rand) json.RawMessage {
	return json.RawMessage(pick(r,
		`{}`, `{"roles": null}`, `{"roles": []}`, `{"roles": {"a": "admin"}}`, `{"roles": 7, "groups": ["support"]}`,
		`{"roles": ["payments"]}`, `{"roles": "developer"}`, `{"groups": ["support", "analyst"]}`, `{"roles": ["admin"]}`,
		`{"roles": ["payments", "developer", "x"]}`, `{"roles": "developer admin"}`, `{"roles": [null, 1, "analyst", ""]}`,
	))
}

// TestVerdicts compares what the gateway's engine says of some hundred random
// questions and of the whole catalogue with what OPA's command line says, reading
// the policies as files and as the bundle that OPA built of them.
func TestVerdicts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var questions []question
	for n := range 600 {
		questions = append(questions, question{randomClaims(r), randomTool(r, n)})
	}
	catalogue, _ := shipped(t)
	for _, role := range []string{"payments", "developer", "support", "analyst", "admin", "nobody"} {
		for _, tool := range catalogue {
			questions = append(questions, question{json.RawMessage(`{"roles": ["` + role + `"]}`), tool})
		}
	}
	want := gatewayVerdicts(t, questions)
	bundle := filepath.Join(t.TempDir(), "bundle.tar.gz")
	regogate(t, "opa", "build", "--bundle", source, "--output", bundle)
	for name, from := range map[string][]string{
		"files": {"--data", source}, "bundle": {"--bundle", bundle},
	} {
		got := opaVerdicts(t, questions, from...)
		if len(got) != len(want) {
			t.Fatalf("%s: %d answers to %d questions", name, len(got), len(want))
		}
		for i := range want {
			if got[i].Allow != want[i].Allow || !slices.Equal(got[i].Reasons, want[i].Reasons) {
				t.Errorf("%s: %s, %+v:\nOPA     %v\ngateway %v", name, questions[i].Claims, questions[i].Tool, got[i], want[i])
			}
		}
	}
	seen := map[string]int{}
	for _, v := range want {
		seen["allow"] += map[bool]int{true: 1}[v.Allow]
		for _, reason := range v.Reasons {
			seen[reason]++
		}
	}
	for _, reason := range []string{
		"allow", "unregistered", "drifted", "unlabelled", "unknown_facet", "no_role", "no_grant", "domain_not_granted",
		"effect_not_granted", "hint_not_granted", "data_not_granted", "reach_not_granted", "env_not_granted",
	} {
		if seen[reason] == 0 {
			t.Errorf("no question was answered %s: %v", reason, seen)
		}
	}
}

// TestOPAFindsNothing runs OPA's own check, format and tests on the shipped
// policies, and its check on them as init copies them, with the input's schema.
func TestOPAFindsNothing(t *testing.T) {
	schema := filepath.Join("..", "..", "gateway", "policy", "schema", "input.json")
	regogate(t, "opa", "check", "--strict", "--schema", schema, source)
	if out := regogate(t, "opa", "fmt", "--diff", "--fail", source); len(out) > 0 {
		t.Errorf("opa fmt would change:\n%s", out)
	}
	regogate(t, "opa", "test", "--timeout", "60s", source)
	regogate(t, "opa", "test", "--timeout", "60s", "--coverage", "--threshold", "100", source)
	alone := t.TempDir()
	if err := os.CopyFS(alone, fs.FS(policies.FS)); err != nil {
		t.Fatal(err)
	}
	regogate(t, "opa", "check", "--strict", "--schema", schema, alone)
	regogate(t, "opa", "test", "--timeout", "60s", alone)
}
