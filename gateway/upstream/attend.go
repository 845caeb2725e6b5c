package upstream

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/regogate/regogate/gateway/mcp"
)

// resumption is where a stream that was cut off goes on.
type resumption struct {
	last      string // id of the last event
	wait      time.Duration
	fruitless int
}

// fruitlessMost is how many times in a row a stream may be resumed without a
// single new event.
const fruitlessMost = 5

// advance takes note of how far a stream came. False means that it cannot be
// resumed.
func (r *resumption) advance(events *mcp.EventReader) bool {
	if id := events.LastID(); id != "" && id != r.last {
		r.last, r.fruitless = id, 0
	} else {
		r.fruitless++
	}
	if wait := events.Retry(); wait > 0 {
		r.wait = wait
	}
	return r.last != "" && r.fruitless < fruitlessMost
}

// resume opens the stream again after the time that the server asked for.
func (s *session) resume(ctx context.Context, from *resumption) (*http.Response, error) {
	wait := max(from.wait, 50*time.Millisecond)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return s.open(ctx, from.last)
}

// open opens a stream by GET: the session's own, or one to be resumed.
func (s *session) open(ctx context.Context, last string) (*http.Response, error) {
	header := s.header()
	header.Set("Accept", "text/event-stream")
	if last != "" {
		header.Set("Last-Event-Id", last)
	}
	resp, err := s.web.do(ctx, s.party.subject(), http.MethodGet, s.web.url, header, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || mediaType(resp) != "text/event-stream" {
		resp.Body.Close()
		return nil, broken("open a stream: %w", s.web.httpError(resp.StatusCode, ""))
	}
	return resp, nil
}

// watch is attend: a session has one stream, whoever it is for.
func (s *session) watch(ctx context.Context) error { return s.attend(ctx) }

// attend keeps the session's own stream open, on which a server says what
// belongs to no request, and takes it up again where it was cut off.
func (s *session) attend(ctx context.Context) error {
	defer s.attended()
	wait := backoff{least: 100 * time.Millisecond, most: 30 * time.Second}
	last, opened := "", false
	for {
		began := time.Now()
		var pause time.Duration
		resp, err := s.open(ctx, last)
		s.attended()
		if err == nil {
			from := last
			opened = true
			last, pause = s.unasked(ctx, resp, last)
			if last != from || time.Since(began) > 2*time.Second {
				wait.reset()
			}
		} else {
			switch s.verdict(ctx, err, opened, last) {
			case streamLost:
				s.web.changed("") // it has been restarted, perhaps with other lists
				return errStale
			case streamNone:
				return nil
			case streamAnew:
				last = ""
				continue
			}
		}
		if within(ctx.Done(), max(pause, wait.next())) {
			return nil
		}
	}
}

// unasked reads the stream to its end, and returns where it is to be resumed,
// and after what time at least.
func (s *session) unasked(ctx context.Context, resp *http.Response, last string) (string, time.Duration) {
	defer resp.Body.Close()
	body, err := decoded(resp)
	if err != nil {
		return last, 0
	}
	events := mcp.NewEventReader(body, s.web.limit)
	x := &exchange{web: s.web, session: s}
	_, _ = x.events(ctx, events) // it ends with an error, whatever the reason
	if id := events.LastID(); id != "" {
		last = id
	}
	return last, events.Retry()
}

// verdict is what to do after the session's own stream could not be opened;
// opened says that it could before.
func (s *session) verdict(ctx context.Context, err error, opened bool, last string) streamVerdict {
	var status *httpError
	switch {
	case ctx.Err() != nil || !errors.As(err, &status):
		return streamLater
	case status.saysNothing(), status.status == http.StatusConflict, status.status == http.StatusInternalServerError:
		return streamLater
	case status.status == http.StatusNotFound || status.status == http.StatusBadRequest:
		if opened && s.id != "" && !s.lives(ctx, s.party.subject()) {
			return streamLost
		}
	}
	if last != "" {
		return streamAnew // it may not know how to resume
	}
	return streamNone
}

type streamVerdict uint8

const (
	streamLater streamVerdict = iota // try again after a while
	streamAnew                       // try again at once, from now on
	streamNone                       // there is no such stream
	streamLost                       // there is no such session
)

// errUnwatched: the server does not tell of changes.
var errUnwatched = errors.New("it does not tell of changes")

// keepWatch keeps a stream of changes open until ctx ends, or the server turns
// it down: nil, or errStale where the link turned out to be lost.
func keepWatch(ctx context.Context, open func() error) error {
	wait := backoff{least: time.Second, most: time.Minute}
	for {
		began := time.Now()
		err := open()
		var status *httpError
		switch {
		case errors.Is(err, errStale):
			return errStale
		case ctx.Err() != nil, errors.Is(err, errUnwatched), errors.As(err, &status) && !status.saysNothing():
			return nil
		case time.Since(began) > time.Minute:
			wait.reset()
		}
		if within(ctx.Done(), wait.next()) {
			return nil
		}
	}
}
