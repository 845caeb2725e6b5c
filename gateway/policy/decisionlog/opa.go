package decisionlog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"time"

	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/server"
	"github.com/open-policy-agent/opa/v1/util"

	"github.com/regogate/regogate/gateway/policy"
)

// Plugin is OPA's decision log plugin, or what has its Log.
type Plugin interface {
	Log(ctx context.Context, decision *server.Info) error
}

// service is a sink that hands events to a Plugin.
type service struct {
	plugin   Plugin
	failures int // of the next line
}

// serviceTries is how often a Plugin gets an event that it does not take. It
// keeps and repeats itself what its server does not take, so that what it refuses
// is not for it.
const serviceTries = 3

// NewService returns a sink for Attach that hands the events to OPA's plugin,
// which has buffers, retries and limits of its own: what it has taken counts as
// written. The events are masked; OPAConfig keeps the plugin from masking again.
// The plugin gives each its own labels, and what was erased and masked stands in
// custom, since the plugin has no other way to be told.
func NewService(p Plugin) io.Writer { return &service{plugin: p} }

// Write implements io.Writer for whole lines.
func (s *service) Write(lines []byte) (taken int, err error) {
	var lost lostError
	for taken < len(lines) {
		line, _, _ := bytes.Cut(lines[taken:], []byte("\n"))
		info, err := read(line)
		if err == nil {
			err = s.plugin.Log(context.Background(), info)
		}
		if err != nil {
			if s.failures++; s.failures < serviceTries {
				return taken, err
			}
			lost.lines, lost.cause = lost.lines+1, err
		}
		s.failures = 0
		taken += len(line) + 1
	}
	if lost.lines > 0 {
		return taken, &lost
	}
	return taken, nil
}

// uploaded is an event as a line has it.
type uploaded struct {
	DecisionID  string                       `json:"decision_id"`
	TraceID     string                       `json:"trace_id"`
	SpanID      string                       `json:"span_id"`
	Bundles     map[string]server.BundleInfo `json:"bundles"`
	Path        string                       `json:"path"`
	Input       *any                         `json:"input"`
	Result      *any                         `json:"result"`
	Erased      []any                        `json:"erased"`
	Masked      []any                        `json:"masked"`
	Error       *problem                     `json:"error"`
	RequestedBy string                       `json:"requested_by"`
	Timestamp   time.Time                    `json:"timestamp"`
	Metrics     map[string]any               `json:"metrics"`
	Custom      map[string]any               `json:"custom"`
}

// problem is an error that is JSON as it was in the line.
type problem struct{ json.RawMessage }

func (p *problem) Error() string { return string(p.RawMessage) }

// takenBefore are metrics that were taken before.
type takenBefore struct {
	metrics.Metrics
	all map[string]any
}

func (t takenBefore) All() map[string]any { return t.all }

func read(line []byte) (*server.Info, error) {
	var e uploaded
	if err := util.UnmarshalJSON(line, &e); err != nil { // keeps numbers exact
		return nil, fmt.Errorf("read the event: %w", err)
	}
	info := &server.Info{
		DecisionID: e.DecisionID, TraceID: e.TraceID, SpanID: e.SpanID, Bundles: e.Bundles, Path: e.Path,
		Input: e.Input, Results: e.Result, RemoteAddr: e.RequestedBy, Timestamp: e.Timestamp, Custom: e.Custom,
	}
	if e.Error != nil {
		info.Error = e.Error
	}
	if e.Metrics != nil {
		info.Metrics = takenBefore{metrics.NoOp(), e.Metrics}
	}
	for name, paths := range map[string][]any{"erased": e.Erased, "masked": e.Masked} {
		if len(paths) == 0 {
			continue
		}
		if info.Custom == nil {
			info.Custom = map[string]any{}
		}
		info.Custom[name] = paths
	}
	return info, nil
}

// nowhere is a path that no rule has: packages outside mcp and system.log are
// refused.
const nowhere = "/regogate/masked/already"

// OPAConfig reads, of OPA's decision_logs, which rules mask and drop, and returns
// decision_logs as OPA is to get it: with rules that do not exist, since what it
// gets is masked already. The given map stays as it is. It fails where a path is
// no text.
func OPAConfig(decisionLogs map[string]any) (policy.MaskPaths, map[string]any, error) {
	var paths policy.MaskPaths
	out := maps.Clone(decisionLogs)
	if out == nil {
		out = map[string]any{}
	}
	for key, path := range map[string]*string{"mask_decision": &paths.Mask, "drop_decision": &paths.Drop} {
		if value, there := out[key]; there {
			text, ok := value.(string)
			if !ok {
				return paths, nil, fmt.Errorf("decision_logs.%s: must be the path of a rule, such as /system/log/mask", key)
			}
			*path = text
		}
		out[key] = nowhere
		if err := paths.Validate(); err != nil {
			return paths, nil, fmt.Errorf("decision_logs.%s: %w", key, err)
		}
	}
	return paths, out, nil
}
