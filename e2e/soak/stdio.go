package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"sync"
)

// serveStdio is a server of 2025-06-18 that speaks by its standard streams: one
// process for each client. It returns when the input ends, and ends the process
// at once when it dies.
func serveStdio(in io.Reader, out io.Writer, seed uint64) {
	p := newPlace("stdio", seed, newBook())
	v := newVisitor()
	p.add("only", v)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go p.gossip(ctx)
	var mu sync.Mutex
	write := func(m []byte) error {
		mu.Lock()
		defer mu.Unlock()
		_, err := out.Write(append(bytes.Clone(m), '\n'))
		return err
	}
	go func() {
		for m := range v.out {
			_ = write(m) // the reader has gone: so does the input
		}
	}()
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var m message
		switch {
		case json.Unmarshal(line, &m) != nil:
		case m.Method == "initialize":
			_ = write(p.greet(v, m, "2025-06-18"))
		default:
			p.take(v, m, write, func() { os.Exit(3) })
		}
	}
}
