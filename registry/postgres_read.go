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

// serverRow is one server and the digest of its part.
type serverRow struct {
	name, digest string
	attributes   []byte
}

// readCatalogueRows reads everything, in no order and unchecked. Servers whose
// part last has, if it is not nil, are taken from it. The error with a catalogue
// is about a row that cannot be read, which the catalogue lacks.
func readCatalogueRows(ctx context.Context, q querier, h *headRow, last *Catalogue) (*Catalogue, error) {
	c := &Catalogue{Signature: h.signature}
	known := map[reference]part{}
	if last != nil {
		for n, p := range last.split() {
			ref := last.parts[n]
			known[reference{Name: ref.Name, Digest: ref.Digest}] = p
		}
	}
	rows, err := q.Query(ctx, "select name, digest, attributes from servers order by name")
	if err != nil {
		return nil, err
	}
	servers, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s serverRow, err error) {
		return s, row.Scan(&s.name, &s.digest, &s.attributes)
	})
	if err != nil {
		return nil, err
	}
	var bad error
	asked := []string{}
	for _, row := range servers {
		if p, ok := known[reference{Name: row.name, Digest: row.digest}]; ok {
			c.Tools = append(c.Tools, p.Tools...)
			if p.Server != nil {
				c.Servers = append(c.Servers, *p.Server)
			}
			continue
		}
		asked = append(asked, row.name)
		if row.attributes == nil {
			continue
		}
		s, err := decodeRow[Server](row.attributes, "server "+row.name)
		if bad = errors.Join(bad, err); err == nil {
			c.Servers = append(c.Servers, *s)
		}
	}
	if last == nil {
		asked = nil // everything, whatever servers says
	}
	bad = errors.Join(bad, c.readTools(ctx, q, asked))
	if err := c.readQuarantine(ctx, q); err != nil {
		return nil, err
	}
	return c, bad
}

// readTools adds the tools of the named servers; nil is all of them.
func (c *Catalogue) readTools(ctx context.Context, q querier, servers []string) error {
	rows, err := q.Query(ctx, "select t.server, t.name, t.attributes, coalesce(p.sha256, '') from tools t "+
		"left join pins p on p.server = t.server and p.tool = t.name where $1::text[] is null or t.server = any($1)", servers)
	if err != nil {
		return err
	}
	defer rows.Close()
	var bad error
	size := 0
	for rows.Next() {
		var server, name, sha256 string
		var attributes []byte
		if err := rows.Scan(&server, &name, &attributes, &sha256); err != nil {
			return err
		}
		if size += len(attributes); size > maxCatalogue {
			return fmt.Errorf("%w: it is larger than %d bytes", errTampered, maxCatalogue)
		}
		t, err := decodeRow[Tool](attributes, "tool "+server+"/"+name)
		if err != nil {
			bad = errors.Join(bad, err)
			continue
		}
		t.SHA256 = sha256
		c.Tools = append(c.Tools, *t)
	}
	return errors.Join(rows.Err(), bad)
}

func (c *Catalogue) readQuarantine(ctx context.Context, q querier) error {
	rows, err := q.Query(ctx, "select server, tool, reason, by, since from quarantine")
	if err != nil {
		return err
	}
	c.Quarantine, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Quarantined, error) {
		var q Quarantined
		var since *time.Time
		err := row.Scan(&q.Server, &q.Tool, &q.Reason, &q.By, &since)
		if since != nil {
			q.Since = *since
		}
		return q, err
	})
	return err
}

func decodeRow[T any](data []byte, what string) (*T, error) {
	to := new(T)
	if err := json.Unmarshal(data, to, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("%w: %.200s is not what regogate writes", errTampered, what)
	}
	return to, nil
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
