package world

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/errgroup"

	"github.com/regogate/regogate/gateway/policy"
	"github.com/regogate/regogate/policies"
	"github.com/regogate/regogate/registry"
)

// Report is what one persona met that tried every tool of the catalogue.
type Report struct {
	Persona             string   `json:"persona"`
	Visible             int      `json:"visible"`              // tools in its list
	AllowedCalls        int      `json:"allowed_calls"`        // calls that gave a result
	RefusedCalls        int      `json:"refused_calls"`        // calls that gave an error
	ArrivedCalls        int      `json:"arrived_calls"`        // calls that reached a server
	UnauthorizedArrived int      `json:"unauthorized_arrived"` // of these, calls that the policy does not allow
	Problems            []string `json:"problems,omitempty"`   // what is not as the policy says; empty when all is well
}

// Trial is a gateway, and servers behind it that write down what reaches them.
type Trial struct {
	Tools    []registry.Tool // all that the servers offer
	Policies fs.FS           // what is in force
	Client   func(persona string) (*Client, error)
	Ledgers  []Ledger // of all servers
}

// Ledger is what one server has written down. Nobody else uses it meanwhile.
type Ledger interface {
	// Arrived returns the exposed names of the calls since the last Reset, one
	// for each.
	Arrived(ctx context.Context) ([]string, error)
	Reset(ctx context.Context) error
}

// Try is Trial.Try in the world with the shipped policies.
func (w *World) Try(ctx context.Context, persona string) (Report, error) {
	return w.trial().Try(ctx, persona)
}

// Expected is Trial.Expected of the shipped policies.
func (w *World) Expected(ctx context.Context, persona string) ([]string, error) {
	return w.trial().Expected(ctx, persona)
}

func (w *World) trial() *Trial {
	t := &Trial{Tools: w.Tools, Policies: policies.FS, Client: w.Client}
	for _, s := range w.Servers {
		t.Ledgers = append(t.Ledgers, s)
	}
	return t
}

// Try lets a persona list the tools and call every tool, and compares what it
// saw and what arrived at the servers with what the policy says when it is asked
// directly. Nobody else may use gateway and servers meanwhile.
func (t *Trial) Try(ctx context.Context, persona string) (Report, error) {
	client, err := t.Client(persona)
	if err != nil {
		return Report{}, err
	}
	expected, err := t.Expected(ctx, persona)
	if err != nil {
		return Report{}, err
	}
	for _, l := range t.Ledgers {
		if err := l.Reset(ctx); err != nil {
			return Report{}, err
		}
	}
	visible, err := client.List(ctx)
	if err != nil {
		return Report{}, err
	}
	allowed, refused, err := t.callAll(ctx, client)
	if err != nil {
		return Report{}, err
	}
	arrived, err := t.arrived(ctx)
	if err != nil {
		return Report{}, err
	}
	r := Report{
		Persona: persona, Visible: len(visible), AllowedCalls: len(allowed), RefusedCalls: refused, ArrivedCalls: len(arrived),
	}
	for _, name := range arrived {
		if _, ok := slices.BinarySearch(expected, name); !ok {
			r.UnauthorizedArrived++
		}
	}
	for _, part := range []struct {
		what string
		got  []string
	}{{"listed", visible}, {"called with a result", allowed}, {"arrived at the servers", arrived}} {
		if extra, missing := difference(part.got, expected); len(extra)+len(missing) > 0 {
			r.Problems = append(r.Problems, fmt.Sprintf("%s: too many %v, missing %v", part.what, extra, missing))
		}
	}
	return r, nil
}

// Expected returns the exposed names that the policy allows a persona, sorted.
// It asks the policy directly, without the gateway.
func (t *Trial) Expected(ctx context.Context, persona string) ([]string, error) {
	engine, err := policy.New(policy.Config{FS: t.Policies}, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	claims, err := Claims(persona)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(claims)
	if err != nil {
		return nil, err
	}
	subject, err := policy.NewSubject(raw)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, tool := range t.Tools {
		exposed, _ := registry.Exposed(tool.Server, tool.Name)
		item, err := policy.NewItem(policy.Tool{
			Server: tool.Server, Name: tool.Name, ExposedName: exposed, Registered: true,
			Attributes: tool.Attributes, Effect: tool.Effect, Data: tool.Data, Reach: tool.Reach, Env: tool.Env, Owner: tool.Owner, Labels: tool.Labels,
			Definition: policy.Definition{SHA256: "00"},
		})
		if err != nil {
			return nil, err
		}
		if engine.Current().Allow(ctx, policy.Question{Method: "tools/call", Subject: subject, Item: item}).Allowed {
			names = append(names, exposed)
		}
	}
	slices.Sort(names)
	return names, nil
}

// callAll calls every tool once and returns the names that gave a result.
func (t *Trial) callAll(ctx context.Context, client *Client) (allowed []string, refused int, err error) {
	var mu sync.Mutex
	calls, ctx := errgroup.WithContext(ctx)
	calls.SetLimit(8)
	for _, tool := range t.Tools {
		name, _ := registry.Exposed(tool.Server, tool.Name)
		calls.Go(func() error {
			out, err := client.Call(ctx, name, nil)
			if err != nil {
				return fmt.Errorf("call %s: %w", name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if out.Result != nil {
				allowed = append(allowed, name)
			} else {
				refused++
			}
			return nil
		})
	}
	err = calls.Wait()
	return allowed, refused, err
}

// arrived returns the exposed names of the calls that the servers received.
func (t *Trial) arrived(ctx context.Context) ([]string, error) {
	var all []string
	for _, l := range t.Ledgers {
		names, err := l.Arrived(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, names...)
	}
	return all, nil
}

// difference returns what only got has and what only want has; both count
// repetitions.
func difference(got, want []string) (extra, missing []string) {
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	for len(got) > 0 || len(want) > 0 {
		switch {
		case len(want) == 0 || len(got) > 0 && got[0] < want[0]:
			extra, got = append(extra, got[0]), got[1:]
		case len(got) == 0 || want[0] < got[0]:
			missing, want = append(missing, want[0]), want[1:]
		default:
			got, want = got[1:], want[1:]
		}
	}
	return extra, missing
}
