package registry

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"
)

// writer writes one revision in a transaction.
type writer struct {
	tx     pgx.Tx
	by     Author
	schema string
	whole  bool // rather than the parts that changed
}

// write makes the tables hold next, and puts on record what that changes.
func (w *writer) write(ctx context.Context, revision int64, current, next *Catalogue) error {
	servers, gone, size := w.parts(current, next)
	if size > maxCatalogue {
		return fmt.Errorf("%w: the catalogue would be larger than %d bytes", errRefused, maxCatalogue)
	}
	events, err := differences(current, next)
	if err != nil {
		return err
	}
	if w.whole {
		gone = nil // everything
	}
	batch := &pgx.Batch{}
	batch.Queue("insert into revisions (revision, actor, note, digest) values ($1, $2, $3, $4)", revision, w.by.Name, w.by.Note, next.Head.Digest)
	batch.Queue("update head set revision = $1, digest = $2, signature = $3", revision, next.Head.Digest, next.Signature)
	batch.Queue("delete from tools where $1::text[] is null or server = any($1)", gone)
	batch.Queue("delete from servers where $1::text[] is null or name = any($1)", gone)
	batch.Queue("delete from quarantine")
	for _, rows := range []struct {
		into, columns string
		values        any
	}{
		{"servers (name, attributes, digest)", "name text, attributes jsonb, digest text", servers},
		{"tools (attributes)", "attributes jsonb", toolRows(servers)},
		{"pins (server, tool, sha256)", "server text, tool text, sha256 text", pinRows(servers)},
		{"quarantine (server, tool, reason, by, since)", "server text, tool text, reason text, by text, since timestamptz", quarantineRows(next.Quarantine)},
		{"history (revision, n, what, server, tool, old, new)", "revision bigint, n integer, what text, server text, tool text, old jsonb, new jsonb", historyRows(revision, events)},
	} {
		data, err := json.Marshal(rows.values, json.Deterministic(true))
		if err != nil {
			return fmt.Errorf("encode what is written: %w", err)
		}
		batch.Queue("insert into "+rows.into+" select * from jsonb_to_recordset($1) as r("+rows.columns+")", string(data))
	}
	batch.Queue("select pg_notify($1, $2)", w.schema, next.Head.Digest)
	return w.tx.SendBatch(ctx, batch).Close()
}

// serverPart is a server as it is written.
type serverPart struct {
	Name       string  `json:"name"`
	Attributes *Server `json:"attributes,omitempty"`
	Digest     string  `json:"digest"`
	tools      []Tool
}

// parts returns the parts that next has and current has not, the names of these
// and of those that are no more, and the size of next.
func (w *writer) parts(current, next *Catalogue) (changed []serverPart, names []string, size int) {
	had := map[reference]bool{}
	if !w.whole {
		for _, ref := range current.parts {
			had[ref] = true
		}
	}
	changed, names = []serverPart{}, []string{}
	for n, p := range next.split() {
		ref := next.parts[n]
		if size += ref.Size; !had[ref] {
			changed = append(changed, serverPart{p.Name, p.Server, ref.Digest, p.Tools})
			names = append(names, p.Name)
		}
		delete(had, ref)
	}
	for ref := range had {
		names = append(names, ref.Name)
	}
	return changed, names, size
}

type toolRow struct {
	Attributes Tool `json:"attributes"`
}

func toolRows(servers []serverPart) []toolRow {
	rows := []toolRow{}
	for _, s := range servers {
		for _, t := range s.tools {
			t.SHA256 = ""
			rows = append(rows, toolRow{t})
		}
	}
	return rows
}

type pinRow struct {
	Server string `json:"server"`
	Tool   string `json:"tool"`
	SHA256 string `json:"sha256"`
}

func pinRows(servers []serverPart) []pinRow {
	rows := []pinRow{}
	for _, s := range servers {
		for _, t := range s.tools {
			if t.SHA256 != "" {
				rows = append(rows, pinRow{t.Server, t.Name, t.SHA256})
			}
		}
	}
	return rows
}

// quarantineRow names the columns that have no default where they are empty.
type quarantineRow struct {
	Quarantined `json:",inline"`
	Tool        string `json:"tool"`
	By          string `json:"by"`
}

func quarantineRows(list []Quarantined) []quarantineRow {
	rows := []quarantineRow{}
	for _, q := range list {
		rows = append(rows, quarantineRow{q, q.Tool, q.By})
	}
	return rows
}

// item is one thing in a catalogue that the history tells of.
type item struct{ server, tool, what string }

// items returns the things of a catalogue, each in its canonical encoding.
func items(c *Catalogue) (map[item]jsontext.Value, error) {
	things := map[item]any{}
	for _, s := range c.Servers {
		things[item{s.Name, "", "server"}] = s
	}
	for _, t := range c.Tools {
		if t.SHA256 != "" {
			things[item{t.Server, t.Name, "pin"}] = t.SHA256
		}
		t.SHA256 = ""
		things[item{t.Server, t.Name, "tool"}] = t
	}
	for _, q := range c.Quarantine {
		things[item{q.Server, q.Tool, "quarantine"}] = q
	}
	if c.Signature != "" {
		things[item{what: "signature"}] = c.Signature
	}
	encoded := make(map[item]jsontext.Value, len(things))
	for key, thing := range things {
		data, err := json.Marshal(thing, json.Deterministic(true))
		if err != nil {
			return nil, fmt.Errorf("encode what is written: %w", err)
		}
		encoded[key] = data
	}
	return encoded, nil
}

// difference is one line of the history.
type difference struct {
	item
	old, new jsontext.Value // nil is not there
}

// differences returns what differs, sorted by server, tool and what it is.
func differences(old, new *Catalogue) ([]difference, error) {
	before, err := items(old)
	if err != nil {
		return nil, err
	}
	after, err := items(new)
	if err != nil {
		return nil, err
	}
	all := maps.Clone(before)
	maps.Copy(all, after)
	var found []difference
	for key := range all {
		if string(before[key]) != string(after[key]) {
			found = append(found, difference{key, before[key], after[key]})
		}
	}
	slices.SortFunc(found, func(a, b difference) int {
		return cmp.Or(cmp.Compare(a.server, b.server), cmp.Compare(a.tool, b.tool), cmp.Compare(a.what, b.what))
	})
	return found, nil
}

type historyRow struct {
	Revision int64          `json:"revision"`
	N        int            `json:"n"`
	What     string         `json:"what"`
	Server   string         `json:"server"`
	Tool     string         `json:"tool"`
	Old      jsontext.Value `json:"old,omitempty"`
	New      jsontext.Value `json:"new,omitempty"`
}

func historyRows(revision int64, events []difference) []historyRow {
	rows := []historyRow{}
	for n, e := range events {
		rows = append(rows, historyRow{revision, n, e.what, e.server, e.tool, e.old, e.new})
	}
	return rows
}
