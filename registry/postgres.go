package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Postgres is the registry in a PostgreSQL that a fleet shares. Its tables change
// through Store only: what was written past it does not have the digest of the
// head, and Load refuses it. Every method ends within the configured timeout (ten
// of them for Load and what changes), also where the server never answers.
type Postgres struct {
	pool    *pgxpool.Pool
	where   *postgresURL
	schema  string
	timeout time.Duration
	log     *slog.Logger

	last    atomic.Pointer[Catalogue] // loaded last, whose parts are not read again
	standby atomic.Bool
	deaf    atomic.Pointer[string] // why hints do not come, or nil
	changed chan struct{}
	cancel  context.CancelFunc
	running sync.WaitGroup
	closing sync.Once
}

// NewPostgres returns the registry of a configuration that passed Validate. It
// connects in the background and when used; the error is about TLS files and the
// environment. The context bounds nothing but this call.
func NewPostgres(ctx context.Context, cfg PostgresConfig, log *slog.Logger) (*Postgres, error) {
	settings, where, err := cfg.connection()
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		return nil, fmt.Errorf("prepare the connection to PostgreSQL: %w", err)
	}
	background, cancel := context.WithCancel(context.Background())
	p := &Postgres{
		pool: pool, where: where, schema: cfg.schema(), timeout: cfg.timeout(), log: log,
		changed: make(chan struct{}, 1), cancel: cancel,
	}
	p.running.Go(func() { p.listen(background, settings.ConnConfig) })
	return p, nil
}

// headRow is the row of the head and what is known with it.
type headRow struct {
	Head
	number    int64 // the revision
	signature string
	standby   bool
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// readHead reads the head; lock is empty or " for update of head".
func readHead(ctx context.Context, q querier, lock string) (*headRow, error) {
	var h headRow
	var version int
	err := q.QueryRow(ctx, "select version, revision, digest, signature, pg_is_in_recovery() from head, schema_version"+lock).
		Scan(&version, &h.number, &h.Digest, &h.signature, &h.standby)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, errSchemaLacks
	case err != nil:
		return nil, err
	case version != schemaVersion:
		return nil, schemaError(version)
	}
	h.Revision = fmt.Sprint(h.number)
	return &h, nil
}

// Head reads the one row that says which revision is current.
func (p *Postgres) Head(ctx context.Context) (Head, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	h, err := readHead(ctx, p.pool, "")
	if err != nil {
		return Head{}, p.failed("read the head of the registry", err)
	}
	if p.standby.Swap(h.standby) != h.standby {
		p.log.Info("the registry's PostgreSQL is now what standby says", "database", p.where.String(), "standby", h.standby)
	}
	return h.Head, nil
}

// Load reads the catalogue of the current head, of which servers that are as
// they were in the catalogue loaded last are taken from that.
func (p *Postgres) Load(ctx context.Context, _ Head) (*Catalogue, error) {
	ctx, cancel := context.WithTimeout(ctx, many*p.timeout)
	defer cancel()
	var found *Catalogue
	err := pgx.BeginTxFunc(ctx, p.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		h, err := readHead(ctx, tx, "")
		if err != nil {
			return err
		}
		given, err := readCatalogueRows(ctx, tx, h, p.last.Load())
		if err != nil {
			return err
		}
		found, err = verified(h, given)
		return err
	})
	if err != nil {
		return nil, p.failed("load the registry", err)
	}
	p.last.Store(found)
	return found, nil
}

// Changed hints at changes that PostgreSQL told.
func (p *Postgres) Changed() <-chan struct{} { return p.changed }

// Problems says where changes may show late.
func (p *Postgres) Problems() (problems []string) {
	if p.standby.Load() {
		problems = append(problems, fmt.Sprintf("PostgreSQL %s is a standby: a change shows when it has been replicated, and nobody knows whether it has; use the primary", p.where))
	}
	if why := p.deaf.Load(); why != nil {
		problems = append(problems, *why)
	}
	return problems
}

// Close ends all connections. It may be called again.
func (p *Postgres) Close() error {
	p.closing.Do(func() {
		p.cancel()
		p.running.Wait()
		p.pool.Close()
	})
	return nil
}
