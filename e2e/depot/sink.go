package depot

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
)

// sink keeps what OPA's plugins upload.
type sink struct {
	mu       sync.Mutex
	events   []Event
	chunks   int
	statuses []json.RawMessage
}

// Event is one decision that was uploaded.
type Event struct {
	Raw    json.RawMessage
	Fields map[string]any
	Chunk  int // which upload it came in, from 1
}

func (s *sink) take(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		zipped, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, "not gzip", http.StatusBadRequest)
			return
		}
		body = zipped
	}
	raw, err := io.ReadAll(io.LimitReader(body, 256<<20))
	if err == nil {
		err = s.keep(r.URL.Path, raw)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (s *sink) keep(path string, raw []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !strings.HasPrefix(path, "/logs") {
		s.statuses = append(s.statuses, raw)
		return nil
	}
	var events []json.RawMessage
	if err := json.Unmarshal(raw, &events); err != nil {
		return err
	}
	s.chunks++
	for _, one := range events {
		e := Event{Raw: one, Chunk: s.chunks}
		if err := json.Unmarshal(one, &e.Fields); err != nil {
			return err
		}
		s.events = append(s.events, e)
	}
	return nil
}

// Events returns the decisions that were uploaded so far, in the order in which
// they came.
func (d *Depot) Events() []Event {
	d.sink.mu.Lock()
	defer d.sink.mu.Unlock()
	return append([]Event(nil), d.sink.events...)
}

// Statuses returns the documents that the status plugin uploaded.
func (d *Depot) Statuses() []json.RawMessage {
	d.sink.mu.Lock()
	defer d.sink.mu.Unlock()
	return append([]json.RawMessage(nil), d.sink.statuses...)
}
