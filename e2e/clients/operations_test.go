package clients_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/regogate/regogate/e2e/clients"
)

// operation is a call and its result; one that fails says only that it does.
type operation struct {
	call clients.Call
	want clients.CallResult
}

// do is a call of another method than a tool's.
func do(method, name, arguments string, want clients.CallResult) operation {
	call := clients.Call{Method: method, Name: name}
	if arguments != "" {
		call.Arguments = json.RawMessage(arguments)
	}
	want.Name, want.OK = name, true
	return operation{call, want}
}

func named(items ...string) clients.CallResult { return clients.CallResult{Items: items} }

func reading(text string) clients.CallResult { return clients.CallResult{Text: text} }

// progressing are calls of a tool that tells of its steps: one to its end, and
// one that is cancelled at its first step.
func progressing(tool, few, many, text string) []operation {
	return []operation{
		{clients.Call{Name: tool, Arguments: json.RawMessage(few), Progress: true},
			clients.CallResult{Name: tool, OK: true, Text: text, Progress: []string{"1/3", "2/3", "3/3"}}},
		{clients.Call{Name: tool, Arguments: json.RawMessage(many), Cancel: true},
			clients.CallResult{Name: tool, Progress: []string{"1/60"}}},
	}
}

// TestOperations has every client do all that its driver can, at a server of
// the legacy era and at one of the modern era.
func TestOperations(t *testing.T) {
	everything := clients.Everything(t.Context(), t, clients.StreamableHTTP)
	server := clients.NewGoServer(t, "go")
	each(t, slices.Clone, func(t *testing.T, client clients.Client, era clients.Era) {
		if era == clients.Legacy {
			operate(t, client, clients.Spec{URL: everything, Era: era}, legacyOperations(client.Name))
			return
		}
		cancelled := server.Cancelled()
		operate(t, client, clients.Spec{URL: server.URL, Era: era}, modernOperations(client.Name))
		if client.Name == "inspector" {
			return
		}
		for end := time.Now().Add(5 * time.Second); server.Cancelled() != cancelled+1; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the server does not know that the call was cancelled")
			}
		}
	})
}

func operate(t *testing.T, client clients.Client, spec clients.Spec, all []operation) {
	t.Helper()
	for _, o := range all {
		spec.Calls = append(spec.Calls, o.call)
	}
	got, err := client.Run(t.Context(), t, spec)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range got.Calls {
		want := all[i].want
		if n := len(r.Progress); n == len(want.Progress)-1 && (client.Name == "ts-v1" || client.Name == "mcp-remote") {
			want.Progress = want.Progress[:n] // it drops a step that it reads together with the result
		}
		failed := r.Error
		r.Error = nil
		if !reflect.DeepEqual(r, want) || (failed == nil) != want.OK {
			t.Errorf("got  %+v %v\nwant %+v", r, failed, want)
		}
	}
}

func legacyOperations(client string) []operation {
	all := []operation{
		do("prompts/list", "", "", named("simple-prompt", "args-prompt", "completable-prompt", "resource-prompt")),
		do("resources/templates/list", "", "", named("demo://resource/dynamic/text/{resourceId}", "demo://resource/dynamic/blob/{resourceId}")),
		do("prompts/get", "args-prompt", `{"city":"Rome"}`, reading("What's weather in Rome?")),
		do("logging/setLevel", "debug", "", clients.CallResult{}),
	}
	if client == "inspector" {
		return all
	}
	const sales = `{"argument":{"name":"name","value":""},"context":{"arguments":{"department":"Sales"}}}`
	all = append(all, do("completion/complete", "completable-prompt", sales, named("David", "Eve", "Frank")))
	return append(all, progressing("trigger-long-running-operation", `{"duration":0.15,"steps":3}`, `{"duration":12,"steps":60}`,
		"Long running operation completed. Duration: 0.15 seconds, Steps: 3.")...)
}

func modernOperations(client string) []operation {
	all := []operation{
		do("prompts/list", "", "", named("greet", "plan")),
		do("resources/list", "", "", named("go://notes/first", "go://notes/second")),
		do("resources/templates/list", "", "", named("go://items/{id}")),
		do("prompts/get", "greet", `{"name":"Ann"}`, reading("Greet Ann.")),
		do("resources/read", "go://items/10", "", reading("This is go://items/10.")),
	}
	if client == "inspector" {
		return all
	}
	all = append(all,
		do("completion/complete", "greet", `{"argument":{"name":"name","value":"An"}}`, named("Ann", "Anton")),
		do("completion/complete", "go://items/{id}", `{"argument":{"name":"id","value":"1"}}`, named("10", "11")),
		operation{clients.Call{Name: "log", Arguments: json.RawMessage(`{"message":"m"}`), LogLevel: "warning"},
			clients.CallResult{Name: "log", OK: true, Text: "logged"}},
		// The server logged at a lower level before this.
		do("await", "notifications/message", `{"contains":"m"}`, reading("warning: m")),
	)
	if client == "go-sdk" || client == "ts-v2" {
		all = append(all, do("resources/subscribe", "go://notes/first", "", clients.CallResult{}),
			operation{clients.Call{Name: "touch"}, clients.CallResult{Name: "touch", OK: true, Text: "touched"}},
			// The other note was touched before this.
			do("await", "notifications/resources/updated", "", reading("go://notes/first")))
	}
	return append(all, progressing("count", `{"steps":3,"pause":30}`, `{"steps":60,"pause":200}`, "counted 3")...)
}
