package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ReplaceOptions says how Replace treats what is there.
type ReplaceOptions struct {
	// KeepPins leaves tools that are pinned as they are pinned; those that are not
	// get the pin that the new catalogue has for them.
	KeepPins bool
	// Repair takes tables that were changed past regogate for what they are, instead
	// of refusing; quarantine and, with KeepPins, pins then stay as they were found,
	// but for a reason that cannot be read, and entries of what can be no name.
	Repair bool
}

// Quarantine is of Store.
func (p *Postgres) Quarantine(ctx context.Context, by Author, q Quarantined) (Head, error) {
	doing := "quarantine " + Name(q.Server, q.Tool)
	return p.change(ctx, by, doing, false, func(_ pgx.Tx, now time.Time, c *Catalogue) error {
		q.By, q.Since = by.Name, now
		i := slices.IndexFunc(c.Quarantine, func(o Quarantined) bool { return compareQuarantined(o, q) == 0 })
		switch {
		case i < 0:
			c.Quarantine = append(c.Quarantine, q)
		case c.Quarantine[i].Reason != q.Reason:
			c.Quarantine[i] = q
		}
		return nil
	})
}

// Release is of Store.
func (p *Postgres) Release(ctx context.Context, by Author, server, tool string) (Head, error) {
	doing := "release " + Name(server, tool)
	return p.change(ctx, by, doing, false, func(_ pgx.Tx, _ time.Time, c *Catalogue) error {
		before := len(c.Quarantine)
		c.Quarantine = slices.DeleteFunc(c.Quarantine, func(q Quarantined) bool { return q.Server == server && q.Tool == tool })
		if len(c.Quarantine) == before {
			return fmt.Errorf("a quarantine of that is %w", ErrUnknown)
		}
		return nil
	})
}

// Approve is of Store. A new pin is not covered by the signature, which goes.
func (p *Postgres) Approve(ctx context.Context, by Author, server, tool, sha256 string, definition []byte) (Head, error) {
	doing := "approve " + Name(server, tool)
	return p.change(ctx, by, doing, false, func(tx pgx.Tx, _ time.Time, c *Catalogue) error {
		i := slices.IndexFunc(c.Tools, func(t Tool) bool { return t.Server == server && t.Name == tool })
		if i < 0 || c.Tools[i].Suggested {
			return fmt.Errorf("the tool is %w; give it an entry that is not suggested", ErrUnknown)
		}
		if !validSHA256(sha256) {
			return fmt.Errorf("%w: of the digest: %s", errRefused, sha256Rule)
		}
		if len(definition) > maxDefinition {
			return fmt.Errorf("%w: the definition is larger than %d bytes", errRefused, maxDefinition)
		}
		if c.Tools[i].SHA256 != sha256 {
			c.Tools[i].SHA256, c.Signature = sha256, ""
		}
		_, err := tx.Exec(ctx, "insert into definitions (server, tool, sha256, definition) values ($1, $2, $3, $4) on conflict do nothing",
			server, tool, sha256, string(definition))
		return err
	})
}

// Definition is of Store.
func (p *Postgres) Definition(ctx context.Context, server, tool, sha256 string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, many*p.timeout)
	defer cancel()
	var text string
	err := p.pool.QueryRow(ctx, "select definition from definitions where server = $1 and tool = $2 and sha256 = $3", server, tool, sha256).Scan(&text)
	if errors.Is(err, pgx.ErrNoRows) {
		err = fmt.Errorf("a definition of digest %.12s is %w", sha256, ErrUnknown)
	}
	if err != nil {
		return nil, p.failed("read the approved definition of "+Name(server, tool), err)
	}
	return []byte(text), nil
}

// Replace makes servers, tools, pins and signature those of the catalogue. It
// never touches the quarantine. from is the head that the caller looked at:
// ErrConflict says that it is no longer the current one. A signature that does not
// cover the pins that are kept is refused.
func (p *Postgres) Replace(ctx context.Context, by Author, from Head, to *Catalogue, o ReplaceOptions) (Head, error) {
	return p.change(ctx, by, "replace the catalogue", o.Repair, func(_ pgx.Tx, _ time.Time, c *Catalogue) error {
		if c.Head != from {
			return ErrConflict
		}
		next := Catalogue{Servers: slices.Clone(to.Servers), Tools: slices.Clone(to.Tools), Quarantine: c.Quarantine, Signature: to.Signature}
		if o.KeepPins && keepPins(next.Tools, c.Tools) && next.Signature != "" {
			return fmt.Errorf("%w: its signature does not cover the pins that the registry keeps; put those into the catalogue and sign it, or do not keep them", errRefused)
		}
		*c = next
		return nil
	})
}

// keepPins gives tools the pins that they had, and reports whether that changed any.
func keepPins(tools, had []Tool) (changed bool) {
	pins := make(map[toolKey]string, len(had))
	for _, t := range had {
		pins[toolKey{t.Server, t.Name}] = t.SHA256
	}
	for i := range tools {
		t := &tools[i]
		if pin := pins[toolKey{t.Server, t.Name}]; pin != "" && pin != t.SHA256 {
			t.SHA256, changed = pin, true
		}
	}
	return changed
}

// change makes one revision of what edit does to the current catalogue, of which
// it may replace anything but the head, and none where that changes nothing. The
// row of the head is locked meanwhile, so that changes come one after the other.
func (p *Postgres) change(ctx context.Context, by Author, doing string, repair bool, edit func(tx pgx.Tx, now time.Time, c *Catalogue) error) (Head, error) {
	ctx, cancel := context.WithTimeout(ctx, many*p.timeout)
	defer cancel()
	var head Head
	written := false
	err := by.check()
	if err == nil {
		err = pgx.BeginTxFunc(ctx, p.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			head, err = p.changeIn(ctx, tx, by, repair, edit)
			written = err == nil
			return err
		})
	}
	var reply *pgconn.PgError
	if err != nil && written && !errors.As(err, &reply) {
		doing += " (the connection broke at the very end, so look whether it was done)"
	}
	if err != nil {
		return Head{}, p.failed(doing, err)
	}
	return head, nil
}

func (p *Postgres) changeIn(ctx context.Context, tx pgx.Tx, by Author, repair bool, edit func(tx pgx.Tx, now time.Time, c *Catalogue) error) (Head, error) {
	h, err := readHead(ctx, tx, " for update of head")
	if err != nil {
		return Head{}, err
	}
	given, err := readCatalogueRows(ctx, tx, h, nil)
	if err != nil && (!repair || given == nil || !errors.Is(err, errTampered)) {
		return Head{}, err
	}
	current, bad := verified(h, given)
	if bad != nil && !repair {
		return Head{}, bad
	}
	if bad != nil {
		current = given
		current.Head = h.Head
	}
	edited := *current
	edited.Tools, edited.Quarantine = slices.Clone(current.Tools), slices.Clone(current.Quarantine)
	if bad != nil {
		edited.Quarantine = readable(current.Quarantine)
	}
	if err := edit(tx, time.Now(), &edited); err != nil {
		return Head{}, err
	}
	// A head that was set back does not keep anybody from a change.
	number := h.number
	if err := tx.QueryRow(ctx, "select greatest($1, max(revision)) + 1 from revisions", number).Scan(&number); err != nil {
		return Head{}, err
	}
	next, err := NewCatalogue(fmt.Sprint(number), edited)
	if err != nil {
		return Head{}, fmt.Errorf("%w: %s", errRefused, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if next.Head.Digest == h.Digest && bad == nil {
		return h.Head, nil
	}
	w := writer{tx: tx, by: by, schema: p.schema, whole: bad != nil}
	return next.Head, w.write(ctx, number, current, next)
}

// readable is a quarantine that was written past regogate, as it can be published.
// It releases nothing that has a name.
func readable(found []Quarantined) (list []Quarantined) {
	for _, q := range found {
		if len(q.check("")) > 0 {
			q.Reason, q.By = "was written past regogate, and why cannot be read", ""
		}
		if len(q.check("")) == 0 {
			list = append(list, q)
		}
	}
	return list
}

// check is about what the history and the quarantine keep of an author.
func (a *Author) check() error {
	c := checker{}
	if a.Name == "" {
		c.problem("author", "is missing; say who makes the change")
	}
	c.text("author", a.Name, maxOwner)
	c.text("note", a.Note, maxReason)
	if len(c.problems) > 0 {
		return fmt.Errorf("%w: %s %s", errRefused, c.problems[0].Path, c.problems[0].Message)
	}
	return nil
}
