//go:build unix

package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/regogate/regogate/e2e/pgserver"
)

// TestPostgresScripts runs those parts of the command line that need a registry in
// PostgreSQL. Each script has an empty database of its own at $DATABASE_URL, where
// sql runs a statement as nobody should.
func TestPostgresScripts(t *testing.T) {
	server := pgserver.Start(t)
	var scripts atomic.Int64
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/postgres",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE") != "",
		Setup: func(env *testscript.Env) error {
			database := fmt.Sprintf("script_%d", scripts.Add(1))
			server.Exec("postgres", "create database "+database)
			env.Values["database"] = database
			env.Setenv("DATABASE_URL", server.URL("regogate", database))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"dated":   dated,
			"digests": digests,
			"sql": func(ts *testscript.TestScript, _ bool, args []string) {
				server.Exec(ts.Value("database").(string), args...)
			},
		},
	})
}
