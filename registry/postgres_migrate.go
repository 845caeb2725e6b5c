package registry

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
)

// The tables' history, a file a version, in the order of their names. A change of
// the canonical encoding needs one as well: it changes every digest.
//
//go:embed migrations/*.sql
var migrations embed.FS

// schemaVersion is that of the tables which this binary reads and writes.
const schemaVersion = 1

// migrationLock is held by who migrates: the number says nothing.
const migrationLock = 7046293801151

// Migrate brings the tables to the version that this binary needs, in one
// transaction, and returns the version before, 0 being none, and after. Several
// may run at once; all but one find nothing to do. The role must be able to create
// the schema, or own it.
func Migrate(ctx context.Context, cfg PostgresConfig) (from, to int, err error) {
	settings, where, err := cfg.connection()
	if err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, many*cfg.timeout())
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, settings.ConnConfig)
	if err == nil {
		defer func() {
			_ = conn.Close(context.WithoutCancel(ctx)) // all is committed or lost by now
			<-conn.PgConn().CleanupDone()
		}()
		err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			from, err = migrate(ctx, tx, cfg.schema())
			return err
		})
	}
	if err != nil {
		return 0, 0, postgresError("migrate the registry", where, cfg.schema(), err)
	}
	return from, schemaVersion, nil
}

func migrate(ctx context.Context, tx pgx.Tx, schema string) (from int, err error) {
	if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1)", int64(migrationLock)); err != nil {
		return 0, err
	}
	var schemaThere, versionThere bool
	err = tx.QueryRow(ctx, "select to_regnamespace($1) is not null, to_regclass($1 || '.schema_version') is not null", schema).Scan(&schemaThere, &versionThere)
	if err != nil {
		return 0, err
	}
	if !schemaThere {
		if _, err := tx.Exec(ctx, "create schema "+pgx.Identifier{schema}.Sanitize()); err != nil {
			return 0, err
		}
	}
	if !versionThere {
		if _, err := tx.Exec(ctx, "create table schema_version (single boolean primary key default true check (single), version integer not null)"); err != nil {
			return 0, err
		}
	} else if err := tx.QueryRow(ctx, "select version from schema_version").Scan(&from); err != nil {
		return 0, err
	}
	if from > schemaVersion {
		return 0, schemaError(from)
	}
	return from, upgrade(ctx, tx, from)
}

// upgrade applies what is missing after the version from.
func upgrade(ctx context.Context, tx pgx.Tx, from int) error {
	if from == schemaVersion {
		return nil
	}
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	for _, name := range files[from:schemaVersion] {
		text, err := migrations.ReadFile(name)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, string(text)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	empty, err := NewCatalogue("", Catalogue{})
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "insert into head (revision, digest) values (0, $1) on conflict do nothing", empty.Head.Digest); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "insert into schema_version (version) values ($1) on conflict (single) do update set version = excluded.version", schemaVersion)
	return err
}
