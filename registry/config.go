package registry

import (
	"context"
	"io/fs"
	"log/slog"
	"time"

	"github.com/regogate/regogate/registry/strictyaml"
)

// Config says where the registry is. The zero value is the catalogue that
// comes with the binary, without a cache.
type Config struct {
	// Path is a catalogue file, or a directory of them. Without it and Postgres
	// it is the catalogue that comes with the binary.
	Path string `yaml:"path"`
	// Postgres holds the catalogue instead, for a fleet. Nil means none.
	Postgres *PostgresConfig `yaml:"postgres"`
	// Redis is a cache that the replicas of a fleet share. Nil means none.
	Redis *RedisConfig `yaml:"redis"`
	// CacheTTL is how long Redis keeps the content of one revision; 0 means
	// one hour. It has no part in how stale a decision can be.
	CacheTTL time.Duration `yaml:"cache_ttl"`
	// MaxStaleness is how long decisions go on while the source cannot be
	// asked whether the snapshot is still current; 0 means 30 s.
	MaxStaleness time.Duration `yaml:"max_staleness"`
	// InsecureServeStale lets decisions go on beyond MaxStaleness, on
	// attributes that may have been revoked.
	InsecureServeStale bool `yaml:"insecure_serve_stale"`
	// Verify says which signature every catalogue must have, wherever it comes
	// from. Nil asks for none.
	Verify *VerifyConfig `yaml:"verify"`
}

// Bounds of the configurable times. A staleness below a few polls would deny
// on every hiccup.
const (
	minStaleness     = 2 * time.Second
	defaultStaleness = 30 * time.Second
	minTTL           = time.Minute
	defaultTTL       = time.Hour
)

// Validate returns every problem, with paths that begin with the given one.
func (c *Config) Validate(path string) []strictyaml.Problem {
	v := checker{path: path}
	if c.MaxStaleness != 0 && c.MaxStaleness < minStaleness {
		v.problem("max_staleness", "want at least %s", minStaleness)
	}
	if c.CacheTTL != 0 && c.CacheTTL < minTTL {
		v.problem("cache_ttl", "want at least %s", minTTL)
	}
	if c.CacheTTL != 0 && c.Redis == nil {
		v.problem("cache_ttl", "has no effect without redis")
	}
	if c.Postgres != nil {
		if c.Path != "" {
			v.problem("path", "want path or postgres, not both")
		}
		v.problems = append(v.problems, c.Postgres.Validate(strictyaml.Field(path, "postgres"))...)
	}
	if c.Redis != nil {
		v.problems = append(v.problems, c.Redis.Validate(strictyaml.Field(path, "redis"))...)
	}
	if c.Verify != nil {
		v.problems = append(v.problems, c.Verify.Validate(strictyaml.Field(path, "verify"))...)
		if c.Path == "" && c.Postgres == nil {
			v.problem("verify", "the catalogue that comes with the binary is not signed; name yours with path")
		}
	}
	return v.problems
}

func (c *Config) staleness() time.Duration {
	if c.MaxStaleness == 0 {
		return defaultStaleness
	}
	return c.MaxStaleness
}

func (c *Config) ttl() time.Duration {
	if c.CacheTTL == 0 {
		return defaultTTL
	}
	return c.CacheTTL
}

// Open builds the configured source, behind the cache where there is one, and
// loads its first snapshot. embedded is the catalogue that comes with the
// binary. A Redis that is down does not matter; a catalogue of files with
// problems, or without the signature that is asked for, does, and the error has a
// line for each. A PostgreSQL that cannot be used yet, or what it holds, is the
// keeper's to go on asking: it has no snapshot, and its status and the log say why.
func Open(ctx context.Context, cfg Config, embedded fs.FS, log *slog.Logger) (*Keeper, error) {
	var verifier *Verifier
	var err error
	if cfg.Verify != nil {
		if verifier, err = NewVerifier(*cfg.Verify); err != nil {
			return nil, err
		}
	}
	if cfg.InsecureServeStale {
		log.Warn("insecure_serve_stale is set: decisions rest on the registry however long ago its source was heard of")
	}
	source, err := openSource(ctx, cfg, embedded, log)
	if err != nil {
		return nil, err
	}
	k := NewKeeper(source, cfg, log)
	k.verifier = verifier
	if err := k.Refresh(ctx); err != nil && (cfg.Postgres == nil || ctx.Err() != nil) {
		k.Close()
		return nil, err
	}
	return k, nil
}

// OpenStore opens the configured registry to change it, without a cache. A
// catalogue that cannot be changed opens too, for what only reads, and so does one
// of files with problems: until they are mended all fails with a line for each but
// Quarantine.
func OpenStore(cfg Config, embedded fs.FS, log *slog.Logger) (Store, error) {
	if cfg.Postgres == nil && cfg.Path != "" {
		return openToChange(cfg.Path, log)
	}
	return openStore(context.Background(), cfg, embedded, log)
}

// Source says where the registry is, for people. It holds no secret.
func (c *Config) Source() string {
	switch {
	case c.Postgres != nil:
		return c.Postgres.source()
	case c.Path != "":
		return c.Path
	}
	return "the catalogue that comes with the binary"
}

func openSource(ctx context.Context, cfg Config, embedded fs.FS, log *slog.Logger) (Source, error) {
	source, err := openStore(ctx, cfg, embedded, log)
	if err != nil || cfg.Redis == nil {
		return source, err
	}
	client, err := NewClient(*cfg.Redis)
	if err != nil {
		source.Close()
		return nil, err
	}
	return NewCached(source, client, cfg.Redis.prefix(), cfg.ttl(), log), nil
}

func openStore(ctx context.Context, cfg Config, embedded fs.FS, log *slog.Logger) (Store, error) {
	switch {
	case cfg.Postgres != nil:
		return NewPostgres(ctx, *cfg.Postgres, log)
	case cfg.Path != "":
		return OpenFile(cfg.Path, log)
	}
	return OpenFS(embedded, "embedded", log)
}
