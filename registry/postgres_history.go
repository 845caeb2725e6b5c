package registry

import (
	"context"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"
)

// HistoryFilter chooses events; what is empty chooses all.
type HistoryFilter struct {
	Server string
	Tool   string
	Since  time.Time
	Limit  int // of the newest ones; 0 means 100
}

// Event is one change of one thing. All of one revision were made at once.
type Event struct {
	Revision string
	At       time.Time
	By       Author
	What     string // server, tool, pin, quarantine or signature
	Server   string
	Tool     string
	Old      jsontext.Value // canonical JSON; nil: it was not there
	New      jsontext.Value // canonical JSON; nil: it is not there any more
}

const defaultHistory = 100

// History returns the events, the newest first and those of one revision by
// server, tool and what they are about. The caller owns them.
func (p *Postgres) History(ctx context.Context, f HistoryFilter) ([]Event, error) {
	ctx, cancel := context.WithTimeout(ctx, many*p.timeout)
	defer cancel()
	if f.Limit <= 0 {
		f.Limit = defaultHistory
	}
	if _, err := readHead(ctx, p.pool, ""); err != nil {
		return nil, p.failed("read the history", err)
	}
	rows, err := p.pool.Query(ctx, "select h.revision, r.at, r.actor, r.note, h.what, h.server, h.tool, h.old, h.new from history h "+
		"join revisions r using (revision) where ($1 = '' or h.server = $1) and ($2 = '' or h.tool = $2) and r.at >= $3 "+
		"order by h.revision desc, h.n limit $4", f.Server, f.Tool, f.Since, f.Limit)
	if err != nil {
		return nil, p.failed("read the history", err)
	}
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Event, err error) {
		var revision int64
		var old, new []byte
		if err := row.Scan(&revision, &e.At, &e.By.Name, &e.By.Note, &e.What, &e.Server, &e.Tool, &old, &new); err != nil {
			return e, err
		}
		e.Revision, e.At, e.Old, e.New = strconv.FormatInt(revision, 10), e.At.UTC(), old, new
		for _, v := range []*jsontext.Value{&e.Old, &e.New} {
			if *v == nil {
				continue
			}
			if err := v.Canonicalize(); err != nil {
				return e, err
			}
		}
		return e, nil
	})
	if err != nil {
		return nil, p.failed("read the history", err)
	}
	return events, nil
}
