package cases

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/policy/decisionlog"
)

// Sink is a server to which OPA's decision log uploads what was decided.
type Sink struct {
	Mode string `yaml:"mode"` // see Action
}

// Uploaded is what a sink has got so far.
type Uploaded struct {
	All   bool             `yaml:"all"` // nothing is missing; what is there is always compared: each decision once, in order
	Probe `yaml:",inline"` // of the newest
}

// collect adds the sink to OPA's configuration.
func (w *world) collect(opa map[string]any) map[string]any {
	if w.sink == nil {
		return opa
	}
	if opa == nil {
		opa = map[string]any{}
	}
	services, _ := opa["services"].(map[string]any)
	if services == nil {
		services = map[string]any{}
	}
	services["sink"] = map[string]any{"url": w.sink.url()}
	opa["services"] = services
	opa["decision_logs"] = map[string]any{"service": "sink", "reporting": map[string]any{"min_delay_seconds": 1, "max_delay_seconds": 1}}
	return opa
}

// bookkeeper gives records to the journal and to the decision log that the
// configuration asks for.
type bookkeeper struct {
	*gateway.Decisions
	journal *journal
}

// Record implements decisionlog.Recorder.
func (r *bookkeeper) Record(record *decisionlog.Record) bool {
	kept := r.Decisions.Record(record)
	return r.journal.Record(record) && kept
}

// Flush waits for both.
func (r *bookkeeper) Flush(ctx context.Context) error {
	return errors.Join(r.Decisions.Flush(ctx), r.journal.decisions.Flush(ctx))
}

// close ends the decision log; what it cannot be rid of is lost.
func (r *bookkeeper) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := r.Decisions.Close(ctx); err != nil {
		r.journal.logger().Warn("the decision log did not end well", "error", err)
	}
}

// uploaded compares what the sink has got.
func (p *player) uploaded(e *Expect) (problems []string) {
	if e.Uploaded == nil {
		return nil
	}
	if p.sink == nil {
		return []string{"the world has no sink"}
	}
	var got []string
	events := p.sink.Events()
	for _, event := range events {
		id, _ := event.Fields["decision_id"].(string)
		got = append(got, id)
	}
	want := p.journal.ids()
	if e.Uploaded.All && len(got) != len(want) {
		problems = append(problems, fmt.Sprintf("%d events are uploaded, want %d", len(got), len(want)))
	}
	if !slices.Equal(got, want[:min(len(want), len(got))]) {
		problems = append(problems, fmt.Sprintf("the events %s\nare not in the order of the decisions\n%s", clip(fmt.Sprint(got)), clip(fmt.Sprint(want))))
	}
	if len(events) > 0 {
		problems = append(problems, e.Uploaded.check(jsontext.Value(events[len(events)-1].Raw))...)
	}
	return problems
}
