package world

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/go-json-experiment/json"
)

// Arrived returns the exposed names of the calls that have arrived.
func (s *Server) Arrived(context.Context) ([]string, error) {
	names := []string{}
	for _, call := range s.Calls() {
		names = append(names, s.Name+"__"+call.Tool)
	}
	return names, nil
}

// Reset is Forget.
func (s *Server) Reset(context.Context) error {
	s.Forget()
	return nil
}

// ServeLedger shows what Arrived returns, as a JSON array, and on DELETE forgets
// it. RemoteLedger reads it.
func (s *Server) ServeLedger(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
		names, _ := s.Arrived(r.Context())
		body, err := json.Marshal(names)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		write(w, http.StatusOK, body)
	case http.MethodDelete:
		s.Forget()
		w.WriteHeader(http.StatusNoContent)
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

// RemoteLedger is the ledger at a URL where a Server of another process serves
// it.
type RemoteLedger string

// Arrived implements Ledger.
func (l RemoteLedger) Arrived(ctx context.Context) ([]string, error) {
	body, err := l.do(ctx, http.MethodGet)
	if err != nil {
		return nil, err
	}
	var names []string
	if err := json.Unmarshal(body, &names); err != nil {
		return nil, fmt.Errorf("GET %s: %w", l, err)
	}
	return names, nil
}

// Reset implements Ledger.
func (l RemoteLedger) Reset(ctx context.Context) error {
	_, err := l.do(ctx, http.MethodDelete)
	return err
}

func (l RemoteLedger) do(ctx context.Context, method string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, string(l), nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s", method, l, resp.Status)
	}
	return body, err
}
