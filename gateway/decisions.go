package gateway

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/regogate/regogate/gateway/policy"
	"github.com/regogate/regogate/gateway/policy/decisionlog"
)

// Decisions is the decision log that a configuration asks for.
type Decisions struct {
	*decisionlog.Log
	file io.Closer // nil without
}

// OpenDecisions opens it. stdout is where the file - leads. What of the
// configuration is for OPA's decision log is changed: events are masked before
// OPA gets them, and it must not do that again. Errors begin with the path of the
// setting. The caller closes the log after the gateway has ended.
func OpenDecisions(c *Config, version string, stdout io.Writer, log *slog.Logger) (*Decisions, error) {
	paths, masked, err := c.maskPaths()
	if err != nil {
		return nil, err
	}
	if masked != nil {
		c.Policy.OPA = maps.Clone(c.Policy.OPA)
		c.Policy.OPA["decision_logs"] = masked
	}
	local, err := c.masker(paths)
	if err != nil {
		return nil, err
	}
	var file *decisionlog.File
	if name := c.DecisionLog.File; name != "" && name != "-" {
		if file, err = decisionlog.OpenFile(name, int64(c.DecisionLog.MaxSize), c.DecisionLog.Keep); err != nil {
			return nil, fmt.Errorf("decision_log.file: %w: correct the path, or who may write there", err)
		}
	}
	d := &Decisions{Log: decisionlog.New(decisionlog.Options{
		Log: log, FailClosed: c.DecisionLog.FailClosed, Paths: paths, Local: local,
		Labels: map[string]string{"app": "regogate", "id": uuid.NewString(), "version": version},
	})}
	switch {
	case file != nil:
		d.Attach("file", file)
		d.file = file
	case c.DecisionLog.File == "-":
		d.Attach("stdout", stdout)
	}
	return d, nil
}

// Close writes what waits, as long as ctx lets it, and closes the file.
func (d *Decisions) Close(ctx context.Context) error {
	// A Write that hangs would hold up closing the file as well.
	if err := d.Log.Close(ctx); err != nil || d.file == nil {
		return err
	}
	return d.file.Close()
}

// maskPaths are the rules that mask, and OPA's decision_logs without them, nil
// where there are none.
func (c *Config) maskPaths() (paths policy.MaskPaths, masked map[string]any, err error) {
	settings, ok := c.Policy.OPA["decision_logs"].(map[string]any)
	if !ok {
		return paths, nil, nil
	}
	if paths, masked, err = decisionlog.OPAConfig(settings); err != nil {
		return paths, nil, fmt.Errorf("policy.opa.%w", err)
	}
	return paths, masked, nil
}

// masker compiles the local mask, nil without one.
func (c *Config) masker(paths policy.MaskPaths) (*policy.Masker, error) {
	name := c.DecisionLog.Mask
	if name == "" {
		return nil, nil
	}
	source, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("decision_log.mask: %s %s: correct the path", name, unreadable(err))
	}
	m, err := policy.NewMasker(name, source, paths, c.Policy.Deadline)
	if err != nil {
		return nil, fmt.Errorf("decision_log.mask: %w", err)
	}
	if !m.Masks() && !m.Drops() {
		return nil, fmt.Errorf("decision_log.mask: %s has neither of the rules mask and drop: add one, or remove the setting", name)
	}
	return m, nil
}

// attach has a recorder with sinks give decisions to OPA's decision log as well,
// where the configuration has one, or may get one.
func (g *Gateway) attach() {
	sinks, ok := g.records.(interface {
		Attach(name string, w io.Writer)
	})
	opa := g.config.Policy.OPA
	if p := g.engine.Plane(); ok && p != nil && (opa["decision_logs"] != nil || opa["discovery"] != nil) {
		sinks.Attach("opa", decisionlog.NewService(p))
	}
}

// flushWait is how long the sinks of the decision log have for what waits, before
// the parts end that they may need.
const flushWait = 2 * time.Second

// flush has the recorder hand on what waits, if it is one that does so later.
func (g *Gateway) flush() {
	later, ok := g.records.(interface{ Flush(context.Context) error })
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushWait)
	defer cancel()
	if err := later.Flush(ctx); err != nil {
		g.log.Warn("decision records are still waiting for a sink", keyError, err)
	}
}
