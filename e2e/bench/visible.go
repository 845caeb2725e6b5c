package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway/policy"
	"github.com/regogate/regogate/policies"
	"github.com/regogate/regogate/registry"
)

// visible returns the exposed names that the shipped policy lets a persona
// see, sorted. It asks the policy directly, without the gateway.
func (t *toolset) visible(ctx context.Context, persona string) ([]string, error) {
	engine, err := policy.New(policy.Config{FS: policies.FS}, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	claims, err := world.Claims(persona)
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
	for i, e := range t.entries {
		exposed, _ := registry.Exposed(e.Server, e.Name)
		facts := policy.Tool{
			Server: e.Server, Name: e.Name, ExposedName: exposed, Registered: true,
			Attributes: e.Attributes, Effect: e.Effect, Data: e.Data, Reach: e.Reach, Env: e.Env, Owner: e.Owner, Labels: e.Labels,
			Definition: policy.Definition{SHA256: "00"},
		}
		if hints := t.definitions[i].Annotations; hints != nil {
			if facts.Definition.Annotations, err = json.Marshal(hints); err != nil {
				return nil, err
			}
		}
		item, err := policy.NewItem(facts)
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
