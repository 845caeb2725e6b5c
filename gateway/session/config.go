package session

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"time"

	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/strictyaml"
)

// Config bounds sessions and says where they live.
type Config struct {
	Idle         time.Duration `yaml:"idle"`          // ends when unused for this long
	Lifetime     time.Duration `yaml:"lifetime"`      // ends this long after initialize
	Max          int           `yaml:"max"`           // in all; one more is refused
	PerPrincipal int           `yaml:"per_principal"` // one more ends the principal's least recently used one

	// Redis is where all replicas of a fleet keep their sessions. Nil keeps
	// them in this process.
	Redis *registry.RedisConfig `yaml:"redis"`
	// Key seals what is in Redis: base64 or hex of at least 32 bytes, the same
	// for all replicas. Another key means other sessions: those that there
	// were are not found any more.
	Key strictyaml.Secret `yaml:"key"`
}

// Defaults fills in the bounds that the operator left out.
func (c *Config) Defaults() {
	if c.Idle == 0 {
		c.Idle = 30 * time.Minute
	}
	if c.Lifetime == 0 {
		c.Lifetime = 24 * time.Hour
	}
	if c.Max == 0 {
		c.Max = 10_000
	}
	if c.PerPrincipal == 0 {
		c.PerPrincipal = 64
	}
}

// Validate returns every problem, with paths that begin with the given one.
func (c *Config) Validate(path string) []strictyaml.Problem {
	var problems []strictyaml.Problem
	add := func(key, message string) {
		problems = append(problems, strictyaml.Problem{Path: strictyaml.Field(path, key), Message: message})
	}
	for _, bound := range []struct {
		key   string
		value int64
	}{
		{"idle", int64(c.Idle)}, {"lifetime", int64(c.Lifetime)}, {"max", int64(c.Max)}, {"per_principal", int64(c.PerPrincipal)},
	} {
		if bound.value <= 0 {
			add(bound.key, "must be more than 0")
		}
	}
	if c.Redis == nil {
		if c.Key != "" {
			add("key", "has no effect without redis: remove it, or say where Redis is")
		}
		return problems
	}
	problems = append(problems, c.Redis.Validate(strictyaml.Field(path, "redis"))...)
	if c.Key == "" {
		add("key", "is missing: what is in Redis is sealed with a key that all replicas share; make one with openssl rand -base64 32")
	} else if _, err := parseKey(c.Key); err != nil {
		add("key", err.Error())
	}
	return problems
}

const minKey = 32 // bytes

// parseKey returns the bytes of a key. The error never repeats it.
func parseKey(key strictyaml.Secret) ([]byte, error) {
	for _, read := range []func(string) ([]byte, error){
		hex.DecodeString, // first: hex is base64 too, of more bytes than it has
		base64.StdEncoding.Strict().DecodeString, base64.RawStdEncoding.Strict().DecodeString,
		base64.URLEncoding.Strict().DecodeString, base64.RawURLEncoding.Strict().DecodeString,
	} {
		if b, err := read(string(key)); err == nil {
			if len(b) >= minKey {
				return b, nil
			}
			break
		}
	}
	return nil, errors.New("must be base64 or hex of at least 32 bytes: make one with openssl rand -base64 32")
}
