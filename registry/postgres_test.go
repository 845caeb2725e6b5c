//go:build unix

package registry

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/regogate/regogate/e2e/pgserver"
	"github.com/regogate/regogate/registry/strictyaml"
)

// What needs no server of its own to break.
func TestPostgres(t *testing.T) {
	server := pgserver.Start(t)
	for _, c := range []struct {
		name string
		run  func(t *testing.T, server *pgserver.Server)
	}{
		{"migrate", testMigrate},
		{"errors", testPostgresErrors},
		{"grants", testPostgresGrants},
		{"history", testPostgresHistory},
		{"replace", testPostgresReplace},
		{"conflict", testPostgresConflict},
		{"edited by hand", testPostgresEditedByHand},
		{"loads what changed", testPostgresLoadsWhatChanged},
		{"one line", testPostgresOneLine},
		{"keeps text", testPostgresKeepsText},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, server) })
	}
}

// postgresConfig is that of a fresh schema with the tables in it.
func postgresConfig(t testing.TB, server *pgserver.Server) PostgresConfig {
	t.Helper()
	cfg := PostgresConfig{
		URL: strictyaml.Secret(server.URL("regogate", "postgres")), Timeout: 10 * time.Second,
		Schema: fmt.Sprintf("s%d", time.Now().UnixNano()),
	}
	if from, to, err := Migrate(t.Context(), cfg); err != nil || from != 0 || to != schemaVersion {
		t.Fatalf("from %d to %d, %v", from, to, err)
	}
	return cfg
}

func openPostgres(t testing.TB, cfg PostgresConfig) *Postgres {
	t.Helper()
	p, err := NewPostgres(t.Context(), cfg, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// readDir is the catalogue in a directory.
func readDir(t testing.TB, dir string) *Catalogue {
	t.Helper()
	f := &File{fsys: os.DirFS(dir), dir: dir}
	if err := f.open(); err != nil {
		t.Fatal(err)
	}
	return f.current
}

// postgresTruth is a registry in PostgreSQL that somebody else syncs with the
// directory.
func postgresTruth(server *pgserver.Server) func(t *testing.T) *truth {
	return func(t *testing.T) *truth {
		cfg := postgresConfig(t, server)
		tr := &truth{dir: t.TempDir(), cfg: cfg}
		tr.open = func(t *testing.T) Source { return openPostgres(t, cfg) }
		tr.publish = func(t *testing.T) {
			t.Helper()
			p := openPostgres(t, cfg)
			defer p.Close()
			if _, err := p.Replace(t.Context(), Author{Name: "sync"}, head(t, p), readDir(t, tr.dir), ReplaceOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		return tr
	}
}
