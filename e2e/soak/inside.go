package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/policy/decisionlog"
	"github.com/regogate/regogate/policies"
	"github.com/regogate/regogate/registry/catalogue"
	"github.com/regogate/regogate/registry/strictyaml"
)

// look is the state of the gateway's process.
type look struct {
	At         time.Duration `json:"at"` // since the soak began
	Goroutines int           `json:"goroutines"`
	Heap       uint64        `json:"heap"` // bytes in use after a collection
	Resident   uint64        `json:"resident"`
	Files      int           `json:"files"` // open descriptors
	Children   int           `json:"children"`

	Legacy  int `json:"-"` // sessions that the clients have
	Streams int `json:"-"` // streams that they have open
	Servers int `json:"-"` // sessions and listeners at the HTTP servers
}

// forgetful keeps no decision record.
type forgetful struct{}

func (forgetful) Record(*decisionlog.Record) bool { return true }
func (forgetful) Reserve() (func(), bool)         { return func() {}, true }

// serveGateway is the process whose goroutines and memory are looked at: a
// gateway and nothing else. It prints its address, answers each line on in with
// a look, or writes its stacks and heap where the line says so, and drains at the end of
// in.
func serveGateway(ctx context.Context, config string, in io.Reader, out, log io.Writer) error {
	c, problems := gateway.Load(config, os.LookupEnv, nil)
	if err := strictyaml.Err(problems); err != nil {
		return err
	}
	g, err := gateway.New(ctx, *c, gateway.Options{
		Version: "soak", Log: slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Policies: policies.FS, Catalogue: catalogue.FS, Records: forgetful{},
	})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, l.Addr()); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	go func() {
		defer stop()
		for lines := bufio.NewScanner(in); lines.Scan(); {
			if path, ok := strings.CutPrefix(lines.Text(), "stacks "); ok {
				fmt.Fprintln(out, writeStacks(path))
				continue
			}
			text, _ := json.Marshal(lookInside()) // numbers alone
			fmt.Fprintf(out, "%s\n", text)
		}
	}()
	return g.Run(ctx, l)
}

func lookInside() look {
	// The second collection frees what finalizers and pools held on to.
	runtime.GC()
	runtime.GC()
	debug.FreeOSMemory()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	l := look{Goroutines: runtime.NumGoroutine(), Heap: stats.HeapAlloc, Children: children(os.Getpid())}
	if files, err := os.ReadDir("/proc/self/fd"); err == nil {
		l.Files = len(files) - 1 // one is the directory itself
	}
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		var size, pages uint64
		if _, err := fmt.Sscan(string(text), &size, &pages); err == nil {
			l.Resident = pages * uint64(os.Getpagesize())
		}
	}
	return l
}

// children counts the processes that a process has started, as Linux tells; 0
// elsewhere.
func children(parent int) (n int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		// The name is in parentheses and may hold anything.
		_, rest, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
		fields := strings.Fields(rest)
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) && fields[0] != "Z" {
			n++
		}
	}
	return n
}

// writeStacks writes where the goroutines are, and beside it a profile of the
// heap. It returns ok or what is wrong.
func writeStacks(path string) string {
	for _, p := range []struct {
		name, path string
		debug      int
	}{{"goroutine", path, 1}, {"heap", strings.TrimSuffix(path, ".txt") + ".pprof", 0}} {
		f, err := os.Create(p.path)
		if err != nil {
			return err.Error()
		}
		if err := errors.Join(pprof.Lookup(p.name).WriteTo(f, p.debug), f.Close()); err != nil {
			return err.Error()
		}
	}
	return "ok"
}
