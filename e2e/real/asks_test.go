package real_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/regogate/regogate/e2e/clients"
)

// answering are the clients that answer all that a server may ask.
func answering() []clients.Client {
	return slices.DeleteFunc(clients.All(), func(c clients.Client) bool {
		return !slices.Contains([]string{"go-sdk", "ts-v1", "ts-v2"}, c.Name)
	})
}

// answers are what a client says to every question.
func (s *shares) answers(era clients.Era, persona string) clients.Spec {
	return clients.Spec{
		URL: s.URL + "/mcp", Token: s.tokens[persona], Era: era,
		Answer: json.RawMessage(`{"name":"Ann","check":true}`), Sample: "a model's words", Roots: []string{"file:///home/ann"},
	}
}

// TestAsks has servers ask their clients: for a person's answer, a model's
// words and the roots.
func TestAsks(t *testing.T) {
	s := newShares(t)
	for _, client := range answering() {
		t.Run(client.Name, func(t *testing.T) {
			t.Run("answered", func(t *testing.T) { s.answered(t, client) })
			t.Run("not allowed", func(t *testing.T) { s.notAllowed(t, client) })
			t.Run("not supported", func(t *testing.T) { s.notSupported(t, client) })
			for _, server := range []string{piped, rested, sent} {
				t.Run(server, func(t *testing.T) { s.everythingAsks(t, client, server) })
			}
			for _, era := range client.Eras {
				t.Run("across/"+string(era), func(t *testing.T) { s.acrossEras(t, client, era) })
			}
		})
	}
}

// asks are the calls of the server that asks.
func asks(want func(ask string) func(*testing.T, clients.CallResult)) []step {
	var all []step
	for _, ask := range []string{"person", "model", "roots"} {
		all = append(all, step{call: clients.Call{Name: asker + "__" + ask}, want: want(ask), at: asker})
	}
	return all
}

func fails(parts ...string) func(*testing.T, clients.CallResult) {
	return func(t *testing.T, r clients.CallResult) {
		t.Helper()
		for _, part := range parts {
			if !r.IsError || r.OK || !strings.Contains(r.Text, part) {
				t.Errorf("got %+v (%v), want the tool to fail with %q", r, r.Error, part)
			}
		}
	}
}

func errs(code int, text string) func(*testing.T, clients.CallResult) {
	return func(t *testing.T, r clients.CallResult) {
		t.Helper()
		if r.Error == nil || r.Error.Code != code || !strings.HasSuffix(r.Error.Message, text) {
			t.Errorf("got %+v (%v), want error %d %q", r, r.Error, code, text)
		}
	}
}

func (s *shares) answered(t *testing.T, client clients.Client) {
	s.run(t, client, s.answers(clients.Legacy, owner), asks(func(ask string) func(*testing.T, clients.CallResult) {
		return says(map[string]string{"person": "accept Ann", "model": "a model's words", "roots": "file:///home/ann"}[ask])
	}))
}

// notAllowed has a server ask a client whom the policy keeps from being asked.
func (s *shares) notAllowed(t *testing.T, client clients.Client) {
	s.run(t, client, s.answers(clients.Legacy, mute), asks(func(string) func(*testing.T, clients.CallResult) {
		return fails("the policy does not allow this request to the client")
	}))
}

// notSupported has a server ask a client that declares nothing.
func (s *shares) notSupported(t *testing.T, client clients.Client) {
	spec := clients.Spec{URL: s.URL + "/mcp", Token: s.tokens[owner], Era: clients.Legacy}
	s.run(t, client, spec, asks(func(ask string) func(*testing.T, clients.CallResult) {
		return fails(map[string]string{
			"person": "client does not support elicitation", // says the server, which knows it already
			"model":  "the client does not support sampling/createMessage", "roots": "the client does not support roots/list",
		}[ask])
	}))
}

// everythingAsks has server-everything ask, by the tools that it has only for
// clients that can answer.
func (s *shares) everythingAsks(t *testing.T, client clients.Client, server string) {
	steps := []step{
		{clients.Call{Name: server + "__trigger-elicitation-request"}, says("- Name: Ann\n- Agreed to terms: true"), server},
		{clients.Call{Name: server + "__trigger-sampling-request", Arguments: arguments(object{"prompt": "say"})}, says("a model's words"), server},
		{clients.Call{Name: server + "__get-roots-list"}, says("file:///home/ann"), server},
	}
	s.run(t, client, s.answers(clients.Legacy, owner), steps)
}

// acrossEras has servers of either era ask a client of the other. Nobody is
// kept waiting.
func (s *shares) acrossEras(t *testing.T, client clients.Client, era clients.Era) {
	var steps []step
	for _, server := range []string{notes, papers} {
		want := says("accept Ann")
		if era == clients.Legacy {
			want = errs(-32603, "server "+server+" asks for input, which this client's protocol revision cannot give to it")
		}
		steps = append(steps, step{call: clients.Call{Name: server + "__ask"}, want: want})
	}
	if era != clients.Legacy {
		const reason = "the client speaks MCP 2026-07-28, in which servers send no requests: "
		steps = append(steps, asks(func(ask string) func(*testing.T, clients.CallResult) {
			return fails(map[string]string{
				"person": "client does not support elicitation", // since a server is not told of what it cannot ask for
				"model":  reason + "sampling/createMessage cannot reach it", "roots": reason + "roots/list cannot reach it",
			}[ask])
		})...)
	}
	s.run(t, client, s.answers(era, owner), steps)
}

// run runs the client and checks what comes of each step.
func (s *shares) run(t *testing.T, client clients.Client, spec clients.Spec, steps []step) clients.Result {
	t.Helper()
	for _, step := range steps {
		spec.Calls = append(spec.Calls, step.call)
	}
	got, err := client.Run(t.Context(), t, spec)
	fatal(t, err)
	for i, r := range got.Calls {
		steps[i].want(t, r)
	}
	return got
}
