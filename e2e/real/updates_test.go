package real_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/regogate/regogate/e2e/clients"
)

// TestUpdates has clients subscribe to resources of servers of either era, by
// the way of their own era. They hear of what they asked for and may read, and
// of nothing else.
func TestUpdates(t *testing.T) {
	s := newShares(t)
	for _, client := range clients.All() {
		for _, era := range subscribing(client) {
			t.Run(client.Name+"/"+string(era), func(t *testing.T) {
				for server, scheme := range map[string]string{notes: "go", asker: "ask"} {
					t.Run(server, func(t *testing.T) { s.touched(t, client, era, server, scheme) })
				}
				if era == clients.Legacy {
					t.Run("everything", func(t *testing.T) { s.everythingUpdates(t, client) })
				}
				t.Run("hidden", func(t *testing.T) { s.hiddenUpdates(t, client, era) })
			})
		}
	}
}

// subscribing are the eras in which the client's driver subscribes.
func subscribing(client clients.Client) []clients.Era {
	switch client.Name {
	case "go-sdk", "ts-v1", "ts-v2":
		return slices.Compact([]clients.Era{client.Eras[0], client.Eras[len(client.Eras)-1]})
	case "mcp-remote", "python-sdk": // the bridge sends no subscriptions/listen
		return client.Eras[:1]
	}
	return nil
}

func subscribe(uri string) clients.Call {
	return clients.Call{Method: "resources/subscribe", Name: uri}
}

// heard waits for the first notice of a resource with this in its URI.
func heard(part string) clients.Call {
	return clients.Call{Method: "await", Name: "notifications/resources/updated", Arguments: arguments(object{"contains": part})}
}

func (s *shares) touched(t *testing.T, client clients.Client, era clients.Era, server, scheme string) {
	first := scheme + "://notes/first"
	s.run(t, client, clients.Spec{URL: s.URL + "/mcp", Token: s.tokens[owner], Era: era}, []step{
		{call: subscribe(first), want: says("")},
		{call: clients.Call{Name: server + "__touch"}, want: says("touched")},
		// The other one was touched before this, so it would be found first.
		{call: heard("://notes/"), want: says(first)},
	})
}

// everythingUpdates subscribes at server-everything, one client over each of its
// transports: on its own route, as all of them have the same URIs.
func (s *shares) everythingUpdates(t *testing.T, client clients.Client) {
	const uri = "demo://resource/dynamic/text/1"
	servers := []string{rested, piped, sent}
	if client.Name != "go-sdk" { // each run of it is a process
		servers = servers[:1]
	}
	for _, server := range servers {
		t.Run(server, func(t *testing.T) {
			spec := clients.Spec{URL: s.URL + "/mcp/" + server, Token: s.tokens[owner], Era: clients.Legacy}
			s.run(t, client, spec, []step{
				{call: subscribe(uri), want: says("")},
				{call: clients.Call{Name: "toggle-subscriber-updates"}, want: says("Started simulated resource updated notifications")},
				{call: heard(""), want: says(uri)},
			})
		})
	}
}

// hiddenUpdates has the guest subscribe to what is not hers. In the legacy era
// that is answered like what does not exist; in the modern one it is left out
// of what is listened for. She hears of her own alone, though both are touched.
func (s *shares) hiddenUpdates(t *testing.T, client clients.Client, era clients.Era) {
	refusal := says("")
	if era == clients.Legacy {
		refusal = func(t *testing.T, r clients.CallResult) {
			t.Helper()
			code := -32002
			if client.Name == "ts-v2" { // which makes it the code of the modern era
				code = -32602
			}
			if r.Error == nil || r.Error.Code != code || !strings.HasSuffix(r.Error.Message, "Resource not found") {
				t.Errorf("got %+v (%v), want error %d", r, r.Error, code)
			}
		}
	}
	before := s.used(t)
	s.run(t, client, clients.Spec{URL: s.URL + "/mcp", Token: s.tokens[guest], Era: era}, []step{
		{call: subscribe("go://notes/second"), want: refusal},
		{call: subscribe("go://notes/secoqd"), want: refusal},
		{call: subscribe("go://notes/first"), want: says("")},
		{call: clients.Call{Name: notes + "__touch"}, want: says("touched")},
		{call: heard("://notes/"), want: says("go://notes/first")},
	})
	if got := s.usedSince(t, before)[notes]; !slices.Equal(got, []string{"tools/call touch"}) {
		t.Errorf("arrived %v, want the touch alone", got)
	}
}
