// Package limit bounds how often something may happen: requests of each
// principal, calls of each tool. Replicas count together in Redis, and each by
// itself where there is none or it does not answer.
package limit

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/strictyaml"
)

// Config says what is bounded. The zero value bounds nothing.
type Config struct {
	PerPrincipal *Limit           `yaml:"per_principal"` // requests of one principal
	PerTool      *Limit           `yaml:"per_tool"`      // calls of one tool, by all principals together
	Tools        map[string]Limit `yaml:"tools"`         // by exposed name, in place of PerTool
	// Redis is where all replicas count together. Its timeout is 20 ms where it
	// says nothing: that long a request waits for it at most.
	Redis *registry.RedisConfig `yaml:"redis"`
}

// Limit is a bucket that holds burst and fills at rate: in any time t no more than
// burst + rate·t go through.
type Limit struct {
	Rate  Rate `yaml:"rate"`
	Burst int  `yaml:"burst"` // at once; 0 means as many as the number of rate
}

// Rate is so many in a time. In a file it is 100/s, 10/m or 5/h.
type Rate struct {
	Count int
	Per   time.Duration // a second, a minute or an hour
}

// most bounds a rate's number and a burst, far above what one principal or tool
// can use.
const most = 1_000_000

// UnmarshalText reads the form that String writes.
func (r *Rate) UnmarshalText(text []byte) error {
	digits, unit, _ := strings.Cut(string(text), "/")
	per := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[unit]
	n, err := strconv.Atoi(digits)
	if err != nil || per == 0 || n < 1 || n > most || strconv.Itoa(n) != digits {
		return fmt.Errorf("want a number from 1 to %d and a time, such as 100/s, 10/m or 5/h", most)
	}
	*r = Rate{n, per}
	return nil
}

// String writes a rate as a file has it.
func (r Rate) String() string {
	return fmt.Sprintf("%d/%c", r.Count, map[time.Duration]byte{time.Second: 's', time.Minute: 'm', time.Hour: 'h'}[r.Per])
}

// burst is how many go through at once.
func (l Limit) burst() int {
	if l.Burst == 0 {
		return l.Rate.Count
	}
	return l.Burst
}

// interval is how long one more takes to become free, rounded up.
func (l Limit) interval() time.Duration {
	return time.Duration(math.Ceil(float64(l.Rate.Per) / float64(l.Rate.Count)))
}

func (l Limit) check() (key string, err error) {
	switch {
	case l.Rate == Rate{}:
		return "rate", errors.New("is missing; want a number and a time, such as 100/s, 10/m or 5/h")
	case l.Burst < 0 || l.Burst > most:
		return "burst", fmt.Errorf("want 1 to %d; without it, it is the number of rate", most)
	}
	return "", nil
}

// Validate returns every problem, with paths that begin with the given one.
func (c *Config) Validate(path string) (problems []strictyaml.Problem) {
	add := func(path, message string) {
		problems = append(problems, strictyaml.Problem{Path: path, Message: message})
	}
	one := func(path string, l *Limit) {
		if l == nil {
			return
		}
		if key, err := l.check(); err != nil {
			add(strictyaml.Field(path, key), err.Error())
		}
	}
	one(strictyaml.Field(path, "per_principal"), c.PerPrincipal)
	one(strictyaml.Field(path, "per_tool"), c.PerTool)
	tools := strictyaml.Field(path, "tools")
	for _, name := range slices.Sorted(maps.Keys(c.Tools)) {
		l, at := c.Tools[name], strictyaml.Field(tools, name)
		if _, _, ok := registry.SplitExposed(name); !ok {
			add(at, "is no name of a tool; want SERVER__TOOL, as tools/list on /mcp has it")
		}
		one(at, &l)
	}
	if c.Redis == nil {
		return problems
	}
	if !c.limits() {
		add(strictyaml.Field(path, "redis"), "has no effect without per_principal, per_tool or tools")
	}
	return append(problems, c.Redis.Validate(strictyaml.Field(path, "redis"))...)
}

// limits reports whether anything is bounded.
func (c *Config) limits() bool { return c.PerPrincipal != nil || c.PerTool != nil || len(c.Tools) > 0 }

// tool is the limit of a tool; nil where it has none.
func (c *Config) tool(exposed string) *Limit {
	if l, ok := c.Tools[exposed]; ok {
		return &l
	}
	return c.PerTool
}
