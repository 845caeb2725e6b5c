package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"github.com/regogate/regogate/gateway/policy/plane"
)

// Defaults of Config.
const (
	DefaultDeadline     = 250 * time.Millisecond
	DefaultListDeadline = 3 * time.Second
	DefaultCacheEntries = 65_536
)

// What Config.Check can say.
const (
	CheckRefuse = "refuse"
	CheckWarn   = "warn"
)

// Config says where the policy is and what it may do.
type Config struct {
	// Dir is a directory of .rego files and data, which is watched. Where it is
	// "" and OPA names no bundles, FS is read once.
	Dir string `yaml:"dir"`
	// FS holds the policy to use without Dir.
	FS fs.FS `yaml:"-"`
	// OPA is OPA's own configuration: services, bundles, keys, discovery, status,
	// decision_logs and so on, as OPA documents it.
	OPA map[string]any `yaml:"opa"`
	// Version and Labels are what OPA's services are told of this process.
	Version string            `yaml:"-"`
	Labels  map[string]string `yaml:"-"`
	// Deadline is the time for one decision; 0 means DefaultDeadline.
	Deadline time.Duration `yaml:"deadline"`
	// ListDeadline is the time for all decisions of one list; 0 means
	// DefaultListDeadline.
	ListDeadline time.Duration `yaml:"list_deadline"`
	// InsecureBuiltins names built-in functions to turn on that are otherwise
	// off: http.send, net.lookup_ip_addr, opa.runtime, rand.intn, uuid.rfc4122.
	InsecureBuiltins []string `yaml:"insecure_builtins"`
	// Check says what becomes of a policy whose allow reads what it never gets,
	// input.arguments, or what differs between a list and a call,
	// input.request.id: CheckRefuse, the default, or CheckWarn.
	Check string `yaml:"check"`
	// Cache bounds the answers that are remembered.
	Cache CacheConfig `yaml:"cache"`

	counters *counters // of the engine
}

// CacheConfig bounds the decision cache.
type CacheConfig struct {
	Disabled bool `yaml:"disabled"` // evaluate every question
	Entries  int  `yaml:"entries"`  // answers on one kind of thing; 0 means DefaultCacheEntries
}

// Validate returns every problem of the configuration itself, joined; each says
// the key that it is about. It reads no policy.
func (c *Config) Validate() error {
	var errs []error
	if c.Dir == "" && c.FS == nil && !c.distributed() {
		errs = append(errs, errors.New("dir: no policy is given"))
	}
	if c.Dir != "" && c.distributed() {
		errs = append(errs, errors.New("dir: the policy comes from opa.bundles or opa.discovery already: keep one of them"))
	}
	if c.Deadline < 0 {
		errs = append(errs, fmt.Errorf("deadline: %v is negative", c.Deadline))
	}
	if c.ListDeadline < 0 {
		errs = append(errs, fmt.Errorf("list_deadline: %v is negative", c.ListDeadline))
	}
	if _, err := capabilities(c.InsecureBuiltins); err != nil {
		errs = append(errs, err)
	}
	if c.Check != "" && c.Check != CheckRefuse && c.Check != CheckWarn {
		errs = append(errs, fmt.Errorf("check: must be %s or %s", CheckRefuse, CheckWarn))
	}
	if c.Cache.Entries < 0 {
		errs = append(errs, fmt.Errorf("cache.entries: %d is negative; cache.disabled turns the cache off", c.Cache.Entries))
	}
	if c.OPA != nil {
		errs = append(errs, c.validateOPA())
	}
	return errors.Join(errs...)
}

func (c *Config) validateOPA() error {
	document, err := json.Marshal(c.OPA)
	if err == nil {
		err = plane.Check(document)
	}
	if err == nil {
		return nil
	}
	var errs []error
	for line := range strings.SplitSeq(err.Error(), "\n") {
		errs = append(errs, errors.New("opa."+line))
	}
	return errors.Join(errs...)
}

// distributed reports whether the policy comes in bundles.
func (c *Config) distributed() bool {
	return c.OPA["bundles"] != nil || c.OPA["bundle"] != nil || c.OPA["discovery"] != nil
}

// read returns the files of the policy, wherever they are.
func (c *Config) read() (*tree, Problems) {
	if c.Dir != "" {
		return readDir(c.Dir)
	}
	return readTree(c.FS, "")
}

func (c *Config) withDefaults() Config {
	out := *c
	if out.Deadline == 0 {
		out.Deadline = DefaultDeadline
	}
	if out.ListDeadline == 0 {
		out.ListDeadline = DefaultListDeadline
	}
	if out.Check == "" {
		out.Check = CheckRefuse
	}
	if out.Cache.Entries == 0 {
		out.Cache.Entries = DefaultCacheEntries
	}
	if out.counters == nil {
		out.counters = &counters{}
	}
	return out
}

// Check reads and compiles the policy as an Engine would, asks it for its own
// problems, and returns what is wrong; nothing means that an Engine would use
// it. It expects a valid configuration without bundles.
func Check(c Config) Problems {
	t, problems := c.read()
	if len(problems) > 0 {
		return problems
	}
	_, problems = newSnapshot(t, c.withDefaults(), slog.New(slog.DiscardHandler))
	return problems
}

// Try is Check for any configuration: where the policy comes in bundles, it
// waits until these are in force or ctx is done, and says what was wrong then.
func Try(ctx context.Context, c Config) Problems {
	if !c.distributed() {
		return Check(c)
	}
	e, err := New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		return Problems{{Message: err.Error()}}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = e.Run(ctx) }()
	for e.Current() == nil && ctx.Err() == nil {
		select {
		case <-e.Changed():
		case <-ctx.Done():
		}
	}
	status := e.Status()
	cancel()
	<-ended
	if status.Revision != "" {
		return nil
	}
	return status.Problems
}
