package registry

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// schemaProblem is about tables that are not those of this binary.
type schemaProblem string

func (s schemaProblem) Error() string { return string(s) }

const errSchemaLacks schemaProblem = "has no registry in it; run `regogate registry migrate`"

// errTampered says that the tables hold something else than was published.
var errTampered = errors.New("what the tables hold is not what was published under the digest of the head, so they were changed past regogate; " +
	"put it right with `regogate registry sync --repair`, or restore the database")

// schemaError is about tables of another version than the binary's.
func schemaError(version int) error {
	if version < schemaVersion {
		return schemaProblem(fmt.Sprintf("has version %d of the registry's tables and this binary needs %d; run `regogate registry migrate`", version, schemaVersion))
	}
	return schemaProblem(fmt.Sprintf("has version %d of the registry's tables and this binary knows only %d; use a newer regogate", version, schemaVersion))
}

// failed says in one line what was attempted where, and how to mend it.
func (p *Postgres) failed(doing string, err error) error {
	return postgresError(doing, p.where, p.schema, err)
}

func postgresError(doing string, where *postgresURL, schema string, err error) error {
	doing = strings.Join(strings.Fields(doing), " ") // it may name what is no name
	of := func(format string, args ...any) error {
		return fmt.Errorf("%s: PostgreSQL %s "+format, append([]any{doing, where}, args...)...)
	}
	var reply *pgconn.PgError
	var schemaIs schemaProblem
	isReply := errors.As(err, &reply)
	switch {
	case errors.Is(err, ErrConflict), errors.Is(err, ErrUnknown), errors.Is(err, errTampered), errors.Is(err, errRefused):
		return fmt.Errorf("%s: %w", doing, err)
	case isReply:
		return replied(of, where, schema, reply)
	case errors.As(err, &schemaIs):
		return of("%w", schemaIs)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w", doing, context.Canceled)
	case errors.Is(err, context.DeadlineExceeded), pgconn.Timeout(err):
		return of("did not answer in time: %w", context.DeadlineExceeded)
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		err = connect.Unwrap()
	}
	return of("cannot be used: %w", oneLine{err})
}

// replied is about what the server said itself.
func replied(of func(string, ...any) error, where *postgresURL, schema string, reply *pgconn.PgError) error {
	said := oneLine{reply}
	switch reply.Code {
	case "28P01", "28000": // invalid_password, invalid_authorization_specification
		return of("does not let the user %s in: %w; look at registry.postgres.url and password, and at pg_hba.conf", where.user, said)
	case "3D000": // invalid_catalog_name
		return of("has no such database; create it, or correct registry.postgres.url")
	case "3F000", "42P01", "42703": // invalid_schema_name, undefined_table, undefined_column
		return of("has no registry in schema %s that the user %s may see; run `regogate registry migrate`, or grant what registry/README.md says", schema, where.user)
	case "42501": // insufficient_privilege
		return of("does not allow it to the user %s: %w; registry/README.md has the grants", where.user, said)
	case "25006": // read_only_sql_transaction
		return of("is read-only, being a standby or set to it, so %w; change it at the primary", ErrReadOnly)
	case "57014": // query_canceled, by statement_timeout
		return of("did not answer in time: %w", context.DeadlineExceeded)
	}
	return of("refuses: %w", said)
}

// oneLine is an error whose text is one line.
type oneLine struct{ err error }

func (e oneLine) Error() string {
	var reply *pgconn.PgError
	if errors.As(e.err, &reply) {
		return strings.Join(strings.Fields(reply.Message), " ") + " (SQLSTATE " + reply.Code + ")"
	}
	return strings.Join(strings.Fields(e.err.Error()), " ")
}

func (e oneLine) Unwrap() error { return e.err }
