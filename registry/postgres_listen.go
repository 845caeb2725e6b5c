package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// retryDeaf is how long a server that cannot send hints, such as a standby, is
// left alone.
const retryDeaf = 15 * time.Second

// listen waits for hints on a connection of its own until the context ends. The
// channel has the schema's name.
func (p *Postgres) listen(ctx context.Context, settings *pgx.ConnConfig) {
	for ctx.Err() == nil {
		err := p.hear(ctx, settings)
		if ctx.Err() != nil {
			return
		}
		pause := retryAfter
		var reply *pgconn.PgError
		if errors.As(err, &reply) && reply.Code == "25006" {
			pause = retryDeaf // Problems names a standby for what it is
		} else {
			p.setDeaf(p.failed("listen for changes of the registry", err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// hear listens on one connection until it fails.
func (p *Postgres) hear(ctx context.Context, settings *pgx.ConnConfig) error {
	within := func(do func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, p.timeout)
		defer cancel()
		return do(ctx)
	}
	var conn *pgx.Conn
	err := within(func(ctx context.Context) (err error) {
		conn, err = pgx.ConnectConfig(ctx, settings)
		return err
	})
	if err != nil {
		return err
	}
	defer func() {
		_ = conn.Close(context.WithoutCancel(ctx)) // nothing is lost with it
		<-conn.PgConn().CleanupDone()
	}()
	if err := within(func(ctx context.Context) error {
		_, err := conn.Exec(ctx, "listen "+pgx.Identifier{p.schema}.Sanitize())
		return err
	}); err != nil {
		return err
	}
	for {
		p.setHearing()
		// Also at the beginning: hints before that are lost.
		hint(p.changed)
		if err := p.await(ctx, conn, within); err != nil {
			return err
		}
	}
}

// await returns when a hint came. A connection that is quiet is tried now and then.
func (p *Postgres) await(ctx context.Context, conn *pgx.Conn, within func(func(context.Context) error) error) error {
	for {
		quiet, cancel := context.WithTimeout(ctx, pingEvery)
		_, err := conn.WaitForNotification(quiet)
		cancel()
		if err == nil || ctx.Err() != nil || !pgconn.Timeout(err) {
			return err
		}
		if err := within(conn.Ping); err != nil {
			return err
		}
	}
}

// setDeaf and setHearing log once for each change of state.
func (p *Postgres) setDeaf(err error) {
	why := fmt.Sprintf("changes of the registry show up to half a second later: %v", err)
	if p.deaf.Swap(&why) == nil {
		p.log.Warn("changes of the registry show later, for PostgreSQL cannot tell them", "error", err)
	}
}

func (p *Postgres) setHearing() {
	if p.deaf.Swap(nil) != nil {
		p.log.Info("PostgreSQL can tell changes of the registry again")
	}
}
