package gateway

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/registry/strictyaml"
)

// Survey is what one look at a set of servers showed.
type Survey struct {
	State *upstream.State
	// LastWords is the last few lines that each process wrote to its standard
	// error, by server, in one and escaped for a terminal. A server that never
	// wrote one is not in it. It is the server's text: it can hold anything.
	LastWords map[string]string
}

// Look reaches every server once, all at the same time, and returns when each
// has been looked at, when wait is over or when ctx ends; a server that was not
// heard of by then is down in the state. Everything that it started has ended
// when it returns. The error is upstream.New's.
func Look(ctx context.Context, servers map[string]upstream.Config, version string, wait time.Duration) (*Survey, error) {
	words := &listener{lines: map[string][]string{}}
	pool, err := upstream.New(servers, upstream.Options{Log: slog.New(words), Version: version})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- pool.Run(ctx) }()
	select {
	case <-pool.Settled():
	case <-ctx.Done():
	}
	found := &Survey{State: pool.Current()}
	cancel()
	<-ended
	pool.Close()
	found.LastWords = words.last()
	return found, nil
}

// listener is a log handler that keeps the last lines of each server's standard
// error and nothing else.
type listener struct {
	mu    sync.Mutex
	lines map[string][]string
}

// lastLines is how many lines are kept. Many a program says why it ends first,
// and then where to read more.
const lastLines = 4

// last returns what was kept, one line a server.
func (l *listener) last() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	words := make(map[string]string, len(l.lines))
	for server, lines := range l.lines {
		words[server] = strings.Join(lines, " / ")
	}
	return words
}

func (l *listener) Enabled(context.Context, slog.Level) bool { return true }

func (l *listener) Handle(_ context.Context, r slog.Record) error {
	var server, line string
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case keyServer:
			server = a.Value.String()
		case "line":
			line = a.Value.String()
		}
		return true
	})
	if line != "" {
		l.mu.Lock()
		defer l.mu.Unlock()
		kept := l.lines[server]
		if n := len(kept); n == 0 || kept[n-1] != line { // it is often started twice
			kept = append(kept, line)
		}
		l.lines[server] = kept[max(0, len(kept)-lastLines):]
	}
	return nil
}

func (l *listener) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *listener) WithGroup(string) slog.Handler      { return l }

// Trouble says in one line why a server is not up, or what is wrong with its
// list, and what to do; "" where all is well.
func (s *Survey) Trouble(server upstream.Server, c upstream.Config) string {
	switch {
	case server.Up && !server.Partial:
		return ""
	case server.Up:
		return server.Problem + ": the tools before that are known"
	}
	text := server.Problem
	if line := s.LastWords[server.Name]; line != "" {
		text += "; it wrote: " + masked(line, c)
	}
	return text + ": " + mend(server.Problem, c)
}

// masked hides the values of a server's headers and environment in what it
// wrote.
func masked(line string, c upstream.Config) string {
	const tooShort = 4 // would hide half of any text
	for _, values := range []map[string]strictyaml.Secret{c.Headers, c.Env} {
		for _, v := range values {
			if len(v) >= tooShort {
				line = strings.ReplaceAll(line, string(v), v.String())
			}
		}
	}
	return line
}

// mend is advice for the kind of error that a problem begins with.
func mend(problem string, c upstream.Config) string {
	kind, _, _ := strings.Cut(problem, ": ")
	stdio := c.Command != ""
	switch kind {
	case upstream.Unauthorized.String():
		return "see that the issuer lets this client have such tokens, and that the server takes them: correct oauth"
	case upstream.Unavailable.String():
		if stdio {
			return "see that the command is installed and its args and env are right"
		}
		if c.OAuth != nil {
			return "see that it runs, and its issuer, and that its url and oauth are right"
		}
		return "see that it runs and that its url and headers are right"
	case upstream.Broken.String():
		if stdio {
			return "run the command by hand and look what it says"
		}
		return "see whether an MCP server (Streamable HTTP) answers at its url"
	case upstream.Timeout.String():
		return "see why it is slow, or raise its connect_timeout and list_timeout"
	}
	return "it needs longer: try again"
}
