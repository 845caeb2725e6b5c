package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"
)

// errRefused is about a change that cannot be made as it was asked for.
var errRefused = errors.New("refused")

// rowReader puts a catalogue together from rows, in no order and unchecked.
type rowReader struct {
	q    querier
	c    Catalogue
	size int   // of what was read, in bytes
	bad  error // about the first row that cannot be read, which the catalogue lacks
}

// readCatalogueRows reads everything of the head. Servers whose part last has, if
// it is not nil, are taken from that. An error with a catalogue is about a row that
// cannot be read.
func readCatalogueRows(ctx context.Context, q querier, h *headRow, last *Catalogue) (*Catalogue, error) {
	r := &rowReader{q: q, c: Catalogue{Signature: h.signature}}
	asked, err := r.servers(ctx, last)
	if err != nil {
		return nil, err
	}
	if last == nil {
		asked = nil // everything, whatever the table of servers says
	}
	if err := r.tools(ctx, asked); err != nil {
		return nil, err
	}
	if err := r.quarantine(ctx); err != nil {
		return nil, err
	}
	return &r.c, r.bad
}

// rows calls the function for each row of the answer.
func (r *rowReader) rows(ctx context.Context, each func(pgx.Rows) error, sql string, args ...any) error {
	rows, err := r.q.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		for _, value := range rows.RawValues() {
			r.size += len(value)
		}
		if r.size > 2*maxCatalogue {
			return fmt.Errorf("%w: they hold more than %d bytes", errTampered, 2*maxCatalogue)
		}
		if err := each(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// servers returns the names of the servers whose tools are to be read.
func (r *rowReader) servers(ctx context.Context, last *Catalogue) (asked []string, err error) {
	known := map[reference]part{}
	if last != nil {
		for n, p := range last.split() {
			known[reference{Name: p.Name, Digest: last.parts[n].Digest}] = p
		}
	}
	asked = []string{}
	return asked, r.rows(ctx, func(rows pgx.Rows) error {
		var name, digest string
		var attributes []byte
		if err := rows.Scan(&name, &digest, &attributes); err != nil {
			return err
		}
		if p, ok := known[reference{Name: name, Digest: digest}]; ok {
			r.c.Tools = append(r.c.Tools, p.Tools...)
			if p.Server != nil {
				r.c.Servers = append(r.c.Servers, *p.Server)
			}
			return nil
		}
		asked = append(asked, name)
		if s := (Server{}); attributes != nil && r.decode(attributes, &s, "server "+name) {
			r.c.Servers = append(r.c.Servers, s)
		}
		return nil
	}, "select name, digest, attributes from servers")
}

// tools reads those of the named servers; nil is all of them.
func (r *rowReader) tools(ctx context.Context, servers []string) error {
	return r.rows(ctx, func(rows pgx.Rows) error {
		var server, name, sha256 string
		var attributes []byte
		if err := rows.Scan(&server, &name, &attributes, &sha256); err != nil {
			return err
		}
		if t := (Tool{}); r.decode(attributes, &t, "tool "+server+"/"+name) {
			t.SHA256 = sha256
			r.c.Tools = append(r.c.Tools, t)
		}
		return nil
	}, "select t.server, t.name, t.attributes, coalesce(p.sha256, '') from tools t "+
		"left join pins p on p.server = t.server and p.tool = t.name where $1::text[] is null or t.server = any($1)", servers)
}

func (r *rowReader) quarantine(ctx context.Context) error {
	return r.rows(ctx, func(rows pgx.Rows) error {
		var q Quarantined
		var since *time.Time
		if err := rows.Scan(&q.Server, &q.Tool, &q.Reason, &q.By, &since); err != nil {
			return err
		}
		if since != nil {
			q.Since = *since
		}
		r.c.Quarantine = append(r.c.Quarantine, q)
		return nil
	}, "select server, tool, reason, by, case when since between '0001-01-02' and '9999-12-30' then since end from quarantine")
}

func (r *rowReader) decode(data []byte, to any, what string) (ok bool) {
	err := json.Unmarshal(data, to, json.RejectUnknownMembers(true))
	if err != nil && r.bad == nil {
		r.bad = fmt.Errorf("%.200s: %w", what, errTampered)
	}
	return err == nil
}

// verified makes the catalogue of what was read, which must be what was published.
func verified(h *headRow, given *Catalogue) (*Catalogue, error) {
	// What is shared with another catalogue must not be sorted in place.
	c, err := NewCatalogue(h.Revision, Catalogue{
		Servers: slices.Clone(given.Servers), Tools: slices.Clone(given.Tools),
		Quarantine: slices.Clone(given.Quarantine), Signature: given.Signature,
	})
	if err != nil || c.Head.Digest != h.Digest {
		return nil, fmt.Errorf("revision %s: %w", h.Revision, errTampered)
	}
	return c, nil
}
