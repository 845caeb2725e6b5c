package real_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regogate/regogate/e2e/clients"
)

// TestThings has every client, in every era that it speaks, use all that
// servers of either era offer beside tools. The owner uses what there is, the
// guest meets what is not hers.
func TestThings(t *testing.T) {
	s := newShares(t)
	s.expectations(t)
	t.Run("owner", func(t *testing.T) {
		for _, client := range clients.All() {
			for _, era := range client.Eras {
				t.Run(fmt.Sprintf("%s/%s", client.Name, era), func(t *testing.T) { s.own(t, client, era) })
			}
		}
	})
	t.Run("together", func(t *testing.T) { s.countTogether(t) })
	t.Run("guest", func(t *testing.T) {
		for _, client := range clients.All() {
			for _, era := range visiting(client) {
				t.Run(fmt.Sprintf("%s/%s", client.Name, era), func(t *testing.T) { s.visit(t, client, era) })
			}
		}
	})
}

// visiting are the eras in which the client is the guest: the newest, and for
// those that take little time the oldest, too.
func visiting(client clients.Client) []clients.Era {
	ends := []clients.Era{client.Eras[0], client.Eras[len(client.Eras)-1]}
	if client.Name == "inspector" {
		return ends[1:]
	}
	return slices.Compact(ends)
}

// expectations makes sure that the test can fail.
func (s *shares) expectations(t *testing.T) {
	t.Helper()
	count := map[string]int{}
	for _, persona := range []string{owner, guest} {
		for _, kind := range []string{tool, prompt, resource, template} {
			count[persona+" "+kind] = len(s.expected(t, persona, kind))
		}
	}
	want := map[string]int{
		"owner tool": 5 + 4 + 3*17 + 4, "owner prompt": 2 + 2 + 3*4, "owner resource": 2 + 2 + 7 + 2, "owner template": 1 + 1 + 2,
		"guest tool": 3 + 2 + 3, "guest prompt": 1 + 1 + 3*2, "guest resource": 1 + 1 + 1, "guest template": 1,
	}
	if !maps.Equal(count, want) {
		t.Fatalf("OPA allows %v, want %v", count, want)
	}
}

// step is a call and what has to come of it.
type step struct {
	call clients.Call
	want func(*testing.T, clients.CallResult)
	at   string // the server where it arrives; none where empty
}

// lists are the four lists as a persona has to see them.
func (s *shares) lists(t *testing.T, persona string) []step {
	t.Helper()
	list := func(method, kind string) step {
		return step{call: clients.Call{Method: method}, want: items(s.expected(t, persona, kind)...)}
	}
	return []step{list("prompts/list", prompt), list("resources/list", resource), list("resources/templates/list", template)}
}

func items(want ...string) func(*testing.T, clients.CallResult) {
	return func(t *testing.T, r clients.CallResult) {
		t.Helper()
		if !r.OK || !slices.Equal(r.Items, want) {
			t.Errorf("got %+v (%v)\nwant %v", r, r.Error, want)
		}
	}
}

func says(want string) func(*testing.T, clients.CallResult) {
	return func(t *testing.T, r clients.CallResult) {
		t.Helper()
		if !r.OK || r.IsError || !strings.Contains(r.Text, want) {
			t.Errorf("got %+v (%v), want %q", r, r.Error, want)
		}
	}
}

func arguments(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

type object = map[string]any

// reads are prompts and resources of servers of both eras.
func reads() []step {
	const document, dynamic = "demo://resource/static/document/features.md", "demo://resource/dynamic/text/7"
	return []step{
		{clients.Call{Method: "prompts/get", Name: rested + "__args-prompt", Arguments: arguments(object{"city": "Rome"})}, says("What's weather in Rome?"), rested},
		{clients.Call{Method: "prompts/get", Name: notes + "__greet", Arguments: arguments(object{"name": "Ann"})}, says("Greet Ann."), notes},
		{clients.Call{Method: "prompts/get", Name: papers + "__greet", Arguments: arguments(object{"name": "Ann"})}, says("Greet Ann."), papers},
		{clients.Call{Method: "resources/read", Name: document}, says("Everything Server"), piped},
		{clients.Call{Method: "resources/read", Name: dynamic}, says("Resource 7: This is a plaintext resource"), piped},
		{clients.Call{Method: "resources/read", Name: "go://notes/second"}, says("This is go://notes/second."), notes},
		{clients.Call{Method: "resources/read", Name: "go://items/10"}, says("This is go://items/10."), notes},
		{clients.Call{Method: "resources/read", Name: "ts://notes/first"}, says("This is ts://notes/first."), papers},
		{clients.Call{Method: "resources/read", Name: "ts://items/11"}, says("This is ts://items/11."), papers},
	}
}

func completions() []step {
	complete := func(name, argument, value string, context object) clients.Call {
		given := object{"argument": object{"name": argument, "value": value}}
		if context != nil {
			given["context"] = object{"arguments": context}
		}
		return clients.Call{Method: "completion/complete", Name: name, Arguments: arguments(given)}
	}
	return []step{
		{complete(rested+"__completable-prompt", "department", "S", nil), items("Sales", "Support"), rested},
		{complete(rested+"__completable-prompt", "name", "", object{"department": "Sales"}), items("David", "Eve", "Frank"), rested},
		{complete(notes+"__greet", "name", "An", nil), items("Ann", "Anton"), notes},
		{complete(papers+"__greet", "name", "An", nil), items("Ann", "Anton"), papers},
		{complete("go://items/{id}", "id", "1", nil), items("10", "11"), notes},
		{complete("ts://items/{id}", "id", "1", nil), items("10", "11"), papers},
	}
}

// counts are calls that tell of their progress, and calls that are cancelled.
func counts(client string) []step {
	// A client of the first TypeScript SDK drops a step that it reads together
	// with the result.
	late := client == "ts-v1" || client == "mcp-remote"
	progress := func(want string, steps ...string) func(*testing.T, clients.CallResult) {
		return func(t *testing.T, r clients.CallResult) {
			t.Helper()
			says(want)(t, r)
			if !slices.Equal(r.Progress, steps) && !(late && slices.Equal(r.Progress, steps[:len(steps)-1])) {
				t.Errorf("%s: progress %v, want %v", r.Name, r.Progress, steps)
			}
		}
	}
	stopped := func(t *testing.T, r clients.CallResult) {
		t.Helper()
		if r.OK || r.Error == nil || len(r.Progress) != 1 {
			t.Errorf("got %+v, want it cancelled at its first step", r)
		}
	}
	long := func(steps int, seconds float64) json.RawMessage {
		return arguments(object{"steps": steps, "duration": seconds})
	}
	short := func(steps, pause int) json.RawMessage { return arguments(object{"steps": steps, "pause": pause}) }
	const operation = "__trigger-long-running-operation"
	return []step{
		{clients.Call{Name: rested + operation, Arguments: long(3, 0.15), Progress: true}, progress("completed", "1/3", "2/3", "3/3"), rested},
		{clients.Call{Name: notes + "__count", Arguments: short(3, 30), Progress: true}, progress("counted 3", "1/3", "2/3", "3/3"), notes},
		{clients.Call{Name: papers + "__count", Arguments: short(3, 30), Progress: true}, progress("counted 3", "1/3", "2/3", "3/3"), papers},
		{clients.Call{Name: rested + operation, Arguments: long(40, 8), Cancel: true}, stopped, rested},
		{clients.Call{Name: notes + "__count", Arguments: short(60, 200), Cancel: true}, stopped, notes},
		{clients.Call{Name: papers + "__count", Arguments: short(60, 200), Cancel: true}, stopped, papers},
	}
}

// logged has a server log at two levels, of which the client asks for the higher.
func logged(era clients.Era, word string) []step {
	var all []step
	level := "warning"
	if era == clients.Legacy {
		all = append(all, step{call: clients.Call{Method: "logging/setLevel", Name: level}, want: says("")})
		level = ""
	}
	for _, server := range []string{notes, papers} {
		word := word + server
		all = append(all,
			step{clients.Call{Name: server + "__log", Arguments: arguments(object{"message": word}), LogLevel: level}, says("logged"), server},
			// The lower one was logged first, so it would be found first.
			step{call: clients.Call{Method: "await", Name: "notifications/message", Arguments: arguments(object{"contains": word})},
				want: says("warning: " + word)})
	}
	return all
}

// own has a client use what is the owner's, which is all.
func (s *shares) own(t *testing.T, client clients.Client, era clients.Era) {
	steps := slices.Concat(s.lists(t, owner), reads())
	cancelled := s.notes.Cancelled()
	if client.Name == "inspector" { // every step is a process: its eras share them out
		i := slices.Index(client.Eras, era)
		steps = slices.Concat(steps[i:i+1], reads()[3*i:3*i+3])
	} else {
		steps = slices.Concat(steps, completions(), counts(client.Name), logged(era, client.Name+string(era)))
	}
	before, from := s.used(t), time.Now()
	got := s.play(t, client, era, owner, steps)
	if want := s.expected(t, owner, tool); !slices.Equal(got.Tools, want) {
		t.Errorf("listed %v\nwant   %v", got.Tools, want)
	}
	took := time.Since(from)
	s.arrivedBoth(t, before, steps)
	if client.Name != "inspector" {
		within(t, 5*time.Second, "cancelled at the modern server", func() bool { return s.notes.Cancelled() == cancelled+1 })
	}
	t.Logf("%d steps in %v", len(steps), took.Round(time.Millisecond))
}

// play runs the client and checks what comes of each step.
func (s *shares) play(t *testing.T, client clients.Client, era clients.Era, persona string, steps []step) clients.Result {
	t.Helper()
	spec := clients.Spec{URL: s.URL + "/mcp", Token: s.tokens[persona], Era: era}
	for _, step := range steps {
		spec.Calls = append(spec.Calls, step.call)
	}
	got, err := client.Run(t.Context(), t, spec)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range got.Calls {
		t.Run(strings.TrimSpace(fmt.Sprint(i, " ", steps[i].call.Method, " ", r.Name)), func(t *testing.T) { steps[i].want(t, r) })
	}
	return got
}

// arrivedBoth checks that the steps, and nothing else, arrived where they
// should; of the cancelled calls, the cancellation too where it is a message. It
// may be overtaken by the next step.
func (s *shares) arrivedBoth(t *testing.T, before map[string][]string, steps []step) {
	t.Helper()
	want, ended := map[string][]string{}, map[string]int{}
	for _, step := range steps {
		if step.at == "" {
			continue
		}
		method, name := step.call.Method, step.call.Name
		if method == "" {
			method = "tools/call"
		}
		want[step.at] = append(want[step.at], method+" "+strings.TrimPrefix(name, step.at+"__"))
		if step.call.Cancel && step.at != notes { // to a modern server over HTTP, the stream's end says it
			ended[step.at]++
		}
	}
	within(t, 5*time.Second, "cancellations arrived", func() bool {
		_, got := cancellations(s.usedSince(t, before))
		return maps.Equal(got, ended)
	})
	if got, _ := cancellations(s.usedSince(t, before)); !maps.EqualFunc(got, want, slices.Equal[[]string]) {
		t.Errorf("arrived %v\nwant    %v", got, want)
	}
}

// cancellations counts the cancellations of what arrived, and leaves the rest.
func cancellations(arrived map[string][]string) (rest map[string][]string, count map[string]int) {
	count = map[string]int{}
	for server, all := range arrived {
		n := len(all)
		all = slices.DeleteFunc(all, func(m string) bool { return m == "notifications/cancelled" })
		arrived[server] = all
		if n > len(all) {
			count[server] = n - len(all)
		}
	}
	return arrived, count
}

// visit has a client be the guest: it is shown her part, and all else is
// answered like what does not exist, and arrives nowhere.
func (s *shares) visit(t *testing.T, client clients.Client, era clients.Era) {
	steps := s.lists(t, guest)
	if client.Name != "inspector" {
		steps = append(steps, s.hidden(client.Name)...)
	}
	before := s.used(t)
	got := s.play(t, client, era, guest, steps)
	if want := s.expected(t, guest, tool); !slices.Equal(got.Tools, want) {
		t.Errorf("listed %v\nwant   %v", got.Tools, want)
	}
	if got := s.usedSince(t, before); len(got) > 0 {
		t.Errorf("arrived %v, want nothing", got)
	}
}

// hidden asks for what is not the guest's, each followed by what nobody has.
func (s *shares) hidden(client string) []step {
	pairs := []clients.Call{
		{Method: "prompts/get", Name: rested + "__args-prompt"}, {Method: "prompts/get", Name: rested + "__args-promqt"},
		{Method: "prompts/get", Name: notes + "__plan"}, {Method: "prompts/get", Name: notes + "__plaq"},
		{Method: "resources/read", Name: "go://notes/second"}, {Method: "resources/read", Name: "go://notes/secoqd"},
		{Method: "resources/read", Name: "ts://items/11"}, {Method: "resources/read", Name: "tx://items/11"},
		{Method: "resources/read", Name: "demo://resource/static/document/startup.md"},
		{Method: "resources/read", Name: "demo://resource/static/document/startuq.md"},
	}
	argument := arguments(object{"argument": object{"name": "id", "value": "1"}})
	for _, name := range []string{papers + "__plan", papers + "__plaq", "ts://items/{id}", "ts://items/{iq}"} {
		pairs = append(pairs, clients.Call{Method: "completion/complete", Name: name, Arguments: argument})
	}
	var all []step
	var first *clients.CallResult
	for i, call := range pairs {
		all = append(all, step{call: call, want: func(t *testing.T, r clients.CallResult) {
			t.Helper()
			if r.OK || r.Error == nil {
				t.Fatalf("got %+v, want an error", r)
			}
			problem := *r.Error
			problem.Message = strings.ReplaceAll(problem.Message, call.Name, "NAME")
			problem.Data = json.RawMessage(strings.ReplaceAll(string(problem.Data), call.Name, "NAME"))
			if i%2 == 0 {
				first = &clients.CallResult{Error: &problem}
				return
			}
			if a, b := fmt.Sprintf("%v %s", first.Error, first.Error.Data), fmt.Sprintf("%v %s", &problem, problem.Data); a != b {
				t.Errorf("%s: what is hidden is answered %s, what is not there %s", client, a, b)
			}
		}})
	}
	return all
}
